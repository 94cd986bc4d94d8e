/**
 * The one gate that gives times of arrival: to what programs push, to what a source reads, to what is imported. Two values
 * of one series never get the same time from here: the platform replaces by (series, time), and the first would be gone.
 *
 * A stamp is the wall clock's, and at least a millisecond after the series' last one. Where that lies more than a day ahead,
 * the clock was wrong then and has been put right: the clock is followed, because values stamped for years with a time that was
 * once dialled wrong would be worth nothing, and times that far ahead were given to nobody else.
 *
 * A wall clock that cannot be trusted (before 2026) is read once, when the store opens: until it can be trusted, stamps are that
 * reading plus the monotonic time since. So all doubtful stamps of a run come from one clock, and one offset corrects them
 * (`StampCorrection`), although the wall clock may be set several times.
 *
 * So over a restart: each commit carries the latest stamp that was given, and a clock that was set back meanwhile goes on behind
 * it, for every series, because keeping the last stamp of each would cost a write a series and commit.
 */
import type { Clock } from '../base/clock.ts';
import type { GroupMember } from '../config/tags.ts';
import { isTrusted } from './ahead-times.ts';
import { ownTime } from './group-times.ts';

const MAX_STEP_BACK_MS = 24 * 3_600_000;
/** Of series ahead of the clock, so many are remembered beyond the process. */
const MAX_AHEAD = 10_000;
const FIRST_SERIES = 256;

/** What of an earlier process's stamps counts. */
export interface KeptStamps {
  /** The latest stamp of the series that were not ahead of the clock. */
  latestMs: number;
  /** Last stamps that lay ahead of the clock when they were written down. */
  ahead: readonly (readonly [series: number, lastMs: number])[];
}

export class Stamps {
  /** By the number of the series; 0 is none yet. */
  #last = new Float64Array(FIRST_SERIES);
  /** The latest stamp of any series that was forgotten, or of an earlier process. */
  #floor: number;
  /** The latest stamp that was given, here or by an earlier process, but for those of series ahead of the clock. */
  #latest: number;
  /** Series whose last stamp lay ahead of the clock when it was given. */
  readonly #ahead = new Set<number>();

  readonly #clockOffsetMs: number | undefined;

  /**
   * `kept`: stamps of an earlier process, as far as they are on disk. `clockOffsetMs`: wall clock minus monotonic clock of this
   * run, as the store has it; without it, every wall clock is believed.
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

  /** The time of arrival of values that arrive now. */
  nowMs(clock: Pick<Clock, 'wallMs' | 'monotonicMs'>): number {
    const wallMs = clock.wallMs();
    const isBelieved = isTrusted(wallMs) || this.#clockOffsetMs === undefined;
    return Math.max(0, Math.round(isBelieved ? wallMs : this.#clockOffsetMs + clock.monotonicMs()));
  }

  /** What a restart must not give again, whatever the clock says then. */
  kept(wallMs: number): KeptStamps {
    const ahead: [number, number][] = [];
    for (const series of this.#ahead) {
      const last = this.#last[series]!;
      if (last > wallMs && ahead.length < MAX_AHEAD) ahead.push([series, last]);
      else {
        // The clock has come so far by now, or there are too many to tell them apart.
        this.#latest = Math.max(this.#latest, last);
        if (last <= wallMs) this.#ahead.delete(series);
      }
    }
    return { latestMs: this.#latest, ahead };
  }

  /** These numbers will stand for other series, and theirs may come again under other numbers: no stamp is given twice. */
  forget(series: Iterable<number>): void {
    for (const one of series) if (one < this.#last.length) this.#floor = Math.max(this.#floor, this.#last[one]!);
  }

  /** The time of arrival of a value of a series; `wallMs` is now. A member of a group gets its own milliseconds. */
  next(series: number, wallMs: number, member?: GroupMember): number {
    const nowMs = Math.max(0, Math.round(wallMs));
    const floor = this.#floor - nowMs > MAX_STEP_BACK_MS ? 0 : this.#floor;
    const last = Math.max(floor, series < this.#last.length ? this.#last[series]! : 0);
    const isBehind = last < nowMs || last - nowMs > MAX_STEP_BACK_MS;
    const stampMs = ownTime(isBehind ? nowMs : last + 1, member);
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
