import type { Clock } from '../base/clock.ts';

interface Timer {
  dueMs: number;
  order: number;
  call: (() => void) | undefined;
}

/**
 * Clock of the sandbox. It starts at the machine's wall clock time, runs at `speed`, and can be advanced. It is used
 * for token lifetimes, retry schedules, quotas and sunset dates, so that three days of retries can be tested within a
 * minute.
 *
 * Timers are stored in a heap by due time, and only the earliest one uses a timer of the underlying clock. Therefore,
 * 100,000 waiting deliveries require only one timer, and `advance` only has to check the heap.
 */
export class SandboxClock implements Clock {
  readonly #base: Clock;
  readonly #startWallMs: number;
  #speed: number;
  #anchorBaseMs: number;
  #anchorMs = 0;
  #heap: Timer[] = [];
  #order = 0;
  #cancelWake: (() => void) | undefined;

  /** `startMs`: start time in milliseconds since 1970. Default: the time of the underlying clock. */
  constructor(base: Clock, speed = 1, startMs = base.wallMs()) {
    this.#base = base;
    this.#speed = speed;
    this.#startWallMs = startMs;
    this.#anchorBaseMs = base.monotonicMs();
  }

  /** Speed of the clock, in sandbox seconds per real second. */
  get speed(): number {
    return this.#speed;
  }

  set speed(speed: number) {
    this.#anchorMs = this.monotonicMs();
    this.#anchorBaseMs = this.#base.monotonicMs();
    this.#speed = speed;
    this.#wakeNext();
  }

  wallMs(): number {
    return Math.floor(this.#startWallMs + this.monotonicMs());
  }

  monotonicMs(): number {
    return this.#anchorMs + (this.#base.monotonicMs() - this.#anchorBaseMs) * this.#speed;
  }

  random(): number {
    return this.#base.random();
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const onAbort = () => {
        cancel();
        reject(signal?.reason);
      };
      const cancel = this.after(delayMs, () => {
        signal?.removeEventListener('abort', onAbort);
        resolve();
      });
      signal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  after(delayMs: number, call: () => void): () => void {
    const timer: Timer = { dueMs: this.monotonicMs() + Math.max(0, delayMs), order: this.#order++, call };
    push(this.#heap, timer);
    if (this.#heap[0] === timer) this.#wakeNext();
    return () => {
      timer.call = undefined;
    };
  }

  /** Advances the clock and runs due timers in order. */
  advance(ms: number): void {
    this.#anchorMs += ms;
    this.#runDue();
  }

  /** Removes all timers. */
  stop(): void {
    this.#heap = [];
    this.#cancelWake?.();
    this.#cancelWake = undefined;
  }

  #runDue(): void {
    const nowMs = this.monotonicMs();
    while (this.#heap.length > 0 && (this.#heap[0]!.dueMs <= nowMs || this.#heap[0]!.call === undefined)) {
      pop(this.#heap)!.call?.();
    }
    this.#wakeNext();
  }

  #wakeNext(): void {
    this.#cancelWake?.();
    this.#cancelWake = undefined;
    const next = this.#heap[0];
    if (next === undefined) return;
    const delayMs = Math.ceil((next.dueMs - this.monotonicMs()) / this.#speed);
    this.#cancelWake = this.#base.after(Math.max(0, delayMs), () => this.#runDue());
  }
}

function before(a: Timer, b: Timer): boolean {
  return a.dueMs < b.dueMs || (a.dueMs === b.dueMs && a.order < b.order);
}

function push(heap: Timer[], timer: Timer): void {
  let at = heap.length;
  heap.push(timer);
  while (at > 0) {
    const parent = (at - 1) >> 1;
    if (!before(timer, heap[parent]!)) break;
    heap[at] = heap[parent]!;
    at = parent;
  }
  heap[at] = timer;
}

function pop(heap: Timer[]): Timer | undefined {
  const first = heap[0];
  const last = heap.pop();
  if (last === undefined || heap.length === 0) return first;
  let at = 0;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child++;
    if (!before(heap[child]!, last)) break;
    heap[at] = heap[child]!;
    at = child;
  }
  heap[at] = last;
  return first;
}
