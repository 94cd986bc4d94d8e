import type { ValueStoreOptions } from '../buffer/store-facts.ts';
import type { Settings } from '../config/settings.ts';
import type { UplinkOptions } from '../uplink/uplink.ts';
import type { StoreThreadOptions } from './store-thread.ts';

/** What of agent.env says how fast and how much: taken at the start and with each reload. */

export function uplinkPace(settings: Settings): UplinkOptions {
  const { postIntervalMs, postMaxValues, postMaxBytes, postConcurrency, drainOrder, backfillValuesPerSecond } =
    settings;
  return {
    postIntervalMs,
    postMaxValues,
    postMaxBytes,
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
const SHORTEST_FOLD_MS = 2_000;
const LONGEST_FOLD_MS = 120_000;
/** So many values at most stand in the log, and with them in memory. */
const FOLD_VALUES = 128 * 1024;

/** What the store thread opens. */
export function storeThreadOptions(settings: Settings): StoreThreadOptions {
  return { stateDir: settings.stateDir, values: storeOptions(settings) };
}

export function storeOptions(settings: Settings): ValueStoreOptions {
  return {
    bounds: {
      maxBytes: settings.bufferMaxBytes,
      maxAgeMs: settings.bufferMaxAgeMs,
      minFree: settings.bufferMinFree,
      full: settings.bufferFull,
    },
    foldAfterMs: Math.min(LONGEST_FOLD_MS, Math.max(SHORTEST_FOLD_MS, LIVE_INTERVALS * settings.postIntervalMs)),
    foldValues: FOLD_VALUES,
  };
}
