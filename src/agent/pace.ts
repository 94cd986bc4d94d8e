import { memoryLimitBytes } from '../base/memory-limit.ts';
import type { ValueStoreOptions } from '../buffer/store-facts.ts';
import type { Settings } from '../config/settings.ts';
import type { Holder } from '../store/state-lock.ts';
import type { StoreThreadOptions } from '../store/store-api.ts';

/** Intervals and limits of the stores, derived from agent.env at startup and on each reload. */

export function commitPace(settings: Settings): { intervalMs: number; values: number } {
  return { intervalMs: settings.commitIntervalMs, values: settings.commitValues };
}

/** A value is live for twice POST_INTERVAL after acceptance. The log contains the live values. */
const LIVE_INTERVALS = 2;
/** Limits of the flush interval, regardless of POST_INTERVAL. The upper limit keeps the log short. */
const MIN_FLUSH_MS = 2_000;
const MAX_FLUSH_MS = 120_000;
/** Maximum number of values in the log, and therefore in memory. */
const FLUSH_VALUES = 128 * 1024;

/** Memory per series in both threads, in bytes, and the share of memory for all series. */
const SERIES_BYTES = 400;
const SERIES_SHARE = 0.1;

/**
 * Returns the number of series that programs can create: MAX_SERIES or a limit derived from memory, but never more than
 * startup can load.
 */
export function maxSeries({ maxSeries }: Settings): number {
  const limitBytes = memoryLimitBytes();
  const byMemory = Math.floor((limitBytes * SERIES_SHARE) / SERIES_BYTES);
  return Math.min(maxSeries ?? byMemory, maxSeriesAtStart(limitBytes));
}

/**
 * Startup can load more series than programs can create, so that series accepted under an earlier limit remain usable.
 * MAX_SERIES is ignored here, because an agent that exceeds its memory limit would be killed on every startup.
 */
const START_SHARE = 1.2;

/**
 * Returns the maximum number of series that are loaded at startup. If there are more, the backlog is drained first
 * (`drainFirst`).
 */
function maxSeriesAtStart(limitBytes = memoryLimitBytes()): number {
  return Math.floor((START_SHARE * limitBytes * SERIES_SHARE) / SERIES_BYTES);
}

/** Returns the options of the store thread. Commands load all series, because their memory is not limited by a unit. */
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
