import type { Clock } from '../../../src/base/clock.ts';

interface Sleeper {
  atMs: number;
  wake: () => void;
}

/** Clock that only a test advances. Random numbers come from a seeded generator, so that failures are reproducible. */
export class ManualClock implements Clock {
  #wallMs: number;
  #monotonicMs = 1_000;
  #seed: number;
  /** Timers in the order of their creation. */
  readonly #sleepers = new Set<Sleeper>();

  constructor(wallMs = Date.UTC(2026, 10, 21), seed = 1) {
    this.#wallMs = wallMs;
    this.#seed = seed;
  }

  wallMs(): number {
    return this.#wallMs;
  }

  monotonicMs(): number {
    return this.#monotonicMs;
  }

  random(): number {
    // mulberry32
    this.#seed = (this.#seed + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#seed ^ (this.#seed >>> 15), 1 | this.#seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const cancel = this.after(delayMs, () => {
        signal?.removeEventListener('abort', onAbort);
        resolve();
      });
      const onAbort = () => {
        cancel();
        reject(signal?.reason);
      };
      signal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  after(delayMs: number, call: () => void): () => void {
    const sleeper: Sleeper = { atMs: this.#monotonicMs + Math.max(0, delayMs), wake: call };
    this.#sleepers.add(sleeper);
    return () => void this.#sleepers.delete(sleeper);
  }

  /** Number of pending timers. */
  get waiting(): number {
    return this.#sleepers.size;
  }

  /** Advances both clocks. Fires due timers in order, and lets their continuations run before the next one. */
  async advance(ms: number): Promise<void> {
    const endMs = this.#monotonicMs + ms;
    for (;;) {
      await settled();
      const next = this.#first();
      if (!next || next.atMs > endMs) break;
      this.#step(Math.max(0, next.atMs - this.#monotonicMs));
      this.#sleepers.delete(next);
      next.wake();
    }
    this.#step(endMs - this.#monotonicMs);
    await settled();
  }

  /** Sets only the wall clock, as NTP does. */
  jumpWall(ms: number): void {
    this.#wallMs += ms;
  }

  /** Next timer to fire: the oldest of those due first. */
  #first(): Sleeper | undefined {
    let first: Sleeper | undefined;
    for (const sleeper of this.#sleepers) if (!first || sleeper.atMs < first.atMs) first = sleeper;
    return first;
  }

  #step(ms: number): void {
    this.#wallMs += ms;
    this.#monotonicMs += ms;
  }
}

/** Runs pending promise continuations for several turns. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
}
