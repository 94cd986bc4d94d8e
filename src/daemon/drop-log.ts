import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';

interface Drop {
  values: number;
  times: number;
  saidAtMs: number;
}

type Tell = (values: number, times: number) => void;

const DROPPED_HINT = 'Find out in `tagferry status` why the rest waits, or raise BUFFER_MAX_BYTES or BUFFER_MAX_AGE.';
const SUM_UP_MS = 60_000;

/**
 * Losses of values, which a full buffer or a dying card makes with every commit: the first of a kind is said at once, then the sum of
 * each minute. Nothing of a sum is left out: what is not said yet is said by `settle`, which is called often and at the end.
 */
export class DropLog {
  readonly #clock: Clock;
  readonly #drops = new Map<string, Drop & { tell: Tell }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note(kind: string, values: number, tell: Tell): void {
    const nowMs = this.#clock.monotonicMs();
    const drop = this.#drops.get(kind) ?? { values: 0, times: 0, saidAtMs: Number.NEGATIVE_INFINITY, tell };
    drop.values += values;
    drop.times++;
    drop.tell = tell;
    this.#drops.set(kind, drop);
    this.settle(nowMs);
  }

  /** Says what has waited long enough, or with `Infinity` everything. */
  settle(nowMs: number): void {
    for (const [kind, drop] of this.#drops) {
      if (nowMs - drop.saidAtMs < SUM_UP_MS) continue;
      if (drop.times === 0) this.#drops.delete(kind);
      else {
        drop.tell(drop.values, drop.times);
        Object.assign(drop, { values: 0, times: 0, saidAtMs: nowMs });
      }
    }
  }
}

/** A line of the log for each reason for which values were dropped. */
export function tellDropped(log: Logger, reason: string): Tell {
  const words =
    reason === 'purge'
      ? 'an operator deleted values'
      : reason === 'quarantine'
        ? 'the oldest values in quarantine were dropped to keep the bound'
        : 'the oldest values were dropped to keep the bound';
  return (values, times) =>
    log.warn(
      { event: 'buffer.dropped', reason, values, times, hint: reason === 'purge' ? undefined : DROPPED_HINT },
      words,
    );
}

export function tellDamaged(log: Logger, what: string): Tell {
  return (values, times) =>
    log.error({ event: 'store.row_damaged', what, values, times }, 'damaged rows were set aside');
}
