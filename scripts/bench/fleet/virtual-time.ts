import type { Clock } from '../../../src/base/clock.ts';
import { ManualClock } from '../../../test/doubles/manual-clock.ts';

interface Due {
  atMs: number;
  call: () => void;
  isOver: boolean;
}

/** Timers due within this time fire together. */
const STEP_MS = 100;
/** Event loop turns per step, enough for a post to get from the planner to the platform. */
const TURNS = 4;

/** Virtual time for an entire fleet. Each agent has a clock with its own random numbers. */
export class VirtualTime {
  readonly #startWallMs: number;
  #heap: Due[] = [];
  nowMs = 1_000;

  constructor(startWallMs = Date.UTC(2026, 10, 21)) {
    this.#startWallMs = startWallMs;
  }

  /** `chance`: random numbers from a seeded generator, or a constant for a fleet without jitter. */
  clock(seed: number, chance: 'jitter' | 'none' = 'jitter'): Clock {
    const generator = new ManualClock(0, seed * 7919);
    const random = chance === 'jitter' ? () => generator.random() : () => 0.5;
    const after = (delayMs: number, call: () => void) => this.#after(delayMs, call);
    return {
      wallMs: () => this.#startWallMs + this.nowMs,
      monotonicMs: () => this.nowMs,
      random,
      after,
      sleep: (delayMs, signal) =>
        new Promise((resolve, reject) => {
          if (signal?.aborted) return reject(signal.reason);
          const onAbort = () => {
            cancel();
            reject(signal?.reason);
          };
          const cancel = after(delayMs, () => {
            signal?.removeEventListener('abort', onAbort);
            resolve();
          });
          signal?.addEventListener('abort', onAbort, { once: true });
        }),
    };
  }

  async advance(ms: number): Promise<void> {
    const endMs = this.nowMs + ms;
    while (this.nowMs < endMs) {
      const next = this.#heap[0];
      // Skip times at which no timer is due.
      const skipMs = Math.min(endMs, Math.max(this.nowMs, Math.floor((next?.atMs ?? endMs) / STEP_MS) * STEP_MS));
      this.nowMs = Math.min(endMs, Math.max(skipMs, this.nowMs) + STEP_MS);
      if (this.#fire()) for (let turn = 0; turn < TURNS; turn++) await new Promise((resolve) => setImmediate(resolve));
    }
  }

  #fire(): boolean {
    let hasFired = false;
    while (this.#heap.length > 0 && this.#heap[0]!.atMs <= this.nowMs) {
      const due = this.#pop();
      if (due.isOver) continue;
      hasFired = true;
      due.call();
    }
    return hasFired;
  }

  #after(delayMs: number, call: () => void): () => void {
    const due: Due = { atMs: this.nowMs + Math.max(0, delayMs), call, isOver: false };
    // An infinite delay needs no timer.
    if (Number.isFinite(due.atMs)) this.#push(due);
    return () => {
      due.isOver = true;
    };
  }

  #push(due: Due): void {
    const heap = this.#heap;
    let at = heap.push(due) - 1;
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (heap[up]!.atMs <= due.atMs) break;
      heap[at] = heap[up]!;
      at = up;
    }
    heap[at] = due;
  }

  #pop(): Due {
    const heap = this.#heap;
    const first = heap[0]!;
    const last = heap.pop()!;
    if (heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= heap.length) break;
      if (down + 1 < heap.length && heap[down + 1]!.atMs < heap[down]!.atMs) down++;
      if (heap[down]!.atMs >= last.atMs) break;
      heap[at] = heap[down]!;
      at = down;
    }
    heap[at] = last;
    return first;
  }
}
