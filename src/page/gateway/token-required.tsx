import { Copyable } from '../parts/copyable.tsx';

/** Explains that a view requires OPS_TOKEN, because other users on the machine can reach its loopback interface. */
export function TokenRequired({ what }: { what: string }) {
  return (
    <article>
      <h3>{what} require OPS_TOKEN</h3>
      <p>Set OPS_TOKEN in agent.env, then run:</p>
      <Copyable text="tagferry reload" />
    </article>
  );
}
