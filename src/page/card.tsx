import type { ComponentChildren } from 'preact';

export function Card({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="card">
      <h3>{title}</h3>
      <dl>{children}</dl>
    </section>
  );
}

export function Fact({ name, children, bad = false }: { name: string; children: ComponentChildren; bad?: boolean }) {
  return (
    <div class={bad ? 'bad' : undefined}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
