import type { AssetLanes } from '../../../src/buffer/client/lanes.ts';
import { type BatchDelivery, NO_SLICES } from '../../../src/uplink/delivery.ts';
import type { PlanInput, ScheduledAsset } from '../../../src/uplink/planner.ts';
import { OPTIONS } from './plant.ts';

/** Inputs of the planner. Tests override only what they need. */

export const NOW = 1_000_000;
export const NEVER = Number.POSITIVE_INFINITY;

export function lane(asset: number, live: number, liveAgeMs: number, backlog = 0, place = NEVER): AssetLanes {
  const oldestLiveAtMs = live > 0 ? NOW - liveAgeMs : NEVER;
  return { asset, live, oldestLiveAtMs, backlog, oldestBacklogAt: place };
}

function scheduled(facts: Partial<ScheduledAsset>): ScheduledAsset {
  return {
    live: undefined,
    backlog: undefined,
    dueSinceMs: undefined,
    pausedUntilMs: Number.NEGATIVE_INFINITY,
    failures: 0,
    lastPostAtMs: Number.NEGATIVE_INFINITY,
    lastBacklogAtMs: Number.NEGATIVE_INFINITY,
    isDraining: false,
    ...facts,
  };
}

export function input(
  lanes: AssetLanes[],
  facts: Partial<PlanInput> = {},
  schedule: [number, Partial<ScheduledAsset>][] = [],
): PlanInput {
  return {
    nowMs: NOW,
    options: OPTIONS,
    lanes: new Map(lanes.map((one) => [one.asset, one])),
    schedule: new Map(schedule.map(([asset, one]) => [asset, scheduled(one)])),
    ready: [],
    isHeld: () => false,
    probes: [],
    inProgress: { all: 0, backlog: 0, failing: 0, probes: 0 },
    unpaid: false,
    freeAtMs: Number.NEGATIVE_INFINITY,
    probeFreeAtMs: Number.NEGATIVE_INFINITY,
    requestIntervalMs: 0,
    backfill: { available: NEVER, limited: false, atMs: () => NOW },
    outage: undefined,
    backlogCredit: 0,
    ...facts,
  };
}

export const ready = (asset: number, lane: 'live' | 'backlog', readyAgoMs: number): BatchDelivery => ({
  name: `${lane} ${asset}`,
  asset,
  lane,
  kind: lane,
  probe: undefined,
  trial: false,
  phase: 'ready',
  slices: NO_SLICES,
  readySinceMs: NOW - readyAgoMs,
  isRecalled: false,
});

export const held = (...assets: number[]) => ({ isHeld: (asset: number) => assets.includes(asset) });
export const probesOf = (...assets: number[]) => assets.map((asset) => ({ asset, maxValues: 50 }));
