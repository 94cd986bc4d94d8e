/**
 * Rule for the times that values contain. While the gateway clock is trusted, a time before EARLIEST_TIME or more than
 * a day ahead is implausible: the clock of the sender is not set, or the time has another unit. The arrival time
 * replaces it if the value was read or subscribed live. Otherwise, the arrival time would be wrong as well, so pushed,
 * historical and retained values and rows of files are rejected.
 *
 * The platform keeps one value per series and time. A value with the time of the previous value of its series, but
 * another number, is stored and reported. Only the latest value of each series is compared.
 */
import { type Columns, STAMPED_HERE } from '../../buffer/format/value-columns.ts';
import { isTrusted } from './stamps.ts';
import { isValidTime } from './text-parsers.ts';

/** Default of EARLIEST_TIME. */
const EARLIEST_MS = Date.UTC(2000, 0, 1);
const DAY_MS = 86_400_000;
/** Latest time that `Date` can format. */
const LATEST_DATE_MS = 8.64e15;

export type TimeUnit = 's' | 'ms' | 'us' | 'ns';

/** Milliseconds per unit. */
export const MS_OF_UNIT: Readonly<Record<TimeUnit, number>> = { s: 1_000, ms: 1, us: 1e-3, ns: 1e-6 };

const FIRST_SERIES = 256;

/** Values that replace the previous value of their series at the platform, and the latest one of them. */
export interface Overwriting {
  count: number;
  series: number;
  timeMs: number;
}

export class ValueTimes {
  /** EARLIEST_TIME, in milliseconds since 1970. */
  earliestMs: number;
  /** Time and number of the latest value by series. */
  #lastMs = new Float64Array(FIRST_SERIES).fill(Number.NaN);
  #lastValue = new Float64Array(FIRST_SERIES);

  constructor(earliestMs = EARLIEST_MS) {
    this.earliestMs = earliestMs;
  }

  /** `nowMs`: current wall clock time. If it is not trusted, any time from 1970 to 9999 is plausible. */
  isPlausible(timeMs: number, nowMs: number): boolean {
    if (!isValidTime(timeMs)) return false;
    return !isTrusted(nowMs) || (timeMs >= this.earliestMs && timeMs <= nowMs + DAY_MS);
  }

  /** Returns the unit in which a number would be a plausible time. `timeMs`: the number, read in units of `msOfUnit`. */
  fittingUnit(timeMs: number, msOfUnit: number, nowMs: number): TimeUnit | undefined {
    const units = Object.keys(MS_OF_UNIT) as TimeUnit[];
    return units.find((unit) => {
      const otherMs = Math.round((timeMs / msOfUnit) * MS_OF_UNIT[unit]);
      return MS_OF_UNIT[unit] !== msOfUnit && this.isPlausible(otherMs, nowMs);
    });
  }

  /**
   * Describes an implausible time. If its number would be plausible in another unit, appends the correction that `fix`
   * returns for this unit. `msOfUnit`: unit of the number, in milliseconds; `undefined` if the time is not a number.
   */
  problemOf(timeMs: number, nowMs: number, msOfUnit?: number, fix?: (unit: TimeUnit) => string): string {
    const unit = msOfUnit === undefined ? undefined : this.fittingUnit(timeMs, msOfUnit, nowMs);
    const instead =
      unit === undefined ? "check the sender's clock" : (fix?.(unit) ?? `the number appears to be in ${unit}`);
    return `${this.#descriptionOf(timeMs, nowMs)}: ${instead}`;
  }

  /** Compares values that are about to be stored with the previous ones of their series. Ignores arrival times. */
  overwritingIn({ length, series, timeMs, value, flags }: Columns): Overwriting | undefined {
    let [lastMs, lastValue] = [this.#lastMs, this.#lastValue];
    let count = 0;
    let latest = 0;
    for (let at = 0; at < length; at++) {
      if ((flags[at]! & STAMPED_HERE) !== 0) continue;
      const number = series[at]!;
      if (number >= lastMs.length) [lastMs, lastValue] = this.#grow(number);
      if (lastMs[number] === timeMs[at] && lastValue[number] !== value[at]) {
        count++;
        latest = at;
      }
      lastMs[number] = timeMs[at]!;
      lastValue[number] = value[at]!;
    }
    return count === 0 ? undefined : { count, series: series[latest]!, timeMs: timeMs[latest]! };
  }

  #grow(series: number): [lastMs: Float64Array<ArrayBuffer>, lastValue: Float64Array<ArrayBuffer>] {
    const length = Math.max(series + 1, this.#lastMs.length * 2);
    const [lastMs, lastValue] = [this.#lastMs, this.#lastValue];
    this.#lastMs = new Float64Array(length).fill(Number.NaN, lastMs.length);
    this.#lastValue = new Float64Array(length);
    this.#lastMs.set(lastMs);
    this.#lastValue.set(lastValue);
    return [this.#lastMs, this.#lastValue];
  }

  #descriptionOf(timeMs: number, nowMs: number): string {
    const time = Math.abs(timeMs) <= LATEST_DATE_MS ? `timestamp ${new Date(timeMs).toISOString()}` : 'timestamp';
    if (isValidTime(timeMs) && timeMs > nowMs) return `${time} is more than a day ahead`;
    if (timeMs < this.earliestMs) return `${time} is before ${dateText(this.earliestMs)}`;
    return `${time} is after the year 9999`;
  }
}

/** Returns 2000-01-01, or 2000-01-01T06:00:00.000Z. */
function dateText(timeMs: number): string {
  return new Date(timeMs).toISOString().replace('T00:00:00.000Z', '');
}
