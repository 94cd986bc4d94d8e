/**
 * Decides which post is sent next. Has no side effects: the same input always returns the same decision.
 *
 * - Live values are posted first, in the order in which their assets became due, so that all assets wait equally long
 *   if the budget is too small.
 * - The backlog is posted oldest first. While live values are also due, one in five posts is a backlog post. The
 *   backlog uses all sockets except one.
 * - Probes of held assets and series are sent one at a time, longest due first, within the budget.
 * - Slices of divided batches wait for their turn like other posts.
 * - During an outage, one trial post is sent at a time, each for a different asset.
 */
import type { AssetLanes, TakeRequest } from '../buffer/client/lanes.ts';
import type { BatchDelivery } from './delivery.ts';
import type { DueProbe } from './ports.ts';

export interface PlanOptions {
  postIntervalMs: number;
  postMaxValues: number;
  concurrency: number;
  drainOrder: 'live-first' | 'oldest-first';
}

/** Delivery state of an asset. */
export interface ScheduledAsset {
  /** Batch in progress in the lane. */
  live: { readonly asset: number } | undefined;
  backlog: { readonly asset: number } | undefined;
  /** Monotonic time since which the asset has been waiting for its turn. */
  dueSinceMs: number | undefined;
  pausedUntilMs: number;
  /** Number of failures since the latest accepted post. */
  failures: number;
  lastPostAtMs: number;
  /** Time of its latest post with backlog values. */
  lastBacklogAtMs: number;
  /** Whether the latest post was full and backlog values remained. */
  isDraining: boolean;
}

export interface PlanInput {
  nowMs: number;
  options: PlanOptions;
  lanes: ReadonlyMap<number, AssetLanes>;
  schedule: ReadonlyMap<number, ScheduledAsset>;
  /** Split batches that still have a slice to post. */
  ready: readonly BatchDelivery[];
  isHeld(asset: number): boolean;
  /** Due probes, longest due first. */
  probes: readonly DueProbe[];
  /** Number of posts in progress: in total, in the backlog lane, for failing assets, and for probes. */
  inProgress: { all: number; backlog: number; failing: number; probes: number };
  /** Whether a batch is waiting for a request from the budget. */
  unpaid: boolean;
  /** Monotonic time from which the budget allows a request, in milliseconds. */
  freeAtMs: number;
  probeFreeAtMs: number;
  /** Current interval between requests; 0 means no limit. */
  requestIntervalMs: number;
  /** Number of backlog values that may be posted now, and the time at which a given number may be posted. */
  backfill: { available: number; limited: boolean; atMs(values: number): number };
  /** Set while the platform is unavailable. */
  outage: { nextTryAtMs: number; trialInProgress: boolean } | undefined;
  /** Number of backlog posts that are due in return for live posts. */
  backlogCredit: number;
}

type Choice =
  | { do: 'slice'; delivery: BatchDelivery }
  | {
      do: 'post';
      kind: 'live' | 'backlog' | 'probe';
      take: TakeRequest;
      trial: boolean;
      probe?: DueProbe;
    };

/** `competed`: whether live values and the backlog were both due. */
export type PostDecision = Choice & { competed: boolean };
export type Decision = { do: 'wait'; untilMs: number } | PostDecision;

/** Maximum number of values in a trial post. */
const TRIAL_VALUES = 500;
/** Requests are scarce if one request per waiting asset takes this fraction of POST_INTERVAL. */
const SCARCE = 0.25;
/** One in five posts is a backlog post if both are due. */
const CREDIT_A_LIVE_POST = 0.25;

/** Returns the backlog credit after a decision. */
export function creditAfter(credit: number, decision: PostDecision): number {
  if (!decision.competed) return credit;
  const backlog = decision.do === 'slice' ? decision.delivery.lane === 'backlog' : decision.kind === 'backlog';
  return backlog ? Math.max(0, credit - 1) : Math.min(1, credit + CREDIT_A_LIVE_POST);
}

/** Returns the time at which the live values of an asset are due. */
export function liveDueAtMs(lane: AssetLanes, options: PlanOptions): number {
  if (lane.live === 0) return Number.POSITIVE_INFINITY;
  return lane.live >= options.postMaxValues ? Number.NEGATIVE_INFINITY : lane.oldestLiveAtMs + options.postIntervalMs;
}

export function plan(input: PlanInput): Decision {
  const { nowMs, options, inProgress } = input;
  if (inProgress.all >= options.concurrency || input.unpaid) return { do: 'wait', untilMs: Number.POSITIVE_INFINITY };
  if (input.outage) return planTrial(input, input.outage);
  const wake = new WakeTime();
  // Indexed loops allocate no iterator results; they run over every asset in every turn.
  const lanes = [...input.lanes.values()];
  const live = chooseLive(input, lanes, wake);
  const backlog = chooseBacklog(input, lanes, wake);
  // The budget limits probes to one request in ten.
  const probe = chooseProbe(input, wake);
  if (probe) {
    if (input.probeFreeAtMs <= nowMs) return { ...probe, competed: false };
    wake.noLaterThan(input.probeFreeAtMs);
  }
  if (!live && !backlog) return { do: 'wait', untilMs: wake.atMs };
  if (input.freeAtMs > nowMs) return { do: 'wait', untilMs: input.freeAtMs };
  const competed = live !== undefined && backlog !== undefined;
  const chosen = live && !(backlog && input.backlogCredit >= 1) ? live : backlog!;
  return { ...chosen, competed };
}

function planTrial(input: PlanInput, outage: NonNullable<PlanInput['outage']>): Decision {
  const { nowMs } = input;
  const slice = input.ready.find((delivery) => delivery.trial);
  if (outage.trialInProgress && !slice) return { do: 'wait', untilMs: Number.POSITIVE_INFINITY };
  const earliestMs = Math.max(input.freeAtMs, slice ? Number.NEGATIVE_INFINITY : outage.nextTryAtMs);
  if (earliestMs > nowMs) return { do: 'wait', untilMs: earliestMs };
  if (slice) return { do: 'slice', delivery: slice, competed: false };
  const wake = new WakeTime();
  const lane = servedLongestAgo(input, wake);
  if (lane) {
    const which = lane.live > 0 && !(mustDrainFirst(input) && lane.backlog > 0) ? 'live' : 'backlog';
    const maxValues = Math.min(TRIAL_VALUES, input.options.postMaxValues);
    const along = which === 'live' ? { alongValues: Math.min(maxValues, input.backfill.available) } : {};
    const take: TakeRequest = { asset: lane.asset, lane: which, maxValues, maxBytes: 0, ...along };
    return { do: 'post', kind: which, take, trial: true, competed: false };
  }
  const probe = chooseProbe(input, wake);
  return probe ? { ...probe, trial: true, competed: false } : { do: 'wait', untilMs: wake.atMs };
}

/** Returns the asset whose latest post is the oldest, so that a faulty asset is not the only one tried. */
function servedLongestAgo(input: PlanInput, wake: WakeTime): AssetLanes | undefined {
  let best: AssetLanes | undefined;
  let bestMs = Number.POSITIVE_INFINITY;
  for (const lane of input.lanes.values()) {
    if ((lane.live === 0 && lane.backlog === 0) || input.isHeld(lane.asset)) continue;
    const entry = input.schedule.get(lane.asset);
    if (entry?.live || entry?.backlog) continue;
    if (entry && entry.pausedUntilMs > input.nowMs) {
      wake.noLaterThan(entry.pausedUntilMs);
      continue;
    }
    const atMs = entry?.lastPostAtMs ?? Number.NEGATIVE_INFINITY;
    if (atMs < bestMs) [best, bestMs] = [lane, atMs];
  }
  return best;
}

function chooseProbe(input: PlanInput, wake: WakeTime): (Choice & { do: 'post' }) | undefined {
  if (input.inProgress.probes > 0) return undefined;
  for (const probe of input.probes) {
    const { asset, onlySeries, maxValues } = probe;
    // Lanes exclude held series. An asset with empty lanes has no values to probe with.
    if (!onlySeries && !input.lanes.has(asset)) continue;
    const entry = input.schedule.get(asset);
    if (entry && (entry.live || entry.backlog)) continue;
    if (entry && entry.pausedUntilMs > input.nowMs) {
      wake.noLaterThan(entry.pausedUntilMs);
      continue;
    }
    const take: TakeRequest = { asset, lane: 'backlog', maxValues, maxBytes: 0, ...(onlySeries ? { onlySeries } : {}) };
    return { do: 'post', kind: 'probe', take, trial: false, probe };
  }
  return undefined;
}

function mustDrainFirst(input: PlanInput): boolean {
  return input.options.drainOrder === 'oldest-first';
}

/** Failing assets may hang until a timeout, so they use at most half of the sockets. */
function mayPost(input: PlanInput, asset: number, wake: WakeTime): boolean {
  const entry = input.schedule.get(asset);
  if (!entry) return true;
  if (entry.pausedUntilMs > input.nowMs) {
    wake.noLaterThan(entry.pausedUntilMs);
    return false;
  }
  return entry.failures === 0 || input.inProgress.failing < Math.max(1, input.options.concurrency >> 1);
}

function chooseLive(input: PlanInput, lanes: readonly AssetLanes[], wake: WakeTime): Choice | undefined {
  const { nowMs, options } = input;
  let best: AssetLanes | undefined;
  let bestMs = Number.POSITIVE_INFINITY;
  for (let at = 0; at < lanes.length; at++) {
    const lane = lanes[at]!;
    if (lane.live === 0 || input.isHeld(lane.asset)) continue;
    const entry = input.schedule.get(lane.asset);
    if (entry?.live) continue;
    if (mustDrainFirst(input) && (lane.backlog > 0 || entry?.backlog)) continue;
    if (!mayPost(input, lane.asset, wake)) continue;
    const dueMs = liveDueAtMs(lane, options);
    if (dueMs > nowMs) {
      wake.noLaterThan(dueMs);
      continue;
    }
    const sinceMs = entry?.dueSinceMs ?? nowMs;
    const isFirst = sinceMs < bestMs || (sinceMs === bestMs && lane.oldestLiveAtMs < best!.oldestLiveAtMs);
    if (isFirst) [best, bestMs] = [lane, sinceMs];
  }
  const slice = oldestReady(input, 'live');
  if (slice && slice.readySinceMs <= bestMs) return { do: 'slice', delivery: slice };
  if (!best) return undefined;
  const along = mustDrainFirst(input) ? 0 : Math.min(options.postMaxValues, input.backfill.available);
  const take: TakeRequest = {
    asset: best.asset,
    lane: 'live',
    maxValues: options.postMaxValues,
    maxBytes: 0,
    alongValues: along,
  };
  return { do: 'post', kind: 'live', take, trial: false };
}

function chooseBacklog(input: PlanInput, lanes: readonly AssetLanes[], wake: WakeTime): Choice | undefined {
  const { nowMs, options, backfill } = input;
  // One socket is reserved for live values.
  if (input.inProgress.backlog >= Math.max(1, options.concurrency - 1)) return undefined;
  let best: AssetLanes | undefined;
  for (let at = 0; at < lanes.length; at++) {
    const lane = lanes[at]!;
    if (lane.backlog === 0 || input.isHeld(lane.asset)) continue;
    const entry = input.schedule.get(lane.asset);
    if (entry?.backlog || !mayPost(input, lane.asset, wake)) continue;
    const dueMs = backlogDueAtMs(input, lane, entry);
    if (dueMs > nowMs) {
      wake.noLaterThan(dueMs);
      continue;
    }
    if (!best || lane.oldestBacklogAt < best.oldestBacklogAt) best = lane;
  }
  const slice = oldestReady(input, 'backlog');
  // Slices and new batches alternate.
  const freshSinceMs = best && (input.schedule.get(best.asset)?.lastPostAtMs ?? Number.NEGATIVE_INFINITY);
  if (slice && (freshSinceMs === undefined || slice.readySinceMs <= freshSinceMs))
    return { do: 'slice', delivery: slice };
  if (!best) return undefined;
  const { asset } = best;
  const { postMaxValues } = options;
  const backlog = Math.min(postMaxValues, backfill.available);
  const take: TakeRequest =
    best.live > 0 && !input.schedule.get(asset)?.live && !mustDrainFirst(input) && areRequestsScarce(input)
      ? { asset, lane: 'live', maxValues: postMaxValues, maxBytes: 0, alongValues: backlog }
      : { asset, lane: 'backlog', maxValues: backlog, maxBytes: 0 };
  return { do: 'post', kind: 'backlog', take, trial: false };
}

/** Returns whether requests are scarce. If so, backlog posts include live values that are not due yet. */
function areRequestsScarce({ requestIntervalMs, lanes, options }: PlanInput): boolean {
  return requestIntervalMs * lanes.size >= options.postIntervalMs * SCARCE;
}

/** Backlog values that do not fill a post wait for more values, or for a live post that includes them. */
function backlogDueAtMs(input: PlanInput, lane: AssetLanes, entry: ScheduledAsset | undefined): number {
  const { nowMs, options, backfill } = input;
  const rateMs = backfill.limited ? backfill.atMs(Math.min(lane.backlog, options.postMaxValues)) : nowMs;
  if (lane.backlog >= options.postMaxValues || mustDrainFirst(input)) return rateMs;
  // The remainder of a long backlog does not wait.
  if (entry?.isDraining) return rateMs;
  // Full live posts do not include backlog values.
  if (lane.live > 0 && !backfill.limited) {
    return (entry?.lastBacklogAtMs ?? Number.NEGATIVE_INFINITY) + 2 * options.postIntervalMs;
  }
  return Math.max(rateMs, (entry?.lastPostAtMs ?? Number.NEGATIVE_INFINITY) + options.postIntervalMs);
}

function oldestReady(input: PlanInput, lane: 'live' | 'backlog'): BatchDelivery | undefined {
  let best: BatchDelivery | undefined;
  for (const delivery of input.ready) {
    if (delivery.lane === lane && (!best || delivery.readySinceMs < best.readySinceMs)) best = delivery;
  }
  return best;
}

/** Earliest time at which the decision may change. */
class WakeTime {
  atMs = Number.POSITIVE_INFINITY;

  noLaterThan(atMs: number): void {
    this.atMs = Math.min(this.atMs, atMs);
  }
}
