import { memoryLimitBytes } from '../base/memory-limit.ts';
import type { ValueStoreOptions } from '../buffer/store-facts.ts';
import type { Settings } from '../config/settings.ts';
import type { Holder } from '../store/state-lock.ts';
import type { StoreThreadOptions } from '../store/store-api.ts';
import type { UplinkOptions } from '../uplink/uplink.ts';

/** What of agent.env says how fast and how much: taken at the start and with each reload. */

export function uplinkPace(settings: Settings): UplinkOptions {
  const { postIntervalMs, postMaxValues, postMaxBytes, postConcurrency, drainOrder, backfillValuesPerSecond } =
    settings;
  return {
    postIntervalMs,
    postMaxValues,
    postMaxBytes,
    success: settings.postSuccess,
    concurrency: postConcurrency,
    drainOrder,
    backfillValuesPerSecond,
  };
}

export function commitPace(settings: Settings): { intervalMs: number; values: number } {
  return { intervalMs: settings.commitIntervalMs, values: settings.commitValues };
}

/** A value is live until twice POST_INTERVAL after its acceptance; the log holds the live ones. */
const LIVE_INTERVALS = 2;
/** "Some seconds" at least and at most, whatever POST_INTERVAL is: the log must stay short. */
const MIN_FLUSH_MS = 2_000;
const MAX_FLUSH_MS = 120_000;
/** So many values at most stand in the log, and with them in memory. */
const FLUSH_VALUES = 128 * 1024;

/** What a series costs, both threads together, and what of the memory all of them may. */
const SERIES_BYTES = 400;
const SERIES_SHARE = 0.1;

/** How many series programs may open: MAX_SERIES, or by the memory; never more than a start could load. */
export function maxSeries({ maxSeries }: Settings, limitBytes = memoryLimitBytes()): number {
  const byMemory = Math.floor((limitBytes * SERIES_SHARE) / SERIES_BYTES);
  return Math.min(maxSeries ?? byMemory, maxSeriesAtStart(limitBytes));
}

/**
 * A start may load more than programs may open unless MAX_SERIES says so, and what was let in under a larger bound goes on as ever.
 * MAX_SERIES itself does not count here: a daemon that loads more than it has memory for is ended for it, and so is the next one.
 */
const START_SHARE = 1.2;

/** How many series a start loads: beyond, it drains first (`drainFirst`). */
function maxSeriesAtStart(limitBytes = memoryLimitBytes()): number {
  return Math.floor((START_SHARE * limitBytes * SERIES_SHARE) / SERIES_BYTES);
}

/** What the store thread opens. Verbs load everything: they have no unit that bounds their memory. */
export function storeThreadOptions(settings: Settings, holder: Holder = 'daemon'): StoreThreadOptions {
  const maxLoadedSeries = holder === 'daemon' ? maxSeriesAtStart() : undefined;
  return { stateDir: settings.stateDir, holder, values: { ...storeOptions(settings), maxLoadedSeries } };
}

export function storeOptions(settings: Settings): ValueStoreOptions {
  return {
    bounds: {
      maxBytes: settings.bufferMaxBytes,
      maxAgeMs: settings.bufferMaxAgeMs,
      minFree: settings.bufferMinFree,
      full: settings.bufferFull,
    },
    flushAfterMs: Math.min(MAX_FLUSH_MS, Math.max(MIN_FLUSH_MS, LIVE_INTERVALS * settings.postIntervalMs)),
    flushValues: FLUSH_VALUES,
  };
}
