/**
 * Assigns arrival times to pushed, polled and imported values. Two values of one series never get the same timestamp,
 * because the platform would overwrite the first value with the second.
 *
 * A stamp is the wall clock time, but at least one millisecond after the previous stamp of the series. If the previous
 * stamp is more than a day ahead, the clock was wrong and has been corrected. Stamps then follow the corrected clock,
 * because stamps that continue from the wrong time could be years ahead of all other values.
 *
 * An untrusted wall clock (before 2026) is read only once, when the store opens. Until the clock is trusted, stamps are
 * that reading plus the elapsed monotonic time. All provisional stamps of a run therefore require the same correction
 * (`StampCorrection`), even if the wall clock is set several times.
 *
 * Each commit stores the latest stamp. If the clock is set back during a restart, the stamps of all series continue
 * after that stamp. Storing the latest stamp of each series instead would require one write per series and commit.
 */
import { type Clock, EARLIEST_TRUSTED_MS } from '../../base/clock.ts';

const MAX_STEP_BACK_MS = 24 * 3_600_000;
/** Maximum number of series whose stamps ahead of the clock are stored individually. */
const MAX_AHEAD = 10_000;
const FIRST_SERIES = 256;

/** Stamps stored by a previous process. */
export interface KeptStamps {
  /** Latest stamp of the series that were not ahead of the clock. */
  latestMs: number;
  /** Latest stamps of the series that were ahead of the clock when they were stored. */
  ahead: readonly (readonly [series: number, lastMs: number])[];
}

export class Stamps {
  /** Latest stamp by series number; 0 means no stamp. */
  #last = new Float64Array(FIRST_SERIES);
  /** Lower limit for all stamps: the latest stamp of a previous process. */
  readonly #floor: number;
  /** Latest stamp of this or a previous process, except for series ahead of the clock. */
  #latest: number;
  /** Series whose latest stamp was ahead of the clock when it was assigned. */
  readonly #ahead = new Set<number>();

  readonly #clockOffsetMs: number | undefined;

  /**
   * The first argument contains the stamps that a previous process stored. `clockOffsetMs`: difference between the wall
   * clock and the monotonic clock in this run, from the store. If omitted, any wall clock is trusted.
   */
  constructor({ latestMs = 0, ahead = [] }: Partial<KeptStamps> = {}, clockOffsetMs?: number) {
    this.#clockOffsetMs = clockOffsetMs;
    this.#floor = latestMs;
    this.#latest = latestMs;
    for (const [series, lastMs] of ahead) {
      this.#set(series, lastMs);
      this.#ahead.add(series);
    }
  }

  /** Returns the current time, used as the arrival time of values. */
  nowMs(clock: Pick<Clock, 'wallMs' | 'monotonicMs'>): number {
    const wallMs = clock.wallMs();
    const isBelieved = isTrusted(wallMs) || this.#clockOffsetMs === undefined;
    return Math.max(0, Math.round(isBelieved ? wallMs : this.#clockOffsetMs + clock.monotonicMs()));
  }

  /** Returns the stamps that must not be assigned again after a restart, regardless of the clock. */
  kept(wallMs: number): KeptStamps {
    const ahead: [number, number][] = [];
    for (const series of this.#ahead) {
      const last = this.#last[series]!;
      if (last > wallMs && ahead.length < MAX_AHEAD) ahead.push([series, last]);
      else {
        // The clock has passed this stamp, or there are too many series to store them separately.
        this.#latest = Math.max(this.#latest, last);
        if (last <= wallMs) this.#ahead.delete(series);
      }
    }
    return { latestMs: this.#latest, ahead };
  }

  /** Returns the stamp of a value; `wallMs` is the current time. */
  next(series: number, wallMs: number): number {
    const nowMs = Math.max(0, Math.round(wallMs));
    const floor = this.#floor - nowMs > MAX_STEP_BACK_MS ? 0 : this.#floor;
    const last = Math.max(floor, series < this.#last.length ? this.#last[series]! : 0);
    const isBehind = last < nowMs || last - nowMs > MAX_STEP_BACK_MS;
    const stampMs = isBehind ? nowMs : last + 1;
    this.#set(series, stampMs);
    if (stampMs > nowMs) this.#ahead.add(series);
    else if (nowMs > this.#latest || this.#latest - nowMs > MAX_STEP_BACK_MS) this.#latest = nowMs;
    return stampMs;
  }

  #set(series: number, stampMs: number): void {
    if (series >= this.#last.length) {
      const longer = new Float64Array(Math.max(series + 1, this.#last.length * 2));
      longer.set(this.#last);
      this.#last = longer;
    }
    this.#last[series] = stampMs;
  }
}

/** Returns whether a wall clock time is plausible. */
export const isTrusted = (wallMs: number): boolean => wallMs >= EARLIEST_TRUSTED_MS;

/**
 * Assigns times to stream values: the time at which the stream stored the message, so that a message redelivered to
 * another agent gets the same time. Messages of one series stored in the same millisecond get consecutive milliseconds,
 * in stream order.
 */
export class StreamTimes {
  readonly #last = new Map<number, { seq: number; timeMs: number }>();

  /** `afterMs`: time of the previous sample of the series in the same message. */
  of(series: number, seq: number, storedMs: number, afterMs?: number): number {
    const last = this.#last.get(series);
    const isEarlier = last !== undefined && seq <= last.seq;
    // Redelivered messages keep their time.
    if (isEarlier && afterMs === undefined) return storedMs;
    const earliestMs = afterMs ?? last?.timeMs ?? Number.NEGATIVE_INFINITY;
    const timeMs = Math.max(storedMs, earliestMs + 1);
    if (last === undefined || seq > last.seq || timeMs > last.timeMs)
      this.#last.set(series, { seq: Math.max(seq, last?.seq ?? seq), timeMs });
    return timeMs;
  }
}
