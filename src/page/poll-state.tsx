import { Copyable } from './parts/copyable.tsx';
import type { Poll } from './poll.ts';

/** Shows that a view is loading, or why the gateway cannot update it. A lost connection is shown above the views. */
export function PollState({ poll }: { poll: Poll<unknown> }) {
  if (poll.problem !== undefined && poll.isAnswered) {
    return (
      <p class="bad" role="alert">
        Failed to update this view: {poll.problem}
      </p>
    );
  }
  return poll.data === undefined ? <p>Loading…</p> : null;
}

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
