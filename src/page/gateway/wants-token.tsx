import { Copyable } from '../parts/copyable.tsx';

/** Without OPS_TOKEN whoever reaches this machine's loopback could read it. */
export function WantsToken({ what }: { what: string }) {
  return (
    <article>
      <h3>{what} can be seen with OPS_TOKEN alone</h3>
      <p>Set OPS_TOKEN in agent.env, reload, and look again; or look by the command:</p>
      <Copyable text="tagferry reload" />
    </article>
  );
}
