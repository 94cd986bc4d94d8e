/**
 * Corrects times that the agent assigned while the system clock was not trusted (a boot in 1970, until NTP
 * synchronizes). They are corrected when their values are posted. The correction is the difference between the true
 * offset of the two clocks, wall and monotonic, and the offset at the start of the run. `Stamps` uses the latter for
 * all doubtful times of a run, so setting the wall clock several times does not matter.
 *
 * Trusted time varies slightly: the platform's `Date` has a resolution of one second. A new measurement is adopted only
 * after a larger change. Otherwise, two values of a series could have the same time, or a repeated post could contain a
 * different time. For the same reason, the first measurement after a boot is stored before a value is posted with it,
 * and later runs use it. Times from a boot without a measurement are posted unchanged and counted.
 */
import { EARLIEST_TRUSTED_MS } from '../../base/clock.ts';
import { STAMPED_HERE } from '../format/value-columns.ts';

/** Trusted times that differ by less than this are considered to be from the same clock. */
const SAME_CLOCK_MS = 10_000;

export interface StampedValues {
  count: number;
  timeMs: Float64Array;
  flags: Uint8Array;
}

/** Name of the note that contains the measurement. */
export const MEASURE_NOTE = 'stamps/measure';

/** Trusted time minus monotonic clock, as measured by a run. */
export interface Measure {
  run: number;
  offsetMs: number;
}

/** Returns undefined if the note is unreadable. */
export function readMeasure(text: string | undefined): Measure | undefined {
  const [run, offsetMs] = (text ?? '').split(' ').map(Number);
  return run && Number.isFinite(offsetMs) ? { run, offsetMs: offsetMs! } : undefined;
}

export class StampCorrection {
  /** Wall clock minus monotonic clock at the start of each run. Runs from earlier boots also have a measurement. */
  readonly #offsets = new Map<number, { offsetMs: number; measureMs?: number }>();
  #offsetHere = Number.NaN;
  #run = 0;
  #isSaved = true;
  /** Difference between trusted time and monotonic clock that is used for corrections. */
  #trustedOffsetMs = Number.NaN;

  /** `measureMs` is the measurement of an earlier boot. */
  noteRun(run: number, wallMs: number, monotonicMs: number, measureMs?: number): void {
    const offsetMs = wallMs - monotonicMs;
    this.#offsets.set(run, measureMs === undefined ? { offsetMs } : { offsetMs, measureMs });
  }

  /** Starts the current run. `measureMs` is the clock correction measured by an earlier run since boot. */
  open(run: number, wallMs: number, monotonicMs: number, measureMs?: number): void {
    this.noteRun(run, wallMs, monotonicMs);
    this.#run = run;
    this.#offsetHere = wallMs - monotonicMs;
    this.#trustedOffsetMs = measureMs ?? Number.NaN;
  }

  /** Calls `save` with the measurement if it is not stored yet. */
  saveMeasure(save: (text: string) => void): void {
    if (this.#isSaved) return;
    save(`${this.#run} ${this.#trustedOffsetMs}`);
    this.#isSaved = true;
  }

  /**
   * Adjusts the time of a value from another run that an operator moves into this run. If the offset of the run is
   * unknown (`undefined`, or an earlier boot without a measurement), no later correction applies to the value.
   */
  adopt(timeMs: number, flags: number, run: number | undefined): { timeMs: number; flags: number } {
    if (!isDoubtful(timeMs, flags)) return { timeMs, flags };
    const known = run === undefined ? undefined : this.#offsets.get(run);
    if (known === undefined) return { timeMs, flags: flags & ~STAMPED_HERE };
    const { offsetMs, measureMs } = known;
    if (measureMs === undefined) return { timeMs: Math.round(timeMs + this.#offsetHere - offsetMs), flags };
    return { timeMs: Math.round(timeMs + measureMs - offsetMs), flags: flags & ~STAMPED_HERE };
  }

  /**
   * Returns the times to post; the same array if no time changes. `trustedOffsetMs` is the trusted time minus the
   * monotonic clock. If it is `undefined`, times are not changed.
   */
  correct(
    values: StampedValues,
    run: number,
    trustedOffsetMs: number | undefined,
  ): { timeMs: Float64Array; corrected: number; left: number } {
    const doubtful = doubtfulStamps(values);
    if (doubtful === 0) return { timeMs: values.timeMs, corrected: 0, left: 0 };
    const known = this.#offsets.get(run);
    const trusted = known?.measureMs ?? (trustedOffsetMs === undefined ? undefined : this.#steady(trustedOffsetMs));
    if (known === undefined || trusted === undefined) return { timeMs: values.timeMs, corrected: 0, left: doubtful };
    const timeMs = values.timeMs.slice(0, values.count);
    for (let i = 0; i < values.count; i++) {
      if (isDoubtful(values.timeMs[i]!, values.flags[i]!))
        timeMs[i] = Math.round(timeMs[i]! + trusted - known.offsetMs);
    }
    return { timeMs, corrected: doubtful, left: 0 };
  }

  #steady(trustedOffsetMs: number): number {
    const isSame = Math.abs(trustedOffsetMs - this.#trustedOffsetMs) < SAME_CLOCK_MS;
    if (!isSame) {
      this.#trustedOffsetMs = trustedOffsetMs;
      this.#isSaved = false;
    }
    return this.#trustedOffsetMs;
  }
}

const isDoubtful = (timeMs: number, flags: number): boolean =>
  (flags & STAMPED_HERE) !== 0 && timeMs < EARLIEST_TRUSTED_MS;

function doubtfulStamps({ count: length, timeMs, flags }: StampedValues): number {
  let count = 0;
  for (let i = 0; i < length; i++) if (isDoubtful(timeMs[i]!, flags[i]!)) count++;
  return count;
}
