/**
 * Plausibility rules for timestamps. While the gateway clock is trusted, a timestamp before EARLIEST_TIME or more than
 * a day ahead is implausible: the sender's clock is not set, or the timestamp has another unit. If the value was read
 * or subscribed live, the timestamp is replaced with the arrival time. The arrival time of other values would also be
 * wrong, so pushed, historical and retained values and CSV rows are rejected. A timestamp of a live value that is ahead
 * by less than a day is used and reported: the sender's clock is probably set to local time.
 *
 * A gateway without a real-time clock continues after a power cut with the time at which it was shut down. A timestamp
 * is therefore ahead only if it is also ahead of the platform's clock, which is known after the first sign-in.
 *
 * The platform keeps one value per series and timestamp. A value that has the same timestamp as the previous value of
 * its series but a different number is stored and reported. Only the latest value of each series is compared.
 */
import { type Columns, STAMPED_HERE } from '../../buffer/format/value-columns.ts';
import { isTrusted } from './stamps.ts';
import { isValidTime } from './text-parsers.ts';

/** Default of EARLIEST_TIME. */
const EARLIEST_MS = Date.UTC(2000, 0, 1);
const DAY_MS = 86_400_000;
/** Minimum time by which a clock that is set to local time is ahead: 15 minutes, minus a delay. */
const AHEAD_MS = 840_000;
/** Latest time that `Date` can format. */
const LATEST_DATE_MS = 8.64e15;

export type TimeUnit = 's' | 'ms' | 'us' | 'ns';

/** Milliseconds per unit. */
export const MS_OF_UNIT: Readonly<Record<TimeUnit, number>> = { s: 1_000, ms: 1, us: 1e-3, ns: 1e-6 };
const UNITS = Object.keys(MS_OF_UNIT) as TimeUnit[];

const FIRST_SERIES = 256;

/** Values with duplicate timestamps: their number, and the series and timestamp of the latest. */
export interface Duplicates {
  count: number;
  series: number;
  timeMs: number;
}

export class ValueTimes {
  /** EARLIEST_TIME, in milliseconds since 1970. */
  earliestMs: number;
  readonly #platformMs: () => number | undefined;
  #latest = latestValues(FIRST_SERIES);

  /** `platformMs` returns the current time of the platform, or `undefined` if it is unknown. */
  constructor(earliestMs = EARLIEST_MS, platformMs: () => number | undefined = () => undefined) {
    this.earliestMs = earliestMs;
    this.#platformMs = platformMs;
  }

  /** Returns whether a timestamp is plausible. If the wall clock `nowMs` is not trusted, 1970 to 9999 is plausible. */
  isPlausible(timeMs: number, nowMs: number): boolean {
    if (!isValidTime(timeMs)) return false;
    if (!isTrusted(nowMs)) return true;
    return timeMs >= this.earliestMs && !this.isAhead(timeMs, nowMs, DAY_MS);
  }

  /** Returns whether a timestamp is ahead of the trusted gateway clock and of the platform by more than `byMs`. */
  isAhead(timeMs: number, nowMs: number, byMs = AHEAD_MS): boolean {
    if (timeMs <= nowMs + byMs || !isTrusted(nowMs)) return false;
    return timeMs > (this.#platformMs() ?? Number.POSITIVE_INFINITY) + byMs;
  }

  /**
   * Describes an implausible timestamp. If its number would be plausible in another unit, appends the hint that `fix`
   * returns for this unit. `msOfUnit`: unit of the number, in milliseconds; `undefined` if the timestamp is text.
   */
  problemOf(timeMs: number, nowMs: number, msOfUnit?: number, fix?: (unit: TimeUnit) => string): string {
    const number = msOfUnit === undefined ? Number.NaN : timeMs / msOfUnit;
    const unit = UNITS.find((one) => {
      const otherMs = Math.round(number * MS_OF_UNIT[one]);
      return MS_OF_UNIT[one] !== msOfUnit && this.isPlausible(otherMs, nowMs);
    });
    const instead =
      unit === undefined ? "check the sender's clock" : (fix?.(unit) ?? `the number appears to be in ${unit}`);
    return `${this.#descriptionOf(timeMs, nowMs)}: ${instead}`;
  }

  /** Returns the values that overwrite the previous value of their series on the platform. Ignores arrival times. */
  duplicatesIn({ length, series, timeMs, value, flags }: Columns): Duplicates | undefined {
    let { lastMs, lastValue } = this.#latest;
    let count = 0;
    let latest = 0;
    for (let at = 0; at < length; at++) {
      if ((flags[at]! & STAMPED_HERE) !== 0) continue;
      const number = series[at]!;
      if (number >= lastMs.length) ({ lastMs, lastValue } = this.#grow(number));
      if (lastMs[number] === timeMs[at] && lastValue[number] !== value[at]) {
        count++;
        latest = at;
      }
      lastMs[number] = timeMs[at]!;
      lastValue[number] = value[at]!;
    }
    return count === 0 ? undefined : { count, series: series[latest]!, timeMs: timeMs[latest]! };
  }

  #grow(series: number): ReturnType<typeof latestValues> {
    const { lastMs, lastValue } = this.#latest;
    this.#latest = latestValues(Math.max(series + 1, lastMs.length * 2));
    this.#latest.lastMs.set(lastMs);
    this.#latest.lastValue.set(lastValue);
    return this.#latest;
  }

  #descriptionOf(timeMs: number, nowMs: number): string {
    const time = Math.abs(timeMs) <= LATEST_DATE_MS ? `timestamp ${new Date(timeMs).toISOString()}` : 'timestamp';
    if (isValidTime(timeMs) && timeMs > nowMs) return `${time} is more than a day ahead`;
    if (timeMs < this.earliestMs) return `${time} is before ${dateText(this.earliestMs)}`;
    return `${time} is after the year 9999`;
  }
}

/** Allocates arrays for each series' latest timestamp and number. */
function latestValues(series: number) {
  return { lastMs: new Float64Array(series).fill(Number.NaN), lastValue: new Float64Array(series) };
}

/** Formats a time as 2000-01-01 or 2000-01-01T06:00:00.000Z. */
function dateText(timeMs: number): string {
  return new Date(timeMs).toISOString().replace('T00:00:00.000Z', '');
}
