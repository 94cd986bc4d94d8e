import { describe, expect, it } from 'vitest';
import { creditAfter, type Decision, type PlanInput, plan } from '../../src/uplink/planner.ts';
import { held, input, lane, NEVER, NOW, probesOf, ready } from './plan-input.ts';
import { OPTIONS } from './plant.ts';

/** `live 7`, `backlog 7`, `probe 7`, `slice 7`, or `wait` with the milliseconds from now. */
function words(decision: Decision): string {
  if (decision.do === 'wait') return `wait ${decision.untilMs - NOW}`;
  if (decision.do === 'slice') return `slice ${decision.delivery.asset}`;
  return `${decision.kind} ${decision.take.asset}${decision.trial ? ' trial' : ''}`;
}

describe('the planner', () => {
  const table: [string, PlanInput, string][] = [
    ['waits for nothing where nothing waits', input([]), `wait ${NEVER}`],
    ['lets a fresh value wait for company', input([lane(1, 3, 4_000)]), 'wait 6000'],
    ['posts it when it has waited POST_INTERVAL', input([lane(1, 3, 10_000)]), 'live 1'],
    ['posts at once what fills a post', input([lane(1, 5_000, 0)]), 'live 1'],
    ['waits for the budget', input([lane(1, 3, 10_000)], { freeAtMs: NOW + 150 }), 'wait 150'],
    [
      'posts nothing while all sockets are taken',
      input([lane(1, 3, 10_000)], { underWay: { all: 4, backlog: 0, failing: 0 } }),
      `wait ${NEVER}`,
    ],
    ['takes nothing while a batch waits to be paid', input([lane(1, 3, 10_000)], { unpaid: true }), `wait ${NEVER}`],
    ['skips a held asset', input([lane(1, 3, 10_000)], { isHeld: () => true }), `wait ${NEVER}`],
    [
      'skips one that pauses until it may',
      input([lane(1, 3, 10_000)], {}, [[1, { pausedUntilMs: NOW + 700, failures: 1 }]]),
      'wait 700',
    ],
    [
      'never posts a second batch of a lane',
      input([lane(1, 3, 10_000)], {}, [[1, { live: { asset: 1 } }]]),
      `wait ${NEVER}`,
    ],
    [
      'lets go first whose turn came first',
      input([lane(1, 3, 11_000), lane(2, 3, 10_500), lane(3, 3, 19_000)], {}, [
        [1, { dueSinceMs: NOW - 900 }],
        [2, { dueSinceMs: NOW - 30_000 }],
        [3, { dueSinceMs: NOW - 800 }],
      ]),
      'live 2',
    ],
    [
      'posts a backlog oldest first',
      input([lane(1, 0, 0, 9, 5), lane(2, 0, 0, 9, 3), lane(3, 0, 0, 9, 4)]),
      'backlog 2',
    ],
    ['lets live go before backlog', input([lane(1, 0, 0, 9_000, 1), lane(2, 3, 10_000)]), 'live 2'],
    [
      'lets backlog go where it is owed',
      input([lane(1, 0, 0, 9_000, 1), lane(2, 3, 10_000)], { backlogCredit: 1 }),
      'backlog 1',
    ],
    [
      'keeps one socket free of backlog',
      input([lane(1, 0, 0, 9_000, 1)], { underWay: { all: 3, backlog: 3, failing: 0 } }),
      `wait ${NEVER}`,
    ],
    [
      'leaves a small backlog to the live post that takes it along',
      input([lane(1, 3, 1_000, 20, 1)], {}, [[1, { lastBacklogAtMs: NOW - 5_000 }]]),
      'wait 9000',
    ],
    [
      'lets a small backlog wait an interval after the last post',
      input([lane(1, 0, 0, 20, 1)], {}, [[1, { lastPostAtMs: NOW - 4_000 }]]),
      'wait 6000',
    ],
    [
      'lets the end of a long backlog follow the rest of it',
      input([lane(1, 0, 0, 20, 1)], {}, [[1, { lastPostAtMs: NOW - 4_000, isDraining: true }]]),
      'backlog 1',
    ],
    [
      'keeps live values back until the backlog is gone where the order is oldest-first',
      input([lane(1, 3, 10_000, 20, 1)], { options: { ...OPTIONS, drainOrder: 'oldest-first' } }),
      'backlog 1',
    ],
    [
      'gives assets in trouble half of the sockets at most',
      input([lane(1, 3, 10_000), lane(2, 3, 10_000)], { underWay: { all: 2, backlog: 0, failing: 2 } }, [
        [1, { failures: 3, dueSinceMs: NOW - 60_000 }],
      ]),
      'live 2',
    ],
    [
      'lets a slice of a divided batch wait for its turn',
      input([lane(2, 3, 10_000)], { ready: [ready(1, 'live', 100)] }, [[2, { dueSinceMs: NOW - 200 }]]),
      'live 2',
    ],
    [
      'posts the slice when its turn has come',
      input([lane(2, 3, 10_000)], { ready: [ready(1, 'live', 300)] }, [[2, { dueSinceMs: NOW - 200 }]]),
      'slice 1',
    ],
    [
      'probes when a probe is due and paid',
      input([lane(1, 3, 10_000), lane(2, 3, 10_000)], { ...held(1), probes: [{ asset: 1, maxValues: 50 }] }),
      'probe 1',
    ],
    [
      'probes the next in turn where the first has nothing to post, is under way or pauses',
      input([lane(2, 3, 0), lane(3, 3, 0), lane(4, 3, 0)], { ...held(1, 2, 3, 4), probes: probesOf(1, 2, 3, 4) }, [
        [2, { live: { asset: 2 } }],
        [3, { pausedUntilMs: NOW + 700, failures: 1 }],
      ]),
      'probe 4',
    ],
    [
      'leaves nine posts of ten to the others while they want them',
      input([lane(1, 3, 0), lane(2, 3, 10_000)], { ...held(1), probes: probesOf(1), postsSinceProbe: 8 }),
      'live 2',
    ],
    [
      'wakes for a probe when the pause of its asset ends',
      input([lane(1, 3, 0)], { ...held(1), probes: probesOf(1) }, [[1, { pausedUntilMs: NOW + 700, failures: 1 }]]),
      'wait 700',
    ],
    [
      'probes out of turn where nobody else wants the post',
      input([lane(1, 3, 0), lane(2, 3, 1_000)], { ...held(1), probes: probesOf(1), postsSinceProbe: 0 }),
      'probe 1',
    ],
    [
      'does not let a probe that must wait delay others',
      input([lane(1, 3, 0), lane(2, 3, 10_000)], { ...held(1), probes: probesOf(1), probeFreeAtMs: NOW + 5_000 }),
      'live 2',
    ],
    [
      'tries nothing before its time while the platform is unavailable',
      input([lane(1, 3, 10_000)], { outage: { nextTryAtMs: NOW + 3_000, trialUnderWay: false } }),
      'wait 3000',
    ],
    [
      'tries one post then, of the asset that was posted longest ago',
      input([lane(1, 3, 0), lane(2, 0, 0, 5, 1)], { outage: { nextTryAtMs: NOW, trialUnderWay: false } }, [
        [1, { lastPostAtMs: NOW - 10 }],
        [2, { lastPostAtMs: NOW - 20 }],
      ]),
      'backlog 2 trial',
    ],
    [
      'tries nothing where nothing is to be tried',
      input([], { outage: { nextTryAtMs: NOW, trialUnderWay: false } }),
      `wait ${NEVER}`,
    ],
    [
      'tries a probe where nothing else is to be tried',
      input([lane(1, 3, 10_000)], {
        ...held(1),
        probes: probesOf(1),
        outage: { nextTryAtMs: NOW, trialUnderWay: false },
      }),
      'probe 1 trial',
    ],
    [
      'tries the backlog first where the order is oldest-first',
      input([lane(1, 3, 0, 5, 1)], {
        outage: { nextTryAtMs: NOW, trialUnderWay: false },
        options: { ...OPTIONS, drainOrder: 'oldest-first' },
      }),
      'backlog 1 trial',
    ],
    [
      'tries live values where the order is oldest-first and there is no backlog',
      input([lane(1, 3, 0)], {
        outage: { nextTryAtMs: NOW, trialUnderWay: false },
        options: { ...OPTIONS, drainOrder: 'oldest-first' },
      }),
      'live 1 trial',
    ],
    [
      'wakes for a probe when its budget comes',
      input([lane(1, 3, 10_000)], { ...held(1), probes: probesOf(1), probeFreeAtMs: NOW + 5_000 }),
      'wait 5000',
    ],
    [
      'posts the backlog on all sockets but one',
      input([lane(1, 0, 0, 9_000, 1)], { underWay: { all: 2, backlog: 2, failing: 0 } }),
      'backlog 1',
    ],
    [
      'keeps the last socket from the backlog',
      input([lane(1, 0, 0, 9_000, 1)], { underWay: { all: 3, backlog: 3, failing: 0 } }),
      `wait ${NEVER}`,
    ],
    [
      'lets a slice of the backlog go before an asset that was served after it came',
      input([lane(1, 0, 0, 9_000, 1)], { ready: [ready(2, 'backlog', 50)] }, [[1, { lastPostAtMs: NOW - 10 }]]),
      'slice 2',
    ],
    [
      'lets it wait for one that was served before',
      input([lane(1, 0, 0, 9_000, 1)], { ready: [ready(2, 'backlog', 50)] }, [[1, { lastPostAtMs: NOW - 100 }]]),
      'backlog 1',
    ],
    [
      'takes the slice that has waited longest',
      input([], { ready: [10, 50, 30].map((ms) => ready(ms, 'live', ms)) }),
      'slice 50',
    ],
    [
      'takes for a lane its own slices',
      input([], { ready: [ready(1, 'live', 50), ready(2, 'backlog', 60)] }),
      'slice 1',
    ],
    [
      'posts a backlog that fills a post though the asset was just posted',
      input([lane(1, 0, 0, 5_000, 1)], {}, [[1, { lastPostAtMs: NOW - 10 }]]),
      'backlog 1',
    ],
    [
      'lets what does not fill one wait for the interval',
      input([lane(1, 0, 0, 4_999, 1)], {}, [[1, { lastPostAtMs: NOW - 10 }]]),
      'wait 9990',
    ],
    [
      'lets it wait for nothing where the order is oldest-first',
      input([lane(1, 0, 0, 4_999, 1)], { options: { ...OPTIONS, drainOrder: 'oldest-first' } }, [
        [1, { lastPostAtMs: NOW - 10 }],
      ]),
      'backlog 1',
    ],
    [
      'tries no second one beside it',
      input([lane(1, 3, 10_000)], { outage: { nextTryAtMs: NOW, trialUnderWay: true } }),
      `wait ${NEVER}`,
    ],
  ];

  it.each(table)('%s', (_name, given, decision) => {
    expect(words(plan(given))).toBe(decision);
  });

  it('takes live values along with the backlog where requests are scarce, although they are not due yet', () => {
    const lanes = [lane(1, 3, 1_000, 9_000, 1), lane(2, 0, 0, 9_000, 2)];
    const take = (facts: Partial<PlanInput>) => {
      const decision = plan(input(lanes, facts));
      return decision.do === 'post' && [decision.kind, decision.take.lane, decision.take.alongValues];
    };
    // Once around both assets takes a quarter of the interval.
    const scarce = OPTIONS.postIntervalMs / 8;
    expect(take({ requestIntervalMs: scarce })).toEqual(['backlog', 'live', OPTIONS.postMaxValues]);
    expect(take({ requestIntervalMs: scarce - 1 })).toEqual(['backlog', 'backlog', undefined]);
    const oldestFirst = { ...OPTIONS, drainOrder: 'oldest-first' as const };
    expect(take({ requestIntervalMs: scarce, options: oldestFirst })).toEqual(['backlog', 'backlog', undefined]);
  });

  it('fills a try after an outage with the backlog, as far as a post and a try may hold', () => {
    const tried = (postMaxValues: number) => {
      const options = { ...OPTIONS, postMaxValues };
      const outage = { nextTryAtMs: NOW, trialUnderWay: false };
      const decision = plan(input([lane(1, 3, 0, 9_000, 1)], { outage, options }));
      return decision.do === 'post' && [decision.take.lane, decision.take.maxValues, decision.take.alongValues];
    };
    const alone = plan(input([lane(1, 0, 0, 9_000, 1)], { outage: { nextTryAtMs: NOW, trialUnderWay: false } }));
    expect(alone).toMatchObject({ take: { lane: 'backlog', maxValues: 500 } });
    expect(alone.do === 'post' && alone.take.alongValues).toBeUndefined();
    expect(tried(10)).toEqual(['live', 10, 10]);
    expect(tried(5_000)).toEqual(['live', 500, 500]);
  });

  it('takes the backlog along with a live post, as far as the backfill rate allows', () => {
    const along = (facts: Partial<PlanInput>) => {
      const decision = plan(input([lane(1, 3, 10_000, 20, 1)], facts));
      return decision.do === 'post' ? decision.take.alongValues : undefined;
    };
    expect(along({})).toBe(5_000);
    expect(along({ backfill: { available: 7, limited: true, atMs: () => NOW + 900 } })).toBe(7);
  });

  it('gives the backlog one of five posts while both want them', () => {
    const lanes = [lane(1, 0, 0, 9_000, 1), lane(2, 3, 10_000)];
    const sent = { live: 0, backlog: 0 };
    let credit = 0;
    for (let i = 0; i < 100; i++) {
      const decision = plan(input(lanes, { backlogCredit: credit }));
      if (decision.do !== 'post' || decision.kind === 'probe') throw new Error('not a post');
      sent[decision.kind]++;
      credit = creditAfter(credit, decision);
    }
    expect(sent).toEqual({ live: 80, backlog: 20 });
  });
});
