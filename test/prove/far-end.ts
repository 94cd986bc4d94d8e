import type { Sandbox } from '../../src/sandbox/sandbox.ts';

/** Maximum time until the agent has read a platform response on a busy machine. */
const HEARD_WITHIN_MS = 3_000;
/** Time after which received posts are forgotten. */
const REMEMBERED_MS = 60_000;

/**
 * Counts how many values may be delivered twice (invariant 2). A crash may repeat the posts in progress and those
 * responded to since the latest commit. A lost response may repeat its post.
 */
export class FarEnd {
  /** Number of values that may have been delivered again. */
  allowed = 0;
  readonly #maxPost: number;
  readonly #inProgress: number;
  readonly #received: { atMs: number; values: number }[] = [];
  /** Start time of the latest acknowledged push request. Its commit includes all responses read before it. */
  #committedMs = 0;

  constructor(sandbox: Sandbox, maxPost: number, concurrency: number) {
    this.#maxPost = maxPost;
    this.#inProgress = concurrency * maxPost;
    const record = sandbox.values.record.bind(sandbox.values);
    sandbox.values.record = (asset, posted) => {
      const now = performance.now();
      const received = this.#received;
      received.push({ atMs: now, values: posted.reduce((sum, { points }) => sum + points.length, 0) });
      while (received[0]!.atMs < Math.min(now - REMEMBERED_MS, this.#committedMs - HEARD_WITHIN_MS)) received.shift();
      record(asset, posted);
    };
  }

  /** Records that a push request started at this time was acknowledged. */
  committed(beganMs: number): void {
    this.#committedMs = Math.max(this.#committedMs, beganMs);
  }

  /** Records an agent crash. */
  crashed(): void {
    const since = this.#committedMs - HEARD_WITHIN_MS;
    for (const { atMs, values } of this.#received) if (atMs > since) this.allowed += values;
    this.#posts();
  }

  /** Posts in progress receive no response. */
  #posts(): void {
    this.allowed += this.#inProgress;
  }

  /** Records that the connections broke, or that the agent was stopped for longer than its timeouts. */
  cutOff(): void {
    this.#posts();
  }

  /** Records that a killed server lost acknowledgements and sends this many values again. */
  redelivered(values: number): void {
    this.allowed += values;
  }

  /** Records that a response to a post was lost or damaged. */
  responseLost(): void {
    this.allowed += this.#maxPost;
  }
}
