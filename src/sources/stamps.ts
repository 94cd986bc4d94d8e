/**
 * The one gate that gives times of arrival: to what programs push, to what a source reads, to what is imported. Two values
 * of one series never get the same time from here: the platform replaces by (series, time), and the first would be gone.
 *
 * A stamp is the wall clock's, and at least a millisecond after the series' last one. Where that lies more than a day ahead,
 * the clock was wrong then and has been put right: the clock is followed, because values stamped for years with a time that was
 * once dialled wrong would be worth nothing, and times that far ahead were given to nobody else.
 */
const MAX_STEP_BACK_MS = 24 * 3_600_000;
/** Of series ahead of the clock, so many are remembered beyond the process. */
const MAX_AHEAD = 10_000;
const FIRST_SERIES = 256;

export class Stamps {
  /** By the number of the series; 0 is none yet. */
  #last = new Float64Array(FIRST_SERIES);
  /** The latest stamp of any series that was forgotten. */
  #floor = 0;
  /** Series whose last stamp lay ahead of the clock when it was given. */
  readonly #ahead = new Set<number>();

  /** `known`: last stamps as far as the disk tells them. */
  constructor(known: Iterable<readonly [series: number, lastMs: number]> = []) {
    for (const [series, lastMs] of known) this.note(series, lastMs);
  }

  /** These numbers will stand for other series, and theirs may come again under other numbers: no stamp is given twice. */
  forget(series: Iterable<number>): void {
    for (const one of series) if (one < this.#last.length) this.#floor = Math.max(this.#floor, this.#last[one]!);
  }

  /** The time of arrival of a value of a series; `wallMs` is now. */
  next(series: number, wallMs: number): number {
    const nowMs = Math.max(0, Math.round(wallMs));
    const last = Math.max(this.#floor, series < this.#last.length ? this.#last[series]! : 0);
    if (last < nowMs || last - nowMs > MAX_STEP_BACK_MS) {
      this.#set(series, nowMs);
      return nowMs;
    }
    this.#set(series, last + 1);
    this.#ahead.add(series);
    return last + 1;
  }

  /** A stamp that was given before. */
  note(series: number, stampMs: number): void {
    if (series >= this.#last.length || this.#last[series]! < stampMs) this.#set(series, stampMs);
  }

  /** Last stamps that lie ahead of the clock, which a restart must not give again; the others are told by the clock itself. */
  ahead(wallMs: number): [series: number, lastMs: number][] {
    const found: [number, number][] = [];
    for (const series of this.#ahead) {
      const last = this.#last[series]!;
      if (last > wallMs && found.length < MAX_AHEAD) found.push([series, last]);
      else if (last <= wallMs) this.#ahead.delete(series);
    }
    return found;
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
