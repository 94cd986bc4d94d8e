import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';

type LogTotals = (values: number, times: number) => void;

interface Drop {
  values: number;
  times: number;
  loggedAtMs: number;
  log: LogTotals;
}

const DROPPED_HINT =
  'Run `tagferry status` to see why values are not being posted, or increase BUFFER_MAX_BYTES or BUFFER_MAX_AGE.';
const SUMMARY_EVERY_MS = 60_000;

/**
 * Logs dropped values, which can occur with every commit if the buffer is full or the disk fails. The first drop of a
 * kind is logged immediately, then totals per minute. `settle` logs pending totals; it is called regularly and at
 * shutdown.
 */
export class DropLog {
  readonly #clock: Clock;
  readonly #drops = new Map<string, Drop>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note(kind: string, values: number, log: LogTotals): void {
    const nowMs = this.#clock.monotonicMs();
    const drop = this.#drops.get(kind) ?? { values: 0, times: 0, loggedAtMs: Number.NEGATIVE_INFINITY, log };
    drop.values += values;
    drop.times++;
    drop.log = log;
    this.#drops.set(kind, drop);
    this.settle(nowMs);
  }

  /** Logs the totals that are due; `Infinity` logs all totals. */
  settle(nowMs: number): void {
    for (const [kind, drop] of this.#drops) {
      if (nowMs - drop.loggedAtMs < SUMMARY_EVERY_MS) continue;
      if (drop.times === 0) this.#drops.delete(kind);
      else {
        drop.log(drop.values, drop.times);
        Object.assign(drop, { values: 0, times: 0, loggedAtMs: nowMs });
      }
    }
  }
}

/** Returns the function that logs values dropped for this reason. */
export function logDropped(log: Logger, reason: string): LogTotals {
  const words =
    reason === 'purge'
      ? 'values deleted by an operator'
      : reason === 'quarantine'
        ? 'oldest quarantined values dropped, configured bound reached'
        : 'oldest values dropped, configured bound reached';
  return (values, times) =>
    log.warn(
      { event: 'buffer.dropped', reason, values, times, hint: reason === 'purge' ? undefined : DROPPED_HINT },
      words,
    );
}

export function logDamaged(log: Logger, what: string): LogTotals {
  return (values, times) => log.error({ event: 'store.row_damaged', what, values, times }, 'damaged rows set aside');
}
