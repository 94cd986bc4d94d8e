import type { Sandbox } from '../../src/sandbox/sandbox.ts';

/** Between the platform's answer and the agent's having heard it, on a machine that does much else. */
const HEARD_WITHIN_MS = 3_000;
/** Of what came before this nothing is asked again. */
const REMEMBERED_MS = 60_000;

/**
 * How much may come twice (invariant 2): what a crash may repeat is at most the posts under way and those answered since the last
 * commit; what an answer that was lost may repeat is its post. Counted while it happens, from what the platform takes and what was
 * acknowledged.
 */
export class FarEnd {
  /** So many values may have come again since the last judgement. */
  allowed = 0;
  readonly #maxPost: number;
  readonly #underWay: number;
  readonly #taken: { atMs: number; values: number }[] = [];
  /** When the last request began whose values were acknowledged: whatever was heard by then is on disk with them. */
  #committedMs = 0;

  constructor(sandbox: Sandbox, maxPost: number, concurrency: number) {
    this.#maxPost = maxPost;
    this.#underWay = concurrency * maxPost;
    const record = sandbox.values.record.bind(sandbox.values);
    sandbox.values.record = (asset, posted) => {
      const now = performance.now();
      const taken = this.#taken;
      taken.push({ atMs: now, values: posted.reduce((sum, { points }) => sum + points.length, 0) });
      while (taken[0]!.atMs < Math.min(now - REMEMBERED_MS, this.#committedMs - HEARD_WITHIN_MS)) taken.shift();
      record(asset, posted);
    };
  }

  /** A request that began then was acknowledged. */
  committed(beganMs: number): void {
    this.#committedMs = Math.max(this.#committedMs, beganMs);
  }

  /** The daemon is gone at once. */
  crashed(): void {
    const since = this.#committedMs - HEARD_WITHIN_MS;
    for (const { atMs, values } of this.#taken) if (atMs > since) this.allowed += values;
    this.#posts();
  }

  /** Whatever was under way has no answer. */
  #posts(): void {
    this.allowed += this.#underWay;
  }

  /** The connections broke, or the daemon stood still for longer than it waits. */
  cutOff(): void {
    this.#posts();
  }

  /** A server that was killed has forgotten that it heard of so many values, and gives them again. */
  givenAgain(values: number): void {
    this.allowed += values;
  }

  /** An answer to a post was lost or spoiled. */
  spoiled(): void {
    this.allowed += this.#maxPost;
  }
}
