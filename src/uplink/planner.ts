/**
 * What goes next: one decision at a time, from what is known now. Pure: time, lanes, holds and budget are handed in,
 * and the same input gives the same decision.
 *
 * Live values first, each asset in the order in which its turn came, so that where the budget does not reach everyone
 * waits equally long. The backlog beside them, oldest first, gets a fifth of the posts while both want them, and may use
 * all but one of the sockets. Probes of held things get a tenth of all posts, no less and no more while others want them too,
 * whoever has been due longest first. Slices of divided batches wait for their turn like everything else. While the platform is
 * unavailable there is one try at a time, of another asset each time.
 */
import type { AssetLanes, TakeRequest } from '../buffer/client/lanes.ts';

export interface PlanOptions {
  postIntervalMs: number;
  postMaxValues: number;
  concurrency: number;
  drainOrder: 'live-first' | 'oldest-first';
}

/** A batch of which a slice could be posted. */
export interface ReadyDelivery {
  readonly name: string;
  readonly asset: number;
  readonly lane: 'live' | 'backlog';
  readonly trial: boolean;
  /** Since when it has waited for its turn. */
  readonly sinceMs: number;
}

/** What is known of an asset beside its lanes. */
export interface ScheduledAssetView {
  /** The batch that is under way in that lane. */
  live: { readonly asset: number } | undefined;
  backlog: { readonly asset: number } | undefined;
  /** Since when it has waited for its turn. */
  dueSinceMs: number | undefined;
  pausedUntilMs: number;
  /** Failures of its own since it was last taken. */
  failures: number;
  lastPostAtMs: number;
  /** When something of its backlog last went, with a live post or alone. */
  lastBacklogAtMs: number;
  /** Its last post was full, and left some of the backlog. */
  isDraining: boolean;
}

export interface ProbeView {
  asset: number;
  onlySeries?: readonly number[];
  /** Key of the hold that is tried, where it is one. */
  hold?: string;
  dueSinceMs?: number;
  maxValues: number;
}

export interface PlanInput {
  nowMs: number;
  options: PlanOptions;
  lanes: ReadonlyMap<number, AssetLanes>;
  schedule: ReadonlyMap<number, ScheduledAssetView>;
  /** Divided batches with slices that could be posted. */
  ready: readonly ReadyDelivery[];
  isHeld(asset: number): boolean;
  /** Probes that are due, in the order in which they became so. */
  probes: readonly ProbeView[];
  /** Posts under way: all, those of the backlog lane, those of assets that fail. */
  underWay: { all: number; backlog: number; failing: number };
  /** A batch was taken and waits for its request. */
  unpaid: boolean;
  /** Monotonic; from the request budget. */
  freeAtMs: number;
  probeFreeAtMs: number;
  /** From one request to the next, as the budget lets them go now; 0 without a limit. */
  requestIntervalMs: number;
  /** Values of the backlog that may be taken now, and when so many could be. */
  backfill: { available: number; limited: boolean; atMs(values: number): number };
  /** While the platform is unavailable. */
  outage: { nextTryAtMs: number; trialUnderWay: boolean } | undefined;
  /** Backlog posts that are owed because live ones went before them. */
  backlogCredit: number;
  /** Other posts since the last probe. */
  postsSinceProbe: number;
}

type Choice =
  | { do: 'slice'; delivery: ReadyDelivery }
  | {
      do: 'post';
      kind: 'live' | 'backlog' | 'probe';
      take: TakeRequest;
      trial: boolean;
      /** What is tried by a probe. */
      probe?: ProbeView;
    };

/** `competed`: live values and the backlog both wanted it. */
export type PostDecision = Choice & { competed: boolean };
export type Decision = { do: 'wait'; untilMs: number } | PostDecision;

/** A try after an outage is small: it shows as much as a large one. */
const TRIAL_VALUES = 500;
/** Requests are scarce where one for each asset that waits takes so much of POST_INTERVAL. */
const SCARCE = 0.25;
/** Of five posts that live and backlog both want, one is the backlog's. */
const CREDIT_A_LIVE_POST = 0.25;
/** Of ten posts that probes and others want, one is a probe. */
export const POSTS_A_PROBE = 9;

/** Backlog posts owed after this decision. */
export function creditAfter(credit: number, decision: PostDecision): number {
  if (!decision.competed) return credit;
  const backlog = decision.do === 'slice' ? decision.delivery.lane === 'backlog' : decision.kind === 'backlog';
  return backlog ? Math.max(0, credit - 1) : Math.min(1, credit + CREDIT_A_LIVE_POST);
}

/** When the live values of an asset want to be posted. */
export function liveDueAtMs(lane: AssetLanes, options: PlanOptions): number {
  if (lane.live === 0) return Number.POSITIVE_INFINITY;
  return lane.live >= options.postMaxValues ? Number.NEGATIVE_INFINITY : lane.oldestLiveAtMs + options.postIntervalMs;
}

export function plan(input: PlanInput): Decision {
  const { nowMs, options, underWay } = input;
  if (underWay.all >= options.concurrency || input.unpaid) return { do: 'wait', untilMs: Number.POSITIVE_INFINITY };
  if (input.outage) return planTrial(input, input.outage);
  const wake = new WakeTime();
  // A list, gone through by number: an iterator makes an object a step, of every asset with every turn of the uplink.
  const lanes = [...input.lanes.values()];
  const live = chooseLive(input, lanes, wake);
  const backlog = chooseBacklog(input, lanes, wake);
  const isProbesTurn = input.postsSinceProbe >= POSTS_A_PROBE || (!live && !backlog);
  const probe = isProbesTurn ? chooseProbe(input, wake) : undefined;
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
  if (outage.trialUnderWay && !slice) return { do: 'wait', untilMs: Number.POSITIVE_INFINITY };
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

/** The asset that was posted longest ago: a bad one must not be the only one that is tried. An asset whose values the store refuses pauses. */
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
  for (const probe of input.probes) {
    const { asset, onlySeries, maxValues } = probe;
    // What of it is not held by itself stands in its lanes: without any there is nothing to try it with.
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

/** An asset that fails may hang until a timeout: such posts get half of the sockets at most. */
function mayGo(input: PlanInput, asset: number, wake: WakeTime): boolean {
  const entry = input.schedule.get(asset);
  if (!entry) return true;
  if (entry.pausedUntilMs > input.nowMs) {
    wake.noLaterThan(entry.pausedUntilMs);
    return false;
  }
  return entry.failures === 0 || input.underWay.failing < Math.max(1, input.options.concurrency >> 1);
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
    if (!mayGo(input, lane.asset, wake)) continue;
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
  if (slice && slice.sinceMs <= bestMs) return { do: 'slice', delivery: slice };
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
  // One socket is kept for live values: a post of the backlog may take long.
  if (input.underWay.backlog >= Math.max(1, options.concurrency - 1)) return undefined;
  let best: AssetLanes | undefined;
  for (let at = 0; at < lanes.length; at++) {
    const lane = lanes[at]!;
    if (lane.backlog === 0 || input.isHeld(lane.asset)) continue;
    const entry = input.schedule.get(lane.asset);
    if (entry?.backlog || !mayGo(input, lane.asset, wake)) continue;
    const dueMs = backlogDueAtMs(input, lane, entry);
    if (dueMs > nowMs) {
      wake.noLaterThan(dueMs);
      continue;
    }
    if (!best || lane.oldestBacklogAt < best.oldestBacklogAt) best = lane;
  }
  const slice = oldestReady(input, 'backlog');
  // A slice and a fresh batch take turns: neither a poisoned asset nor a long backlog has it all.
  const freshSinceMs = best && (input.schedule.get(best.asset)?.lastPostAtMs ?? Number.NEGATIVE_INFINITY);
  if (slice && (freshSinceMs === undefined || slice.sinceMs <= freshSinceMs)) return { do: 'slice', delivery: slice };
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

/** A post of the backlog then takes along what is live, although that is not due yet: it would have to wait for its own request. */
function areRequestsScarce({ requestIntervalMs, lanes, options }: PlanInput): boolean {
  return requestIntervalMs * lanes.size >= options.postIntervalMs * SCARCE;
}

/** A request for a few values is dear: less than a full post waits for company, or for a live post that takes it along. */
function backlogDueAtMs(input: PlanInput, lane: AssetLanes, entry: ScheduledAssetView | undefined): number {
  const { nowMs, options, backfill } = input;
  const rateMs = backfill.limited ? backfill.atMs(Math.min(lane.backlog, options.postMaxValues)) : nowMs;
  if (lane.backlog >= options.postMaxValues || mustDrainFirst(input)) return rateMs;
  // The end of a long backlog follows the rest of it.
  if (entry?.isDraining) return rateMs;
  // Live posts that are full to the brim take nothing along: after a while the backlog goes by itself.
  if (lane.live > 0 && !backfill.limited) {
    return (entry?.lastBacklogAtMs ?? Number.NEGATIVE_INFINITY) + 2 * options.postIntervalMs;
  }
  return Math.max(rateMs, (entry?.lastPostAtMs ?? Number.NEGATIVE_INFINITY) + options.postIntervalMs);
}

function oldestReady(input: PlanInput, lane: 'live' | 'backlog'): ReadyDelivery | undefined {
  let best: ReadyDelivery | undefined;
  for (const delivery of input.ready) {
    if (delivery.lane === lane && (!best || delivery.sinceMs < best.sinceMs)) best = delivery;
  }
  return best;
}

/** The earliest of the times at which something changes by itself. */
class WakeTime {
  atMs = Number.POSITIVE_INFINITY;

  noLaterThan(atMs: number): void {
    this.atMs = Math.min(this.atMs, atMs);
  }
}
