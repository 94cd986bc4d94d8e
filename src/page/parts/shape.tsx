/** Shapes that distinguish states without colours. Each shape is shown next to a text label. */

const SHAPES = {
  flows: 'M2 8h9M7 3l5 5-5 5',
  waits: 'M5 3v10M11 3v10',
  held: 'M4 7V5a4 4 0 0 1 8 0v2M3 7h10v7H3z',
  refused: 'M3 3l10 10M13 3L3 13',
  away: 'M1 8h4M11 8h4M6 4l4 8',
  off: 'M8 2v6M4.5 4.5a5 5 0 1 0 7 0',
  ok: 'M2 8l4 4 8-9',
  warning: 'M8 1l7 13H1zM8 6v4M8 11.5v1',
  failure: 'M3 3l10 10M13 3L3 13',
} as const;

export type ShapeName = keyof typeof SHAPES;

export function Shape({ name }: { name: ShapeName }) {
  return (
    <svg class="symbol" viewBox="0 0 16 16" aria-hidden="true">
      <path d={SHAPES[name]} />
    </svg>
  );
}
