import { setTimeout as delay } from 'node:timers/promises';

/**
 * Source of time and randomness. Only this file reads the system clocks, so that tests can control time and simulate a
 * boot in 1970.
 */
export interface Clock {
  /**
   * Wall-clock time in milliseconds since 1970. Used only for timestamps and display, never for retention, ordering or
   * expiry.
   */
  wallMs(): number;
  /** Monotonic time in milliseconds since boot, unaffected by NTP and shared by all threads and processes. */
  monotonicMs(): number;
  /** Returns a random number in [0, 1), used for jitter. */
  random(): number;
  /** Waits for the given delay. Rejects with the signal's reason as soon as the signal aborts. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
  /**
   * Calls the function once after `delayMs` without keeping the process alive. The returned function cancels the
   * call.
   */
  after(delayMs: number, call: () => void): () => void;
}

/** Wall-clock times before this are implausible: many gateways boot in 1970. */
export const EARLIEST_TRUSTED_MS = Date.UTC(2026, 0, 1);

/** Returns the wall-clock time if it is plausible, otherwise `undefined`. */
export function plausibleWallMs(clock: Pick<Clock, 'wallMs'>): number | undefined {
  const wallMs = clock.wallMs();
  return wallMs >= EARLIEST_TRUSTED_MS ? wallMs : undefined;
}

/** Waits for a promise, or rejects with the abort reason of the signal if the signal is aborted first. */
export async function raced<Result>(promise: Promise<Result>, signal: AbortSignal | undefined): Promise<Result> {
  if (!signal) return promise;
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** Node fires a timer immediately if its delay exceeds 31 bits. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  wallMs: () => Date.now(),
  // Use CLOCK_MONOTONIC, because `performance.now()` starts at zero in each thread and process.
  monotonicMs: () => {
    const [seconds, nanoseconds] = process.hrtime();
    return seconds * 1000 + nanoseconds / 1e6;
  },
  random: () => Math.random(),
  async sleep(delayMs, signal) {
    signal?.throwIfAborted();
    let left = Math.max(0, delayMs);
    do {
      const step = Math.min(left, MAX_TIMER_MS);
      try {
        await delay(step, undefined, signal ? { signal } : {});
      } catch (error) {
        // Reject with the original reason. Node would wrap it in an AbortError.
        signal?.throwIfAborted();
        throw error;
      }
      left -= step;
    } while (left > 0);
  },
  after(delayMs, call) {
    const timer = setTimeout(call, Math.min(Math.max(0, delayMs), MAX_TIMER_MS));
    timer.unref();
    return () => clearTimeout(timer);
  },
};
