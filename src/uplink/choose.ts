/**
 * Chooses the next post. Has no side effects: the same state always returns the same choice.
 *
 * - Live values are due POST_INTERVAL after their acceptance, or as soon as they fill a post. The asset whose latest live
 *   post is the oldest is posted first, so that all assets wait equally long if the budget is too small.
 * - The backlog is posted oldest first. Backlog values that do not fill a post wait for a live post that includes them.
 * - Failing assets may hang until a timeout, so they use at most half of the sockets.
 */
import type { AssetLanes, TakeRequest } from '../buffer/client/lanes.ts';
import type { AssetState } from './assets.ts';
import type { BackfillRate } from './backfill-rate.ts';
import type { Probe } from './holds.ts';

export interface PostOptions {
  postIntervalMs: number;
  postMaxValues: number;
  concurrency: number;
  drainOrder: 'live-first' | 'oldest-first';
}

export interface ChooseState {
  nowMs: number;
  options: PostOptions;
  lanes: ReadonlyMap<number, AssetLanes>;
  assets: ReadonlyMap<number, AssetState>;
  isHeld(asset: number): boolean;
  backfill: BackfillRate;
  /** Returns the number of posts in progress for failing assets. */
  failing(): number;
}

/** Values to take, except for their size in bytes. */
type Take = Omit<TakeRequest, 'maxBytes'>;
/** A post, or the time at which there may be one. */
export type Choice = { take: Take; probe?: Probe } | { untilMs: number };

/** Maximum number of values in a trial that looks for an accepted value. */
const SEARCH_VALUES = 500;
/** Maximum number of values in an access probe. */
const PROBE_VALUES = 50;
const NEVER = Number.POSITIVE_INFINITY;

/** Returns the time at which the live values of an asset are due. */
function liveDueAtMs(lane: AssetLanes, options: PostOptions): number {
  if (lane.live === 0) return NEVER;
  return lane.live >= options.postMaxValues ? Number.NEGATIVE_INFINITY : lane.oldestLiveAtMs + options.postIntervalMs;
}

/** Chooses the due asset whose latest live post is the oldest. */
export function chooseLive(state: ChooseState): Choice {
  const { assets, backfill, nowMs, options } = state;
  const isBacklogFirst = options.drainOrder === 'oldest-first';
  let untilMs = NEVER;
  let best: AssetLanes | undefined;
  let bestPostAtMs = NEVER;
  state.lanes.forEach((lane) => {
    if (lane.live === 0 || state.isHeld(lane.asset)) return;
    const asset = assets.get(lane.asset);
    if (asset?.live || (isBacklogFirst && (lane.backlog > 0 || asset?.backlog))) return;
    const dueMs = Math.max(liveDueAtMs(lane, options), freeAtMs(state, asset));
    if (dueMs > nowMs) {
      untilMs = Math.min(untilMs, dueMs);
      return;
    }
    const postAtMs = asset?.lastLiveAtMs ?? Number.NEGATIVE_INFINITY;
    const isNext =
      !best || postAtMs < bestPostAtMs || (postAtMs === bestPostAtMs && lane.oldestLiveAtMs < best.oldestLiveAtMs);
    if (isNext) [best, bestPostAtMs] = [lane, postAtMs];
  });
  if (!best) return { untilMs };
  const alongValues = isBacklogFirst ? 0 : backfill.available(nowMs);
  return { take: livePost(state, best, alongValues) };
}

/** Returns a post with live values, and with the given number of backlog values if they fit and none are in progress. */
function livePost({ assets, options }: ChooseState, lane: AssetLanes, backlogValues: number): Take {
  const { asset, backlog, live } = lane;
  const { postMaxValues: maxValues } = options;
  const isAlong = backlog > 0 && live < maxValues && !assets.get(asset)?.backlog;
  return { asset, lane: 'live', maxValues, alongValues: isAlong ? Math.min(maxValues, backlogValues) : 0 };
}

export function chooseBacklog(state: ChooseState): Choice {
  const { assets, backfill, nowMs, options } = state;
  let untilMs = NEVER;
  let best: AssetLanes | undefined;
  state.lanes.forEach((lane) => {
    if (lane.backlog === 0 || state.isHeld(lane.asset)) return;
    const asset = assets.get(lane.asset);
    if (asset?.backlog) return;
    const dueMs = Math.max(backlogDueAtMs(state, lane, asset), freeAtMs(state, asset));
    if (dueMs > nowMs) untilMs = Math.min(untilMs, dueMs);
    else if (!best || lane.oldestBacklogAt < best.oldestBacklogAt) best = lane;
  });
  if (!best) return { untilMs };
  const { asset, live } = best;
  const values = Math.min(options.postMaxValues, backfill.available(nowMs));
  const hasRoom = live > 0 && live < options.postMaxValues && options.drainOrder === 'live-first';
  // Live values that are not due yet fill the post, which saves a request.
  if (hasRoom && !assets.get(asset)?.live) return { take: livePost(state, best, values) };
  return { take: { asset, lane: 'backlog', maxValues: values } };
}

/**
 * Chooses the trial post of an outage: one value of the asset whose latest post is the oldest, so that a faulty asset is
 * not the only one tried. If the platform rejects all values, the trial looks for an accepted one (`isSearch`).
 */
export function chooseTrial(state: ChooseState, isSearch: boolean): Choice {
  const { assets, nowMs, options } = state;
  const maxValues = isSearch ? Math.min(SEARCH_VALUES, options.postMaxValues) : 1;
  let untilMs = NEVER;
  let best: AssetLanes | undefined;
  let bestIsHeld = false;
  let bestPostAtMs = NEVER;
  for (const lane of state.lanes.values()) {
    const asset = assets.get(lane.asset);
    if (asset?.live || asset?.backlog) continue;
    const pausedUntilMs = asset?.pausedUntilMs ?? Number.NEGATIVE_INFINITY;
    if (pausedUntilMs > nowMs) {
      untilMs = Math.min(untilMs, pausedUntilMs);
      continue;
    }
    // Held assets are tried last.
    const isHeld = state.isHeld(lane.asset);
    const postAtMs = asset ? Math.max(asset.lastLiveAtMs, asset.lastBacklogAtMs) : Number.NEGATIVE_INFINITY;
    const isBetter = isHeld === bestIsHeld ? postAtMs < bestPostAtMs : bestIsHeld;
    if (!best || isBetter) [best, bestIsHeld, bestPostAtMs] = [lane, isHeld, postAtMs];
  }
  if (!best) return { untilMs };
  const isBacklogFirst = options.drainOrder === 'oldest-first' && best.backlog > 0;
  return { take: { asset: best.asset, lane: best.live > 0 && !isBacklogFirst ? 'live' : 'backlog', maxValues } };
}

/** Chooses one of the due probes. */
export function chooseProbe(state: ChooseState, probes: readonly Probe[]): Choice {
  const { assets, nowMs, options } = state;
  let untilMs = NEVER;
  for (const probe of probes) {
    const { hold, asset: id, onlySeries } = probe;
    const asset = assets.get(id);
    if (asset?.live || asset?.backlog) continue;
    if (asset && asset.pausedUntilMs > nowMs) {
      untilMs = Math.min(untilMs, asset.pausedUntilMs);
      continue;
    }
    const maxValues = hold.cause === 'rejected' ? options.postMaxValues : PROBE_VALUES;
    return { take: { asset: id, lane: 'backlog', maxValues, ...(onlySeries ? { onlySeries } : {}) }, probe };
  }
  return { untilMs };
}

/** Returns the time at which an asset may be posted. */
function freeAtMs({ failing, options }: ChooseState, asset: AssetState | undefined): number {
  if (!asset) return Number.NEGATIVE_INFINITY;
  const isBlocked = asset.failures > 0 && failing() >= Math.max(1, options.concurrency >> 1);
  return isBlocked ? NEVER : asset.pausedUntilMs;
}

function backlogDueAtMs(
  { backfill, nowMs, options }: ChooseState,
  lane: AssetLanes,
  asset: AssetState | undefined,
): number {
  const rateMs = backfill.isLimited
    ? backfill.availableAtMs(Math.min(lane.backlog, options.postMaxValues), nowMs)
    : Number.NEGATIVE_INFINITY;
  if (lane.backlog >= options.postMaxValues || options.drainOrder === 'oldest-first' || asset?.isDraining)
    return rateMs;
  // Full live posts include no backlog values, so the backlog does not wait for them forever.
  const intervals = lane.live > 0 && !backfill.isLimited ? 2 : 1;
  return Math.max(rateMs, (asset?.lastBacklogAtMs ?? Number.NEGATIVE_INFINITY) + intervals * options.postIntervalMs);
}
