/**
 * Corrects times that the agent gave while the machine's clock could not be trusted (a boot in 1970, until NTP responds). They are
 * corrected when their values are posted, once a time can be trusted: by the offset between wall clock and monotonic clock at
 * the beginning of the run, and the true offset. `Stamps` gives every doubtful time of a run by the first of the two, so a
 * wall clock that is set several times needs no other offset.
 *
 * What is trusted moves a little: the platform's `Date` has whole seconds, and NTP knows better. It is followed only where it has moved
 * further than that: corrected by two measures, two values of a series could leave with one time, of which the platform keeps one value, and
 * what is posted again would stand there under two times. For the same reason the first measure of a boot is stored before a value
 * leaves by it: a later run, of this boot or the next, corrects by it too. For values of a boot without a measure the offset is not
 * known: their times are posted unchanged, and counted.
 */
import { EARLIEST_TRUSTED_MS } from '../../base/clock.ts';
import { STAMPED_HERE } from '../format/value-columns.ts';

/** A trusted time that is this far from the one before is of another clock. */
const SAME_CLOCK_MS = 10_000;

export interface StampedValues {
  count: number;
  timeMs: Float64Array;
  flags: Uint8Array;
}

/** Of the note that keeps a measure. */
export const MEASURE_NOTE = 'stamps/measure';

/** The trusted time minus the monotonic clock, as a run knew it. */
export interface Measure {
  run: number;
  offsetMs: number;
}

/** `undefined` where it does not read. */
export function readMeasure(text: string | undefined): Measure | undefined {
  const [run, offsetMs] = (text ?? '').split(' ').map(Number);
  return run && Number.isFinite(offsetMs) ? { run, offsetMs: offsetMs! } : undefined;
}

export class StampCorrection {
  /** Wall clock minus monotonic clock at the beginning of each run since the machine's start, or of an earlier start with its measure. */
  readonly #offsets = new Map<number, { offsetMs: number; measureMs?: number }>();
  #offsetHere = Number.NaN;
  #run = 0;
  #isSaved = true;
  /** The trusted time minus the monotonic clock, as corrections know it. */
  #trustedOffsetMs = Number.NaN;

  /** `measureMs`: of an earlier start of the machine. */
  noteRun(run: number, wallMs: number, monotonicMs: number, measureMs?: number): void {
    const offsetMs = wallMs - monotonicMs;
    this.#offsets.set(run, measureMs === undefined ? { offsetMs } : { offsetMs, measureMs });
  }

  /** The run that goes on from here; `measureMs`: by which an earlier run since the machine's start has corrected. */
  open(run: number, wallMs: number, monotonicMs: number, measureMs?: number): void {
    this.noteRun(run, wallMs, monotonicMs);
    this.#run = run;
    this.#offsetHere = wallMs - monotonicMs;
    this.#trustedOffsetMs = measureMs ?? Number.NaN;
  }

  /** The measure as text, if it is to be stored before a value leaves by it. Calls `save` once for each measure. */
  saveMeasure(save: (text: string) => void): void {
    if (this.#isSaved) return;
    save(`${this.#run} ${this.#trustedOffsetMs}`);
    this.#isSaved = true;
  }

  /**
   * A value of another run that an operator moves among those of this one, whose clock would be taken for its own: with the time that this
   * run's clock would have shown, or, where nobody knows the other (`undefined`, or of an earlier start), as one that is never corrected.
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
   * The times of values as they should leave: the same array where nothing is to correct. `trustedOffsetMs` is the
   * trusted time minus the monotonic clock now; `undefined` leaves everything as it is.
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
