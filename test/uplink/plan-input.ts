import type { AssetLanes } from '../../src/buffer/client/lanes.ts';
import type { Decision, PlanInput, ReadyDelivery, ScheduledAssetView } from '../../src/uplink/planner.ts';
import { OPTIONS } from './plant.ts';

/** What the planner is asked about: a moment of the uplink, of which a test says what matters to it. */

export const NOW = 1_000_000;
export const NEVER = Number.POSITIVE_INFINITY;

export function lane(asset: number, live: number, liveAgeMs: number, backlog = 0, place = NEVER): AssetLanes {
  const oldestLiveAtMs = live > 0 ? NOW - liveAgeMs : NEVER;
  return { asset, live, oldestLiveAtMs, backlog, oldestBacklogAt: place };
}

function scheduled(facts: Partial<ScheduledAssetView>): ScheduledAssetView {
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
  schedule: [number, Partial<ScheduledAssetView>][] = [],
): PlanInput {
  return {
    nowMs: NOW,
    options: OPTIONS,
    lanes: new Map(lanes.map((one) => [one.asset, one])),
    schedule: new Map(schedule.map(([asset, one]) => [asset, scheduled(one)])),
    ready: [],
    isHeld: () => false,
    probes: [],
    underWay: { all: 0, backlog: 0, failing: 0 },
    unpaid: false,
    freeAtMs: Number.NEGATIVE_INFINITY,
    probeFreeAtMs: Number.NEGATIVE_INFINITY,
    requestIntervalMs: 0,
    backfill: { available: NEVER, limited: false, atMs: () => NOW },
    outage: undefined,
    backlogCredit: 0,
    postsSinceProbe: 9,
    ...facts,
  };
}

export const ready = (asset: number, which: 'live' | 'backlog', readyAgoMs: number, trial = false): ReadyDelivery => ({
  name: `${which} ${asset}`,
  asset,
  lane: which,
  trial,
  sinceMs: NOW - readyAgoMs,
});

export const held = (...assets: number[]) => ({ isHeld: (asset: number) => assets.includes(asset) });
export const probesOf = (...assets: number[]) => assets.map((asset) => ({ asset, maxValues: 50 }));

/** `live 7`, `slice live 7`, with a `!` where live values and the backlog both wanted it; `wait` with the milliseconds from now. */
export function words(decision: Decision): string {
  if (decision.do === 'wait') return `wait ${decision.untilMs - NOW}`;
  const competed = decision.competed ? '!' : '';
  if (decision.do === 'slice') return `slice ${decision.delivery.name}${competed}`;
  const { asset, onlySeries } = decision.take;
  return `${decision.kind} ${asset}${onlySeries ? `/${onlySeries}` : ''}${decision.trial ? ' trial' : ''}${competed}`;
}
