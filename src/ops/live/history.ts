/**
 * History of the last 24 hours by minute and the last ten minutes by second, in 130 kB of memory. Survives a reload but
 * not a restart. Times are monotonic, so that clock changes have no effect.
 */

import type { Clock } from '../../base/clock.ts';

/** Changes since the previous sample, and the current state. */
export interface HistorySample {
  /** Monotonic time in milliseconds. */
  atMs: number;
  ingested: number;
  delivered: number;
  /** Number of buffered values. */
  backlog: number;
  /**
   * Time from ingestion to the platform response for live values delivered since the previous sample, in
   * milliseconds; NaN if there were none.
   */
  latencyMs: number;
  /** Number of API calls in the previous 60 seconds. */
  requests: number;
  /** Resident memory in bytes, measured at most a few seconds ago. */
  rssBytes: number;
  /** 1 if posting was not possible: platform unavailable, posts rejected or signed out. */
  out: number;
}

const FIELDS = ['atMs', 'ingested', 'delivered', 'backlog', 'latencyMs', 'requests', 'rssBytes', 'out'] as const;
const SECONDS = 600;
const MINUTES = 1_440;
const SECONDS_PER_MINUTE = 60;

/** Rows in the member order of `HistorySample`, oldest first; `null` means unknown. */
export type HistoryRow = (number | null)[];

export class History {
  readonly #seconds = new Rows(SECONDS);
  readonly #minutes = new Rows(MINUTES);
  #minute: HistorySample[] = [];

  /** Adds the sample of one second. */
  add(sample: HistorySample): void {
    this.#seconds.add(sample);
    this.#minute.push(sample);
    if (this.#minute.length < SECONDS_PER_MINUTE) return;
    this.#minutes.add(summed(this.#minute));
    this.#minute = [];
  }

  /** Number of seconds since startup. */
  get second(): number {
    return this.#seconds.count;
  }

  /** Returns the rows after a second, or `undefined` if some of them are no longer stored. */
  since(second: number): { seconds: HistoryRow[]; minutes: HistoryRow[] } | undefined {
    const seconds = this.#seconds.since(second);
    const minutes = this.#minutes.since(Math.floor(second / SECONDS_PER_MINUTE));
    return seconds && minutes && { seconds, minutes };
  }

  all(): { seconds: HistoryRow[]; minutes: HistoryRow[] } {
    return { seconds: this.#seconds.all(), minutes: this.#minutes.all() };
  }

  /** Memory use in bytes, regardless of the content. */
  get bytes(): number {
    return this.#seconds.bytes + this.#minutes.bytes;
  }
}

/** Ring buffer of rows. */
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

/** Current state, with counters since startup. */
export interface Standing {
  ingested: number;
  delivered: number;
  backlog: number;
  requests: number;
  isOut: boolean;
}

const SAMPLE_INTERVAL_MS = 1_000;
/** Interval between memory readings, in seconds, because the kernel generates the file on each read. */
const MEMORY_INTERVAL_S = 10;

/** Records a history row every second. */
export class Sampler {
  readonly history = new History();
  readonly #read: () => Standing;
  readonly #clock: Clock;
  readonly #resident: () => number;
  #before = { ingested: 0, delivered: 0 };
  #waited = { sumMs: 0, count: 0 };
  #cancel: () => void = () => {};
  #rssBytes = 0;

  constructor(read: () => Standing, clock: Clock, resident = () => process.memoryUsage.rss()) {
    this.#read = read;
    this.#clock = clock;
    this.#resident = resident;
  }

  start(): void {
    this.#cancel = this.#clock.after(SAMPLE_INTERVAL_MS, () => {
      this.#sample();
      this.start();
    });
  }

  stop(): void {
    this.#cancel();
  }

  /** Records the delivery of live values and how long the oldest one waited. */
  delivered(waitedMs: number): void {
    this.#waited.sumMs += waitedMs;
    this.#waited.count++;
  }

  #sample(): void {
    const { ingested, delivered, backlog, requests, isOut } = this.#read();
    const { sumMs, count } = this.#waited;
    this.history.add({
      atMs: this.#clock.monotonicMs(),
      ingested: ingested - this.#before.ingested,
      delivered: delivered - this.#before.delivered,
      backlog,
      latencyMs: count === 0 ? Number.NaN : sumMs / count,
      requests,
      rssBytes: this.history.second % MEMORY_INTERVAL_S === 0 ? this.#residentBytes() : this.#rssBytes,
      out: isOut ? 1 : 0,
    });
    this.#before = { ingested, delivered };
    this.#waited = { sumMs: 0, count: 0 };
  }

  /** Reads the resident memory from a file. If no file can be opened, returns the previous value. */
  #residentBytes(): number {
    try {
      this.#rssBytes = this.#resident();
    } catch {
      // The listeners report that too many files are open (EMFILE).
    }
    return this.#rssBytes;
  }
}
