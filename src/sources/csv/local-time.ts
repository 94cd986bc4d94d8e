/** Local times of a zone as the moments that they are. Pure. */

/** What a clock on the wall shows, as milliseconds since 1970 if the zone were UTC. */
export interface Resolved {
  timeMs: number;
  /** `twice`: the hour came twice that night; `skipped`: it did not come at all. */
  odd?: 'twice' | 'skipped';
}

const DAY_MS = 86_400_000;
/** No zone changes its offset within less. */
const STEP_MS = 900_000;
const MAX_REMEMBERED = 10_000;

export class LocalTime {
  readonly #format: Intl.DateTimeFormat;
  readonly #offsets = new Map<number, number>();

  /** Throws `RangeError` where there is no such zone. */
  constructor(zone: string) {
    this.#format = new Intl.DateTimeFormat('en-US', {
      timeZone: zone,
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    });
  }

  /**
   * The moment at which the zone's clocks show `wallMs`. Where they do so twice, the first one that lies behind `afterMs` (with
   * `orAt`: at or behind it), the moment of the row before: so an hour that comes twice is read in the order of the file. Where
   * they do so never, as a clock that was not put forward would mean it.
   */
  resolve(wallMs: number, afterMs = Number.NEGATIVE_INFINITY, orAt = false): Resolved {
    const offsets = [this.#offset(wallMs - DAY_MS), this.#offset(wallMs + DAY_MS)];
    const moments = [...new Set(offsets)]
      .map((offset) => wallMs - offset)
      .filter((ms) => ms + this.#offset(ms) === wallMs);
    if (moments.length === 0) return { timeMs: wallMs - offsets[0]!, odd: 'skipped' };
    if (moments.length === 1) return { timeMs: moments[0]! };
    moments.sort((one, other) => one - other);
    const fits = moments.find((ms) => ms > afterMs || (orAt && ms === afterMs));
    return { timeMs: fits ?? moments[0]!, odd: 'twice' };
  }

  /** Milliseconds to add to a moment for what the clocks show. */
  #offset(timeMs: number): number {
    const step = Math.floor(timeMs / STEP_MS) * STEP_MS;
    const known = this.#offsets.get(step);
    if (known !== undefined) return known;
    const part: Record<string, number> = {};
    for (const { type, value } of this.#format.formatToParts(step)) part[type] = Number(value);
    const { year, month, day, hour, minute, second } = part as Record<string, number>;
    const offset = Date.UTC(year!, month! - 1, day, hour, minute, second) - step;
    if (this.#offsets.size >= MAX_REMEMBERED) this.#offsets.clear();
    this.#offsets.set(step, offset);
    return offset;
  }
}
