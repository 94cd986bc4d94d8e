/** What the uplink knows of each asset beside its lanes, whole: after each happening, and each condition for itself. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { AssetLanes, Batch } from '../../src/buffer/client/lanes.ts';
import { AssetSchedule } from '../../src/uplink/asset-schedule.ts';
import { type BatchDelivery, type DeliveryState, slicesIn } from '../../src/uplink/batch-delivery.ts';
import type { ScheduledAssetView } from '../../src/uplink/planner.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { OPTIONS } from './plant.ts';

const NEVER = Number.POSITIVE_INFINITY;
const UNKNOWN: ScheduledAssetView = {
  live: undefined,
  backlog: undefined,
  dueSinceMs: undefined,
  pausedUntilMs: -NEVER,
  failures: 0,
  lastPostAtMs: -NEVER,
  lastBacklogAtMs: -NEVER,
  isDraining: false,
};
const slices = slicesIn({ kind: 'over' });
const slice = { id: 1 } as Batch;
const LONE = { refusal: { status: 400, message: 'no' }, at: 1 };
const STATES: DeliveryState[] = [
  { kind: 'taking', after: 'next' },
  { kind: 'paying', after: 'next', slices },
  { kind: 'posting', after: 'next', slices, slice },
  { kind: 'dividing', after: 'next', slices, slice, refusal: LONE },
  { kind: 'deciding', after: 'next', slices },
  { kind: 'returning' },
  { kind: 'ready', slices, sinceMs: 5 },
  { kind: 'parked', slices },
  { kind: 'over' },
];
const stateOf = (kind: DeliveryState['kind']) => STATES.find((state) => state.kind === kind)!;

describe('what is known of the assets', () => {
  let clock: ManualClock;
  let schedule: AssetSchedule;

  const deliveryOf = (asset: number, lane: 'live' | 'backlog', state = STATES[0]!, trial = false): BatchDelivery => {
    return { name: `${lane} ${asset}`, asset, lane, kind: lane, probe: undefined, trial, state };
  };

  beforeEach(() => {
    clock = new ManualClock();
    clock.random = () => 1;
    schedule = new AssetSchedule(clock);
  });

  it('is nothing at first, and one and the same from then on', () => {
    const entry = schedule.of(1);
    expect(entry).toEqual(UNKNOWN);
    entry.failures = 3;
    expect(schedule.of(1)).toBe(entry);
    expect([...schedule.map.keys()]).toEqual([1]);
  });

  it('is who has which lane, from beginning to end of each delivery', () => {
    const [live, backlog, probe] = [deliveryOf(1, 'live'), deliveryOf(1, 'backlog'), deliveryOf(2, 'backlog')];
    const lanes = () => [1, 2].map((asset) => [schedule.of(asset).live?.name, schedule.of(asset).backlog?.name]);
    const none = [undefined, undefined];
    schedule.begin(live);
    expect([lanes(), [...schedule.deliveries]]).toEqual([[['live 1', undefined], none], [live]]);
    schedule.begin(backlog);
    schedule.begin(probe);
    expect(lanes()).toEqual([
      ['live 1', 'backlog 1'],
      [undefined, 'backlog 2'],
    ]);
    // What has a lane keeps it.
    for (const one of [live, backlog, probe]) schedule.occupyBoth(one);
    expect(lanes()).toEqual([
      ['live 1', 'backlog 1'],
      ['backlog 2', 'backlog 2'],
    ]);
    schedule.end(live);
    schedule.occupyBoth(backlog);
    expect(lanes()[0]).toEqual(['backlog 1', 'backlog 1']);
    // Ended already: it takes nothing from who came after.
    schedule.end(live);
    schedule.end(probe);
    expect([lanes(), [...schedule.deliveries]]).toEqual([[['backlog 1', 'backlog 1'], none], [backlog]]);
    schedule.end(backlog);
    expect([lanes(), schedule.deliveries.size]).toEqual([[none, none], 0]);
  });

  it.each(STATES)(
    'is of a delivery that is $kind whether it has a socket, waits for its request or for its turn',
    (state) => {
      const delivery = deliveryOf(1, 'backlog', state, true);
      schedule.begin(delivery);
      const isBusy = !['ready', 'parked', 'over'].includes(state.kind);
      const count = isBusy ? 1 : 0;
      expect(schedule.underWay()).toEqual({ all: count, backlog: count, failing: 0 });
      expect(schedule.isPaying).toBe(state.kind === 'taking' || state.kind === 'paying');
      const turn = { name: 'backlog 1', asset: 1, lane: 'backlog', trial: true, sinceMs: 5 };
      expect(schedule.ready()).toEqual(state.kind === 'ready' ? [turn] : []);
      expect(schedule.hasTrial).toBe(true);
    },
  );

  it('is how many are under way, of them of the backlog and of assets that fail', () => {
    expect([schedule.underWay(), schedule.isPaying, schedule.hasTrial]).toEqual([
      { all: 0, backlog: 0, failing: 0 },
      false,
      false,
    ]);
    const posting = stateOf('posting');
    const [one, two, three] = [
      deliveryOf(1, 'live', posting),
      deliveryOf(1, 'backlog', posting),
      deliveryOf(2, 'live', posting),
    ];
    const ready = deliveryOf(3, 'backlog', stateOf('ready'));
    for (const delivery of [ready, one, two, three]) schedule.begin(delivery);
    schedule.pause(2);
    schedule.pause(3);
    expect(schedule.underWay()).toEqual({ all: 3, backlog: 1, failing: 1 });
    schedule.pause(1);
    expect(schedule.underWay()).toEqual({ all: 3, backlog: 1, failing: 3 });
    expect([schedule.isPaying, schedule.hasTrial]).toEqual([false, false]);
    // Whichever of them it is.
    schedule.begin(deliveryOf(4, 'live', stateOf('paying'), true));
    expect([schedule.isPaying, schedule.hasTrial]).toEqual([true, true]);
    expect(['live 1', 'backlog 1', 'backlog 3', 'live 3'].map((name) => schedule.named(name))).toEqual([
      one,
      two,
      ready,
      undefined,
    ]);
  });

  it('is how long each pauses: chance under a bound that doubles, half a second at least, what is asked up to a minute', async () => {
    const failing = (asset: number, minMs?: number) => {
      const pauseMs = schedule.pause(asset, minMs);
      expect(schedule.of(asset).pausedUntilMs).toBe(clock.monotonicMs() + pauseMs);
      return [pauseMs, schedule.of(asset).failures];
    };
    expect([1, 2, 3, 4, 5, 6, 7].map(() => failing(1))).toEqual([
      [2_000, 1],
      [4_000, 2],
      [8_000, 3],
      [16_000, 4],
      [32_000, 5],
      [60_000, 6],
      [60_000, 7],
    ]);
    expect([failing(2, 1_999), failing(2, 4_001), failing(2, 60_000), failing(2, 60_001)]).toEqual([
      [2_000, 1],
      [4_001, 2],
      [60_000, 3],
      [60_000, 4],
    ]);
    clock.random = () => 0;
    expect([failing(3), failing(3, 501)]).toEqual([
      [500, 1],
      [501, 2],
    ]);
    const now = clock.monotonicMs();
    const all = [
      { asset: 1, failures: 7, untilMs: now + 60_000 },
      { asset: 2, failures: 4, untilMs: now + 60_000 },
      { asset: 3, failures: 2, untilMs: now + 501 },
    ];
    expect([now + 500, now + 501, now + 59_999, now + 60_000].map((atMs) => schedule.paused(atMs))).toEqual([
      all,
      all.slice(0, 2),
      all.slice(0, 2),
      [],
    ]);
  });

  it('is who failed, until a post of it is taken or the platform was to blame', () => {
    for (const asset of [1, 2, 3]) {
      schedule.pause(asset);
      Object.assign(schedule.of(asset), { dueSinceMs: 5, lastPostAtMs: 6, lastBacklogAtMs: 7, isDraining: true });
    }
    const kept = { ...UNKNOWN, lastPostAtMs: 6, lastBacklogAtMs: 7, isDraining: true };
    expect([schedule.succeed(1), schedule.succeed(1), schedule.succeed(4)]).toEqual([true, false, false]);
    expect(schedule.of(1)).toEqual({ ...kept, dueSinceMs: 5 });
    expect(schedule.of(2).failures).toBe(1);
    schedule.resetFailures();
    for (const asset of [1, 2, 3]) expect(schedule.of(asset)).toEqual(kept);
    expect(schedule.of(4)).toEqual(UNKNOWN);
  });

  it('is whose turn it is no more once everybody waits for the same', () => {
    for (const asset of [1, 2]) {
      schedule.pause(asset);
      schedule.of(asset).dueSinceMs = asset;
    }
    const before = [1, 2].map((asset) => ({ ...schedule.of(asset), dueSinceMs: undefined }));
    schedule.clearDueTimes();
    expect([1, 2].map((asset) => schedule.of(asset))).toEqual(before);
  });
});

describe('since when it is whose turn', () => {
  const NOW = 50_000;
  const lane = (live: number, ageMs: number, backlog = 0): AssetLanes => ({
    asset: 1,
    live,
    oldestLiveAtMs: live > 0 ? NOW - ageMs : NEVER,
    backlog,
    oldestBacklogAt: backlog > 0 ? 1 : NEVER,
  });
  const DUE = lane(3, 10_000);
  const under = { name: 'x' } as BatchDelivery;
  interface Given {
    lane?: AssetLanes | undefined;
    entry?: Partial<ScheduledAssetView>;
    isOldestFirst?: boolean;
    isHeld?: boolean;
  }
  /** What it was before, and what it is after a look at NOW. */
  const lookedAt = (
    before: number | undefined,
    { lane: one, entry = {}, isOldestFirst = false, isHeld = false }: Given,
  ) => {
    const schedule = new AssetSchedule(new ManualClock());
    Object.assign(schedule.of(1), { ...entry, dueSinceMs: before });
    const options = { ...OPTIONS, drainOrder: isOldestFirst ? ('oldest-first' as const) : ('live-first' as const) };
    schedule.noteDueTimes(new Map(one ? [[1, one]] : []), NOW, options, (asset) => isHeld && asset === 1);
    return schedule.of(1).dueSinceMs;
  };

  it.each<[string, Given, number | undefined, number | undefined]>([
    // Of one whose turn had not come, and of one whose had come at 40,000.
    ['values that are not due yet change nothing', { lane: lane(3, 9_999) }, undefined, 40_000],
    ['values that are due now', { lane: DUE }, NOW, 40_000],
    ['values that fill a post', { lane: lane(5_000, 0) }, NOW, 40_000],
    ['values that almost do', { lane: lane(4_999, 0) }, undefined, 40_000],
    ['nothing waits', { lane: undefined }, undefined, undefined],
    ['nothing waits but a lane', { lane: lane(0, 0) }, undefined, undefined],
    ['what waited was flushed', { lane: lane(0, 0, 3) }, undefined, 40_000],
    ['what was flushed went meanwhile', { lane: lane(0, 0, 3), entry: { lastPostAtMs: 40_001 } }, undefined, undefined],
    ['what was flushed did not go', { lane: lane(0, 0, 3), entry: { lastPostAtMs: 40_000 } }, undefined, 40_000],
    [
      'something went, and new values wait',
      { lane: lane(1, 0, 3), entry: { lastPostAtMs: 40_001 } },
      undefined,
      40_000,
    ],
    ['a live post is under way', { lane: DUE, entry: { live: under } }, undefined, undefined],
    ['one of the backlog is', { lane: DUE, entry: { backlog: under } }, NOW, 40_000],
    ['it pauses', { lane: DUE, entry: { pausedUntilMs: NOW + 1 } }, undefined, undefined],
    ['it pauses no longer', { lane: DUE, entry: { pausedUntilMs: NOW } }, NOW, 40_000],
    ['it is held', { lane: DUE, isHeld: true }, undefined, undefined],
    ['it has a backlog', { lane: lane(3, 10_000, 1) }, NOW, 40_000],
    ['it has one that goes first', { lane: lane(3, 10_000, 1), isOldestFirst: true }, undefined, undefined],
    ['it has none that would go first', { lane: DUE, isOldestFirst: true }, NOW, 40_000],
    [
      'its backlog is under way, first',
      { lane: DUE, entry: { backlog: under }, isOldestFirst: true },
      undefined,
      undefined,
    ],
  ])('%s', (_name, given, fresh, waiting) => {
    expect([lookedAt(undefined, given), lookedAt(40_000, given)]).toEqual([fresh, waiting]);
  });

  it('is noted of each asset for itself, and of one of which nothing was known', () => {
    const schedule = new AssetSchedule(new ManualClock());
    schedule.of(3).dueSinceMs = 40_000;
    const lanes = [1, 2, 3].map((asset) => ({ ...(asset === 2 ? lane(3, 0) : DUE), asset }));
    schedule.noteDueTimes(new Map(lanes.map((one) => [one.asset, one])), NOW, OPTIONS, () => false);
    expect([...schedule.map].map(([asset, { dueSinceMs }]) => [asset, dueSinceMs])).toEqual([
      [3, 40_000],
      [1, NOW],
    ]);
  });
});
