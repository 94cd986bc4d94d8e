/** What the planner decides, whole: every member of a decision, and in what order a stock of assets goes. */
import { describe, expect, it } from 'vitest';
import type { AssetLanes } from '../../src/buffer/client/lanes.ts';
import {
  creditAfter,
  type PlanInput,
  type PostDecision,
  type ProbeView,
  plan,
  type ScheduledAssetView,
} from '../../src/uplink/planner.ts';
import { held, input, lane, NEVER, NOW, probesOf, ready, words } from './plan-input.ts';
import { OPTIONS } from './plant.ts';

const OLDEST_FIRST = { ...OPTIONS, drainOrder: 'oldest-first' as const };
const { postIntervalMs: INTERVAL_MS, postMaxValues: MAX } = OPTIONS;
type Entries = [number, Partial<ScheduledAssetView>][];

const OUTAGE = { nextTryAtMs: NOW, trialUnderWay: false };

/** All that goes now, one decision after the other, each known to the next as the uplink knows it; the last is a wait. */
function goAll(given: PlanInput): string[] {
  const schedule = new Map([...given.schedule].map(([asset, entry]) => [asset, { ...entry }]));
  const none = [...input([], {}, [[0, {}]]).schedule.values()][0]!;
  let now: PlanInput = { ...given, schedule };
  const said: string[] = [];
  for (let turn = 0; turn < 100; turn++) {
    const decision = plan(now);
    said.push(words(decision));
    if (decision.do === 'wait') return said;
    now = known(now, decision);
    if (decision.do === 'slice') {
      now.ready = now.ready.filter((one) => one !== decision.delivery);
      continue;
    }
    const { asset, lane: which } = decision.take;
    const before: ScheduledAssetView = schedule.get(asset) ?? none;
    const both = decision.kind === 'probe';
    schedule.set(asset, {
      ...before,
      dueSinceMs: decision.kind === 'live' ? undefined : before.dueSinceMs,
      live: both || which === 'live' ? { asset } : before.live,
      backlog: both || which === 'backlog' ? { asset } : before.backlog,
    });
    now.probes = now.probes.filter((one) => one !== decision.probe);
  }
  throw new Error('there is no end of it');
}

function known(before: PlanInput, decision: PostDecision): PlanInput {
  const which = decision.do === 'slice' ? decision.delivery.lane : decision.take.lane;
  const { all, backlog, failing } = before.underWay;
  return {
    ...before,
    underWay: { all: all + 1, backlog: backlog + (which === 'backlog' ? 1 : 0), failing },
    backlogCredit: creditAfter(before.backlogCredit, decision),
    postsSinceProbe: decision.do === 'post' && decision.kind === 'probe' ? 0 : before.postsSinceProbe + 1,
  };
}

describe('a decision has all that is done with it', () => {
  const due = lane(1, 3, 10_000);
  const old = lane(2, 0, 0, 9_000, 2);
  const post = { do: 'post', trial: false, competed: false };
  const takeLive = { asset: 1, lane: 'live', maxValues: MAX, maxBytes: 0, alongValues: MAX };
  const takeOld = { asset: 2, lane: 'backlog', maxValues: MAX, maxBytes: 0 };
  const table: [string, PlanInput, object][] = [
    ['live values with as much of the backlog as fits', input([due]), { ...post, kind: 'live', take: takeLive }],
    [
      'live values with what the backfill rate lets go along',
      input([due], { backfill: { available: 7, limited: true, atMs: () => NOW + 1 } }),
      { ...post, kind: 'live', take: { ...takeLive, alongValues: 7 } },
    ],
    [
      'live values without any backlog, which went before them',
      input([lane(1, 3, 10_000)], { options: OLDEST_FIRST }),
      { ...post, kind: 'live', take: { ...takeLive, alongValues: 0 } },
    ],
    [
      'live values which the backlog wanted to go before',
      input([due, old]),
      { ...post, kind: 'live', take: takeLive, competed: true },
    ],
    ['backlog', input([old]), { ...post, kind: 'backlog', take: takeOld }],
    [
      'backlog, as much as the backfill rate allows',
      input([old], { backfill: { available: 700, limited: true, atMs: () => NOW } }),
      { ...post, kind: 'backlog', take: { ...takeOld, maxValues: 700 } },
    ],
    [
      'backlog that is owed',
      input([due, old], { backlogCredit: 1 }),
      { ...post, kind: 'backlog', take: takeOld, competed: true },
    ],
    [
      'backlog that takes live values along where requests are scarce',
      input([lane(2, 1, 0, 9_000, 2)], {
        requestIntervalMs: INTERVAL_MS / 4,
        backfill: { available: 700, limited: true, atMs: () => NOW },
      }),
      { ...post, kind: 'backlog', take: { ...takeLive, asset: 2, alongValues: 700 } },
    ],
    [
      'backlog alone where requests are scarce and the asset has no live values',
      input([old], { requestIntervalMs: INTERVAL_MS }),
      { ...post, kind: 'backlog', take: takeOld },
    ],
    [
      'backlog alone where requests are scarce and its live values are under way',
      input([lane(2, 1, 0, 9_000, 2)], { requestIntervalMs: INTERVAL_MS }, [[2, { live: { asset: 2 } }]]),
      { ...post, kind: 'backlog', take: takeOld },
    ],
    [
      'a probe of an asset',
      input([due], { ...held(1), probes: [{ asset: 1, hold: 'asset 1', maxValues: 50 }] }),
      {
        ...post,
        kind: 'probe',
        take: { asset: 1, lane: 'backlog', maxValues: 50, maxBytes: 0 },
        probe: { asset: 1, hold: 'asset 1', maxValues: 50 },
      },
    ],
    [
      'a probe of a series, of which nothing else is known',
      input([], { probes: [{ asset: 1, onlySeries: [7], maxValues: 1 }] }),
      {
        ...post,
        kind: 'probe',
        take: { asset: 1, lane: 'backlog', maxValues: 1, maxBytes: 0, onlySeries: [7] },
        probe: { asset: 1, onlySeries: [7], maxValues: 1 },
      },
    ],
    [
      'a slice',
      input([], { ready: [ready(3, 'live', 5)] }),
      { do: 'slice', delivery: ready(3, 'live', 5), competed: false },
    ],
    [
      'a slice of the backlog that is owed',
      input([due], { ready: [ready(3, 'backlog', 5)], backlogCredit: 1 }),
      { do: 'slice', delivery: ready(3, 'backlog', 5), competed: true },
    ],
    [
      'a try of live values',
      input([due], { outage: OUTAGE }),
      {
        ...post,
        kind: 'live',
        trial: true,
        take: { asset: 1, lane: 'live', maxValues: 500, maxBytes: 0, alongValues: 500 },
      },
    ],
    [
      'a try of live values with what the backfill rate lets go along',
      input([due], { outage: OUTAGE, backfill: { available: 7, limited: true, atMs: () => NOW } }),
      {
        ...post,
        kind: 'live',
        trial: true,
        take: { asset: 1, lane: 'live', maxValues: 500, maxBytes: 0, alongValues: 7 },
      },
    ],
    [
      'a try of the backlog',
      input([old], { outage: OUTAGE }),
      { ...post, kind: 'backlog', trial: true, take: { asset: 2, lane: 'backlog', maxValues: 500, maxBytes: 0 } },
    ],
    [
      'a try of a slice',
      input([due], { outage: OUTAGE, ready: [ready(2, 'live', 9), ready(3, 'live', 5, true)] }),
      { do: 'slice', delivery: ready(3, 'live', 5, true), competed: false },
    ],
    [
      'a try of a probe',
      input([due], { outage: OUTAGE, ...held(1), probes: probesOf(1) }),
      {
        ...post,
        kind: 'probe',
        trial: true,
        take: { asset: 1, lane: 'backlog', maxValues: 50, maxBytes: 0 },
        probe: { asset: 1, maxValues: 50 },
      },
    ],
    ['nothing, for as long as nothing changes', input([]), { do: 'wait', untilMs: NEVER }],
  ];

  it.each(table)('%s', (_name, given, whole) => {
    expect(plan(given)).toStrictEqual(whole);
  });
});

describe('a stock of assets goes', () => {
  const options = { ...OPTIONS, concurrency: 100 };

  it('live values in the order of their turns, of equal ones the oldest values first, of equal ones as they came', () => {
    const lanes = [
      lane(1, 3, 10_000),
      lane(2, 3, 10_000),
      lane(3, 3, 12_000),
      lane(4, 3, 12_000),
      lane(5, 5_000, 0),
      lane(6, 3, 11_000),
      lane(7, 3, 9_000),
      lane(8, 3, 9_500),
      lane(9, 3, 30_000),
    ];
    const entries: Entries = [
      [1, { dueSinceMs: NOW - 100 }],
      [2, { dueSinceMs: NOW - 100 }],
      [3, { dueSinceMs: NOW - 100 }],
      [4, { dueSinceMs: NOW - 100 }],
      // Its turn has come just now, as that of one of which nothing is known yet.
      [6, { dueSinceMs: NOW }],
      [7, { dueSinceMs: NOW - 9_000 }],
      [9, { dueSinceMs: NOW - 101 }],
    ];
    const all = ['live 9', 'live 3', 'live 4', 'live 1', 'live 2', 'live 6', 'live 5', 'wait 500'];
    expect(goAll(input(lanes, { options }, entries))).toEqual(all);
    expect(goAll(input(lanes.toReversed(), { options }, entries))).toEqual([
      'live 9',
      'live 4',
      'live 3',
      'live 2',
      'live 1',
      'live 6',
      'live 5',
      'wait 500',
    ]);
    // As many as there are sockets.
    const three = { ...options, concurrency: 3 };
    expect(goAll(input(lanes, { options: three }, entries))).toEqual([...all.slice(0, 3), `wait ${NEVER}`]);
  });

  it('backlog by the age of what waits, of equal ones as they came', () => {
    const lanes = [4, 3, 4, 5, 3].map((place, i) => lane(i + 1, 0, 0, MAX, place));
    const gone = (given: AssetLanes[]) => goAll(input(given, { options }));
    expect(gone(lanes)).toEqual(['backlog 2', 'backlog 5', 'backlog 1', 'backlog 3', 'backlog 4', `wait ${NEVER}`]);
    expect(gone(lanes.toReversed())).toEqual([
      'backlog 5',
      'backlog 2',
      'backlog 3',
      'backlog 1',
      'backlog 4',
      `wait ${NEVER}`,
    ]);
  });

  it('four of live values, then one of the backlog; what is left alone competes no more', () => {
    const lives = [1, 2, 3, 4, 5, 6].map((asset) => lane(asset, 3, 10_000));
    const lanes = [...lives, lane(7, 0, 0, MAX, 1), lane(8, 0, 0, MAX, 2), lane(9, 0, 0, MAX, 3)];
    expect(goAll(input(lanes, { options }))).toEqual([
      'live 1!',
      'live 2!',
      'live 3!',
      'live 4!',
      'backlog 7!',
      'live 5!',
      'live 6!',
      'backlog 8',
      'backlog 9',
      `wait ${NEVER}`,
    ]);
  });

  it('nine posts, then a probe, and when nothing else is left the other probes', () => {
    const lives = Array.from({ length: 10 }, (_, i) => lane(i + 1, 3, 10_000));
    const probes: ProbeView[] = [...probesOf(21, 22), { asset: 23, onlySeries: [7], maxValues: 1 }];
    const lanes = [...lives, lane(21, 3, 0), lane(22, 3, 0)];
    const said = goAll(input(lanes, { options, ...held(21, 22), probes, postsSinceProbe: 0 }));
    const nine = lives.slice(0, 9).map(({ asset }) => `live ${asset}`);
    expect(said).toEqual([...nine, 'probe 21', 'live 10', 'probe 22', 'probe 23/7', `wait ${NEVER}`]);
  });

  it('slices beside whole batches: of live values by whose turn came first, of the backlog by who was served longest ago', () => {
    const lanes = [lane(1, 3, 10_000), lane(2, 3, 10_000), lane(3, 0, 0, MAX, 1), lane(4, 0, 0, MAX, 2)];
    const slices = [ready(5, 'live', 200), ready(6, 'live', 99), ready(7, 'backlog', 500), ready(8, 'backlog', 500)];
    const entries: Entries = [
      [1, { dueSinceMs: NOW - 200 }],
      [2, { dueSinceMs: NOW - 100 }],
      [3, { lastPostAtMs: NOW - 501 }],
      [4, { lastPostAtMs: NOW - 500 }],
    ];
    const said = goAll(input(lanes, { options, ready: slices }, entries));
    expect(said).toEqual([
      'slice live 5!',
      'live 1!',
      'live 2!',
      'slice live 6!',
      'backlog 3',
      'slice backlog 7',
      'slice backlog 8',
      'backlog 4',
      `wait ${NEVER}`,
    ]);
  });

  it('only the backlog of each asset, and then what is live of others, where the order is oldest-first', () => {
    const lanes = [lane(1, 3, 10_000, 5, 2), lane(2, 3, 10_000), lane(3, 3, 10_000), lane(4, 3, 10_000, 1, 1)];
    const entries: Entries = [
      [3, { backlog: { asset: 3 } }],
      [4, { lastPostAtMs: NOW - 1, lastBacklogAtMs: NOW - 1 }],
    ];
    const said = goAll(input(lanes, { options: { ...OLDEST_FIRST, concurrency: 100 } }, entries));
    expect(said).toEqual(['live 2!', 'backlog 4', 'backlog 1', `wait ${NEVER}`]);
  });

  it('never a batch of a lane beside one of it, nor one that is held, whatever waits', () => {
    const stock = [1, 2, 3, 4].map((asset) => lane(asset, MAX, 0, MAX, asset));
    const entries: Entries = [
      [1, { live: { asset: 1 } }],
      [2, { backlog: { asset: 2 } }],
      [3, { live: { asset: 3 }, backlog: { asset: 3 } }],
    ];
    expect(goAll(input(stock, { options, ...held(4) }, entries))).toEqual(['live 2!', 'backlog 1', `wait ${NEVER}`]);
  });
});

describe('while the platform is unavailable, there is tried', () => {
  it('one asset after the other, whoever was posted longest ago, of equal ones as they came', () => {
    const lanes = [
      lane(1, 3, 0),
      lane(2, 0, 0, 5, 1),
      lane(3, 3, 0),
      lane(4, 3, 0, 5, 1),
      lane(5, 0, 0),
      lane(6, 3, 0),
    ];
    lanes.push(lane(7, 3, 0), lane(8, 3, 0));
    const last = new Map([
      [1, NOW - 50],
      [2, NOW - 50],
      [3, NOW - 60],
      [7, NOW - 90],
      [8, NOW - 90],
    ]);
    const tried: string[] = [];
    for (let turn = 0; turn < 6; turn++) {
      const entries: Entries = [...last].map(([asset, lastPostAtMs]) => [asset, { lastPostAtMs }]);
      entries.push(
        [7, { lastPostAtMs: NOW - 90, live: { asset: 7 } }],
        [8, { lastPostAtMs: NOW - 90, backlog: { asset: 8 } }],
      );
      const decision = plan(input(lanes, { outage: OUTAGE, ...held(6) }, entries));
      tried.push(words(decision));
      if (decision.do === 'post') last.set(decision.take.asset, NOW + turn);
    }
    expect(tried).toEqual([
      'live 4 trial',
      'live 3 trial',
      'live 1 trial',
      'backlog 2 trial',
      'live 4 trial',
      'live 3 trial',
    ]);
  });

  it('nothing beside what is tried already but slices of that', () => {
    const lanes = [lane(1, 3, 10_000), lane(2, 0, 0, MAX, 1)];
    const outage = { nextTryAtMs: NOW, trialUnderWay: true };
    const facts = { outage, probes: probesOf(2) };
    expect(words(plan(input(lanes, facts)))).toBe(`wait ${NEVER}`);
    expect(words(plan(input(lanes, { ...facts, ready: [ready(3, 'live', 9)] })))).toBe(`wait ${NEVER}`);
    const slices = [ready(3, 'live', 9), ready(4, 'backlog', 5, true)];
    expect(words(plan(input(lanes, { ...facts, ready: slices })))).toBe('slice backlog 4');
  });

  it('live values of the order oldest-first only where the asset has no backlog', () => {
    const tried = (one: AssetLanes, options: PlanInput['options'] = OLDEST_FIRST) =>
      words(plan(input([one], { outage: OUTAGE, options })));
    expect([
      tried(lane(1, 3, 0)),
      tried(lane(1, 3, 0, 1, 1)),
      tried(lane(1, 0, 0, 1, 1)),
      tried(lane(1, 3, 0, 1, 1), OPTIONS),
      tried(lane(1, 1, 0), OPTIONS),
    ]).toEqual(['live 1 trial', 'backlog 1 trial', 'backlog 1 trial', 'live 1 trial', 'live 1 trial']);
  });
});

describe('a probe goes out', () => {
  it('of whoever has something to be tried with, is not under way and does not pause', () => {
    const series: ProbeView = { asset: 5, onlySeries: [7, 8], maxValues: 1 };
    const lanes = [lane(2, 3, 0), lane(3, 3, 0), lane(4, 3, 0), lane(6, 3, 0)];
    const entries: Entries = [
      [2, { live: { asset: 2 } }],
      [3, { backlog: { asset: 3 } }],
      [4, { pausedUntilMs: NOW + 70 }],
      [6, { pausedUntilMs: NOW + 60 }],
    ];
    const facts = { ...held(1, 2, 3, 4, 5, 6), probes: [...probesOf(1, 2, 3, 4), series, ...probesOf(6)] };
    expect(goAll(input(lanes, facts, entries))).toEqual(['probe 5/7,8', 'wait 60']);
    // What is of an asset that is under way waits with it, also where it names its series.
    const busy: Entries = [...entries, [5, { live: { asset: 5 } }]];
    expect(goAll(input(lanes, facts, busy))).toEqual(['wait 60']);
    expect(goAll(input(lanes, { ...facts, outage: OUTAGE }, entries))[0]).toBe('probe 5/7,8 trial');
  });
});
