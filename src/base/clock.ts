import { setTimeout as delay } from 'node:timers/promises';

/**
 * Time and chance as everything else sees them. The only file that reads the machine's clocks, so that tests can
 * move time by hand and a boot in 1970 is one case among others.
 */
export interface Clock {
  /** Wall clock in milliseconds since 1970. For stamping and for people: never to keep, order or expire anything. */
  wallMs(): number;
  /** Milliseconds that only ever grow, not moved by NTP: the same in all threads and processes since the machine's start. */
  monotonicMs(): number;
  /** A number in [0, 1): jitter. */
  random(): number;
  /** Waits; rejects with the signal's reason as soon as it fires. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
  /** Calls once after `delayMs`, without keeping the process alive; the function it returns takes the call back. */
  after(delayMs: number, call: () => void): () => void;
}

/** A wall clock before this was never set: many gateways boot in 1970. */
export const EARLIEST_TRUSTED_MS = Date.UTC(2026, 0, 1);

/** The wall clock if it is plausible, else `undefined`. */
export function plausibleWallMs(clock: Pick<Clock, 'wallMs'>): number | undefined {
  const wallMs = clock.wallMs();
  return wallMs >= EARLIEST_TRUSTED_MS ? wallMs : undefined;
}

/** Node fires a timer at once when its delay does not fit 31 bits. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  wallMs: () => Date.now(),
  // CLOCK_MONOTONIC itself, not `performance.now()`, which starts anew in each thread and process.
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
        // Node wraps the reason in an AbortError of its own: waiters want the reason itself.
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
