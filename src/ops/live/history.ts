/**
 * What happened in the last 24 hours, a row a minute, and in the last ten minutes, a row a second, whoever looks: 130 kB, however
 * long the daemon runs. A reload leaves it alone; a restart forgets it, and the page says so. Times are monotonic, so that a clock that is
 * set meanwhile moves nothing.
 */

/** One row: what happened since the one before, and how it stood at its end. */
export interface HistorySample {
  /** Monotonic. */
  atMs: number;
  ingested: number;
  delivered: number;
  /** Values in the buffer. */
  backlog: number;
  /** From acceptance to the platform's word, of live values that were delivered meanwhile; NaN where none were. */
  latencyMs: number;
  /** API calls in the 60 seconds before. */
  requests: number;
  /** Resident memory, some seconds ago at most. */
  rssBytes: number;
  /** 1 where posts did not go: away, refused, signed out. */
  out: number;
}

const FIELDS = ['atMs', 'ingested', 'delivered', 'backlog', 'latencyMs', 'requests', 'rssBytes', 'out'] as const;
const SECONDS = 600;
const MINUTES = 1_440;
const SECONDS_A_MINUTE = 60;

/** Rows in the order of `HistorySample`'s members, oldest first; `null` where nothing is known. */
export type HistoryRow = (number | null)[];

export class History {
  readonly #seconds = new Rows(SECONDS);
  readonly #minutes = new Rows(MINUTES);
  #minute: HistorySample[] = [];

  /** Of a second. */
  add(sample: HistorySample): void {
    this.#seconds.add(sample);
    this.#minute.push(sample);
    if (this.#minute.length < SECONDS_A_MINUTE) return;
    this.#minutes.add(summed(this.#minute));
    this.#minute = [];
  }

  /** Seconds since the start. */
  get second(): number {
    return this.#seconds.count;
  }

  /** What came after a second that was seen; `undefined` where more came since than is kept of seconds. */
  since(second: number): { seconds: HistoryRow[]; minutes: HistoryRow[] } | undefined {
    const seconds = this.#seconds.since(second);
    const minutes = this.#minutes.since(Math.floor(second / SECONDS_A_MINUTE));
    return seconds && minutes && { seconds, minutes };
  }

  all(): { seconds: HistoryRow[]; minutes: HistoryRow[] } {
    return { seconds: this.#seconds.all(), minutes: this.#minutes.all() };
  }

  /** What it takes of the memory, whatever it holds. */
  get bytes(): number {
    return this.#seconds.bytes + this.#minutes.bytes;
  }
}

/** The last so many rows. */
class Rows {
  readonly #rows: Float64Array;
  readonly #max: number;
  count = 0;

  constructor(max: number) {
    this.#max = max;
    this.#rows = new Float64Array(max * FIELDS.length);
  }

  get bytes(): number {
    return this.#rows.byteLength;
  }

  add(sample: HistorySample): void {
    const at = (this.count++ % this.#max) * FIELDS.length;
    for (const [field, name] of FIELDS.entries()) this.#rows[at + field] = sample[name];
  }

  all(): HistoryRow[] {
    return this.#from(Math.max(0, this.count - this.#max));
  }

  since(row: number): HistoryRow[] | undefined {
    return row < this.count - this.#max || row > this.count ? undefined : this.#from(row);
  }

  #from(first: number): HistoryRow[] {
    return Array.from({ length: this.count - first }, (_, i) => {
      const at = ((first + i) % this.#max) * FIELDS.length;
      return Array.from(this.#rows.subarray(at, at + FIELDS.length), (value) =>
        Number.isFinite(value) ? Math.round(value) : null,
      );
    });
  }
}

function summed(seconds: readonly HistorySample[]): HistorySample {
  const sum = (name: keyof HistorySample) => seconds.reduce((total, sample) => total + sample[name], 0);
  const max = (name: keyof HistorySample) => Math.max(...seconds.map((sample) => sample[name]));
  const known = seconds.filter(({ latencyMs }) => Number.isFinite(latencyMs));
  return {
    atMs: seconds.at(-1)!.atMs,
    ingested: sum('ingested'),
    delivered: sum('delivered'),
    backlog: max('backlog'),
    latencyMs:
      known.length === 0 ? Number.NaN : known.reduce((total, { latencyMs }) => total + latencyMs, 0) / known.length,
    requests: max('requests'),
    rssBytes: max('rssBytes'),
    out: max('out'),
  };
}
