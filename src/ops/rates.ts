/** Counters that only grow, as they stand at one moment. */
export interface Counters {
  ingested: number;
  delivered: number;
}

/** Values a minute, over the last minute. */
export interface RatesNow {
  ingestedPerMinute: number;
  deliveredPerMinute: number;
}

const WINDOW_MS = 60_000;
/** Below this a rate says nothing: one commit more or less would double it. */
const MIN_MS = 1_000;

/** Rates for people: differences of counters over the last minute, since the start where that is shorter. */
export class Rates {
  readonly #samples: (Counters & { atMs: number })[];

  constructor(nowMs: number) {
    this.#samples = [{ atMs: nowMs, ingested: 0, delivered: 0 }];
  }

  /** To be called every few seconds; keeps what lies within the window, and the one sample before it. */
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
  /** Between two posts of an asset. */
  intervalMs: number;
}

/** For the commit before a post and the platform's answer to it, on a slow link. */
const POSTED_WITHIN_MS = 30_000;

/**
 * When what waits will be gone at these rates, in seconds: 0 where nothing waits longer than a gateway that keeps up lets it, `null`
 * where it does not shrink. What is taken in meanwhile has to be delivered too.
 */
export function drainSeconds({ values, oldestAgeMs, intervalMs }: Waiting, rates: RatesNow): number | null {
  // A value is live until twice the interval after its acceptance.
  if (values === 0 || oldestAgeMs <= 2 * intervalMs + POSTED_WITHIN_MS) return 0;
  const netPerMinute = rates.deliveredPerMinute - rates.ingestedPerMinute;
  return netPerMinute > 0 ? Math.ceil((values / netPerMinute) * 60) : null;
}

/** What the buffer takes on the disk, and may take. */
export interface Room {
  values: number;
  bytes: number;
  /** 0 is no bound. */
  maxBytes: number;
  /** On the file system, above what has to stay free. */
  freeBytes: number;
}

/** Packed, with what stands around it; the first values cost more, which says nothing about the next. */
const BYTES_A_VALUE = 8;
const FEW_VALUES = 100_000;

/** How long the space lasts at these rates, in seconds, about; `null` where the buffer does not grow. */
export function lastsSeconds({ values, bytes, maxBytes, freeBytes }: Room, rates: RatesNow): number | null {
  const netPerMinute = rates.ingestedPerMinute - rates.deliveredPerMinute;
  if (netPerMinute <= 0) return null;
  const left = Math.max(0, maxBytes > 0 ? Math.min(maxBytes - bytes, freeBytes) : freeBytes);
  const bytesAValue = values > FEW_VALUES ? bytes / values : BYTES_A_VALUE;
  return Math.round((left / bytesAValue / netPerMinute) * 60);
}
