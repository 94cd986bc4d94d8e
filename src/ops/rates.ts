/** Values of monotonically increasing counters at one moment. */
export interface Counters {
  ingested: number;
  delivered: number;
}

/** Values per minute, averaged over the last minute. */
export interface RatesNow {
  ingestedPerMinute: number;
  deliveredPerMinute: number;
}

const WINDOW_MS = 60_000;
/** Minimum duration for a meaningful rate. In a shorter interval, a single commit would double the rate. */
const MIN_MS = 1_000;

/** Computes rates from counter differences over the last minute, or since startup if that is shorter. */
export class Rates {
  readonly #samples: (Counters & { atMs: number })[];

  constructor(nowMs: number) {
    this.#samples = [{ atMs: nowMs, ingested: 0, delivered: 0 }];
  }

  /** Adds a sample. Called every few seconds. Keeps the samples within the window and the one before it. */
  sample(nowMs: number, counters: Counters): void {
    this.#samples.push({ atMs: nowMs, ...counters });
    while (this.#samples.length > 1 && this.#samples[1]!.atMs <= nowMs - WINDOW_MS) this.#samples.shift();
  }

  at(nowMs: number, now: Counters): RatesNow {
    const from = this.#samples[0]!;
    const minutes = Math.max(MIN_MS, nowMs - from.atMs) / 60_000;
    return {
      ingestedPerMinute: Math.round((now.ingested - from.ingested) / minutes),
      deliveredPerMinute: Math.round((now.delivered - from.delivered) / minutes),
    };
  }
}

export interface Waiting {
  values: number;
  oldestAgeMs: number;
  /** Interval between posts of an asset, in milliseconds. */
  intervalMs: number;
}

/** Allowance for the commit before a post and the response on a slow link. */
const POSTED_WITHIN_MS = 30_000;

/**
 * Returns the number of seconds until the backlog is delivered at the current rates, including values accepted in the
 * meantime. Returns 0 if the delay is normal, or `null` if the backlog does not shrink.
 */
export function drainSeconds({ values, oldestAgeMs, intervalMs }: Waiting, rates: RatesNow): number | null {
  // A value is live for twice the interval after it is accepted.
  if (values === 0 || oldestAgeMs <= 2 * intervalMs + POSTED_WITHIN_MS) return 0;
  const netPerMinute = rates.deliveredPerMinute - rates.ingestedPerMinute;
  return netPerMinute > 0 ? Math.ceil((values / netPerMinute) * 60) : null;
}

/** Current and maximum disk space of the buffer. */
export interface Room {
  values: number;
  bytes: number;
  /** 0 means no limit. */
  maxBytes: number;
  /** Free space above the reserve, in bytes. */
  freeBytes: number;
}

/**
 * Average size of a packed value with overhead, in bytes. Used while the buffer contains few values, which are larger
 * and not representative.
 */
const BYTES_A_VALUE = 8;
const FEW_VALUES = 100_000;

/**
 * Returns the approximate number of seconds until the space is used up at the current rates, or `null` if the buffer
 * does not grow.
 */
export function lastsSeconds({ values, bytes, maxBytes, freeBytes }: Room, rates: RatesNow): number | null {
  const netPerMinute = rates.ingestedPerMinute - rates.deliveredPerMinute;
  if (netPerMinute <= 0) return null;
  const left = Math.max(0, maxBytes > 0 ? Math.min(maxBytes - bytes, freeBytes) : freeBytes);
  const bytesAValue = values > FEW_VALUES ? bytes / values : BYTES_A_VALUE;
  return Math.round((left / bytesAValue / netPerMinute) * 60);
}
