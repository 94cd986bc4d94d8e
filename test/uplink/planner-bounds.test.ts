/** What the planner decides at each bound: one below it, at it, one above. */
import { describe, expect, it } from 'vitest';
import type { AssetLanes } from '../../src/buffer/client/lanes.ts';
import {
  creditAfter,
  liveDueAtMs,
  type PlanInput,
  type PostDecision,
  plan,
  type ScheduledAssetView,
} from '../../src/uplink/planner.ts';
import { held, input, lane, NEVER, NOW, probesOf, ready, words } from './plan-input.ts';
import { OPTIONS } from './plant.ts';

const OLDEST_FIRST = { ...OPTIONS, drainOrder: 'oldest-first' as const };
const { postIntervalMs: INTERVAL_MS, postMaxValues: MAX } = OPTIONS;
const OUTAGE = { nextTryAtMs: NOW, trialUnderWay: false };

/** What is decided where a number is one below a bound, at it, and one above. */
const around = (of: (by: number) => PlanInput) => [-1, 0, 1].map((by) => words(plan(of(by))));

type Facts = Partial<PlanInput>;
type Entries = [number, Partial<ScheduledAssetView>][];

describe('at its bound', () => {
  const live = (facts: Facts, entries: Entries = []) => input([lane(1, 3, 10_000)], facts, entries);
  const old = (facts: Facts, entries: Entries = []) => input([lane(1, 0, 0, MAX, 1)], facts, entries);
  const both = (facts: Facts) => input([lane(1, 3, 10_000), lane(2, 0, 0, MAX, 1)], facts);
  const probe = (facts: Facts, entries: Entries = []) =>
    input([lane(1, 3, 0)], { ...held(1), probes: probesOf(1), ...facts }, entries);
  const never = `wait ${NEVER}`;
  const table: [string, (by: number) => PlanInput, string[]][] = [
    [
      'live values are due after POST_INTERVAL',
      (by) => input([lane(1, 3, 10_000 + by)]),
      ['wait 1', 'live 1', 'live 1'],
    ],
    ['and at once where they fill a post', (by) => input([lane(1, MAX + by, 0)]), ['wait 10000', 'live 1', 'live 1']],
    [
      'there are sockets',
      (by) => live({ underWay: { all: 4 + by, backlog: 0, failing: 0 } }),
      ['live 1', never, never],
    ],
    [
      'the backlog has all of them but one',
      (by) => old({ underWay: { all: 3, backlog: 3 + by, failing: 0 } }),
      ['backlog 1', never, never],
    ],
    [
      'one that fails has half of them',
      (by) => live({ underWay: { all: 2, backlog: 0, failing: 2 + by } }, [[1, { failures: 1 }]]),
      ['live 1', never, never],
    ],
    [
      'so has its backlog',
      (by) => old({ underWay: { all: 2, backlog: 0, failing: 2 + by } }, [[1, { failures: 1 }]]),
      ['backlog 1', never, never],
    ],
    [
      'one that does not fail has them all',
      (by) => live({ underWay: { all: 3, backlog: 0, failing: 3 + by } }, [[1, { failures: 0 }]]),
      ['live 1', 'live 1', 'live 1'],
    ],
    ['the budget is free', (by) => live({ freeAtMs: NOW + by }), ['live 1', 'live 1', 'wait 1']],
    ['and for the backlog', (by) => old({ freeAtMs: NOW + by }), ['backlog 1', 'backlog 1', 'wait 1']],
    ['it is free for a probe', (by) => probe({ probeFreeAtMs: NOW + by }), ['probe 1', 'probe 1', 'wait 1']],
    ['a pause ends', (by) => live({}, [[1, { pausedUntilMs: NOW + by }]]), ['live 1', 'live 1', 'wait 1']],
    ['and for the backlog', (by) => old({}, [[1, { pausedUntilMs: NOW + by }]]), ['backlog 1', 'backlog 1', 'wait 1']],
    ['and for a probe', (by) => probe({}, [[1, { pausedUntilMs: NOW + by }]]), ['probe 1', 'probe 1', 'wait 1']],
    [
      'it is the turn of probes',
      (by) => input([lane(1, 3, 0), lane(2, 3, 10_000)], { ...held(1), probes: probesOf(1), postsSinceProbe: 9 + by }),
      ['live 2', 'probe 1', 'probe 1'],
    ],
    [
      'and of one beside the backlog',
      (by) =>
        input([lane(1, 3, 0), lane(2, 0, 0, MAX, 1)], { ...held(1), probes: probesOf(1), postsSinceProbe: 9 + by }),
      ['backlog 2', 'probe 1', 'probe 1'],
    ],
    [
      'a post is owed to the backlog',
      (by) => both({ backlogCredit: 1 + by / 100 }),
      ['live 1!', 'backlog 2!', 'backlog 2!'],
    ],
    ['where there is none, live values go', (by) => live({ backlogCredit: 1 + by }), ['live 1', 'live 1', 'live 1']],
    [
      'where there are no live values, the backlog',
      (by) => old({ backlogCredit: 1 + by }),
      ['backlog 1', 'backlog 1', 'backlog 1'],
    ],
    [
      'the turn of a slice came first',
      (by) => live({ ready: [ready(2, 'live', 200)] }, [[1, { dueSinceMs: NOW - 200 + by }]]),
      ['live 1', 'slice live 2', 'slice live 2'],
    ],
    [
      'a slice was served longest ago',
      (by) => old({ ready: [ready(2, 'backlog', 200)] }, [[1, { lastPostAtMs: NOW - 200 + by }]]),
      ['backlog 1', 'slice backlog 2', 'slice backlog 2'],
    ],
    [
      'a backlog that does not fill a post waits for an interval',
      (by) => input([lane(1, 0, 0, 20, 1)], {}, [[1, { lastPostAtMs: NOW - INTERVAL_MS + by }]]),
      ['backlog 1', 'backlog 1', 'wait 1'],
    ],
    [
      'one that fills it does not',
      (by) => input([lane(1, 0, 0, MAX + by, 1)], {}, [[1, { lastPostAtMs: NOW }]]),
      ['wait 10000', 'backlog 1', 'backlog 1'],
    ],
    [
      'one beside live values waits for two',
      (by) => input([lane(1, 3, 0, 20, 1)], {}, [[1, { lastBacklogAtMs: NOW - 2 * INTERVAL_MS + by }]]),
      ['backlog 1', 'backlog 1', 'wait 1'],
    ],
    [
      'one beside a value under a rate waits for an interval',
      (by) =>
        input([lane(1, 1, 0, 20, 1)], { backfill: { available: 20, limited: true, atMs: () => NOW } }, [
          [1, { lastPostAtMs: NOW - INTERVAL_MS + by, lastBacklogAtMs: NOW }],
        ]),
      ['backlog 1', 'backlog 1', 'wait 1'],
    ],
    [
      'a try is due',
      (by) => live({ outage: { nextTryAtMs: NOW + by, trialUnderWay: false } }),
      ['live 1 trial', 'live 1 trial', 'wait 1'],
    ],
    ['and paid', (by) => live({ outage: OUTAGE, freeAtMs: NOW + by }), ['live 1 trial', 'live 1 trial', 'wait 1']],
    [
      'a slice of it waits for the budget alone',
      (by) =>
        live({
          outage: { nextTryAtMs: NOW + 5_000, trialUnderWay: true },
          ready: [ready(2, 'live', 5, true)],
          freeAtMs: NOW + by,
        }),
      ['slice live 2', 'slice live 2', 'wait 1'],
    ],
  ];

  it.each(table)('%s', (_name, of, three) => {
    expect(around(of)).toEqual(three);
  });

  it.each([
    [1, 1, 1],
    [2, 1, 1],
    [3, 2, 1],
    [4, 3, 2],
    [5, 4, 2],
    [8, 7, 4],
  ])('of %d sockets the backlog has %d, and assets that fail %d', (concurrency, backlog, failing) => {
    const options = { ...OPTIONS, concurrency };
    const had = (of: (taken: number) => PlanInput) =>
      Array.from({ length: concurrency }, (_, taken) => plan(of(taken)).do).lastIndexOf('post') + 1;
    const none = { all: 0, backlog: 0, failing: 0 };
    expect(had((taken) => old({ options, underWay: { ...none, backlog: taken } }))).toBe(backlog);
    const fails: Entries = [[1, { failures: 1 }]];
    expect(had((taken) => live({ options, underWay: { ...none, failing: taken } }, fails))).toBe(failing);
  });

  it('requests are scarce where one for each asset that waits takes a quarter of POST_INTERVAL', () => {
    const lanes = [lane(1, 3, 0, MAX, 1), ...[2, 3, 4, 5].map((asset) => lane(asset, 3, 0))];
    const takes = [-1, 0, 1].map((by) => {
      const decision = plan(input(lanes, { requestIntervalMs: INTERVAL_MS / 20 + by }));
      return decision.do === 'post' && `${decision.kind} ${decision.take.lane}`;
    });
    expect(takes).toEqual(['backlog backlog', 'backlog live', 'backlog live']);
  });

  it('a rate lets the backlog wait until a post of it is saved up, however it is to go', () => {
    const asked: number[] = [];
    const saving = (ms: number) => ({
      available: 1,
      limited: true,
      atMs: (values: number) => {
        asked.push(values);
        return NOW + ms;
      },
    });
    const wait = (lanes: AssetLanes, entry: Partial<ScheduledAssetView> = {}, options = OPTIONS, ms = 700) =>
      words(plan(input([lanes], { backfill: saving(ms), options }, [[1, entry]])));
    expect([
      wait(lane(1, 0, 0, 9_000, 1)),
      wait(lane(1, 0, 0, 20, 1)),
      wait(lane(1, 0, 0, 30, 1), { isDraining: true, lastPostAtMs: NOW }),
      wait(lane(1, 0, 0, 40, 1), { lastPostAtMs: NOW }, OLDEST_FIRST),
      // Both must be over: the interval since its last post, and the wait for the rate.
      wait(lane(1, 0, 0, 50, 1), { lastPostAtMs: NOW - 9_000 }),
      wait(lane(1, 0, 0, 60, 1), { lastPostAtMs: NOW - 9_800 }),
      wait(lane(1, 1, 0, 70, 1), { lastPostAtMs: NOW - 9_500, lastBacklogAtMs: NOW }),
      wait(lane(1, 0, 0, MAX, 1), {}, OPTIONS, 0),
      wait(lane(1, 0, 0, MAX, 1), {}, OPTIONS, 1),
    ]).toEqual([
      'wait 700',
      'wait 700',
      'wait 700',
      'wait 700',
      'wait 1000',
      'wait 700',
      'wait 700',
      'backlog 1',
      'wait 1',
    ]);
    expect(asked).toEqual([MAX, 20, 30, 40, 50, 60, 70, MAX, MAX]);
  });
});

it('the planner looks again at the first moment at which something changes by itself', () => {
  const changes: [number, AssetLanes, Partial<ScheduledAssetView>][] = [
    [100, lane(1, 3, 0), { pausedUntilMs: NOW + 100 }],
    [200, lane(2, 3, INTERVAL_MS - 200), {}],
    [300, lane(3, 0, 0, 5, 1), { lastPostAtMs: NOW - INTERVAL_MS + 300 }],
    [400, lane(4, 0, 0, MAX, 1), { pausedUntilMs: NOW + 400 }],
    [500, lane(5, 3, 0, 5, 1), { lastBacklogAtMs: NOW - 2 * INTERVAL_MS + 500 }],
    [600, lane(6, 3, 0), { pausedUntilMs: NOW + 600 }],
    [700, lane(7, 3, INTERVAL_MS - 700), { dueSinceMs: NOW }],
    [INTERVAL_MS, lane(8, 3, 0), {}],
  ];
  for (let from = 0; from < changes.length; from++) {
    for (const left of [changes.slice(from), changes.slice(from).toReversed()]) {
      const lanes = left.map(([, one]) => one);
      const entries: Entries = left.map(([, { asset }, entry]) => [asset, entry]);
      // 6 is held, and is to be probed when it pauses no longer.
      const probes = left.some(([ms]) => ms === 600) ? probesOf(6) : [];
      expect(words(plan(input(lanes, { ...held(6), probes }, entries)))).toBe(`wait ${changes[from]![0]}`);
    }
  }
});

it('what is owed to the backlog is a quarter more after each live post that went before it, up to one, and one less after one of its own', () => {
  const slice = (which: 'live' | 'backlog', competed: boolean): PostDecision => ({
    do: 'slice',
    delivery: ready(1, which, 5),
    competed,
  });
  const post = (kind: 'live' | 'backlog', which: 'live' | 'backlog', competed: boolean): PostDecision => ({
    do: 'post',
    kind,
    take: { asset: 1, lane: which, maxValues: 1, maxBytes: 0 },
    trial: false,
    competed,
  });
  const after = (decision: PostDecision) => [0, 0.5, 0.75, 1].map((credit) => creditAfter(credit, decision));
  for (const live of [slice('live', true), post('live', 'live', true)]) expect(after(live)).toEqual([0.25, 0.75, 1, 1]);
  // Also one of the backlog that takes live values along.
  for (const backlog of [slice('backlog', true), post('backlog', 'backlog', true), post('backlog', 'live', true)]) {
    expect(after(backlog)).toEqual([0, 0, 0, 0]);
  }
  expect(creditAfter(1.5, slice('backlog', true))).toBe(0.5);
  for (const alone of [slice('live', false), slice('backlog', false), post('live', 'live', false)]) {
    expect(after(alone)).toEqual([0, 0.5, 0.75, 1]);
  }
});

it('live values want to be posted never, after POST_INTERVAL, or at once', () => {
  const due = (live: number) => liveDueAtMs(lane(1, live, 3_000), OPTIONS);
  expect([0, 1, MAX - 1, MAX, MAX + 1].map(due)).toEqual([NEVER, NOW + 7_000, NOW + 7_000, -NEVER, -NEVER]);
});
