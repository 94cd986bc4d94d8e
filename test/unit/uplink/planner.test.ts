import { describe, expect, it } from 'vitest';
import { creditAfter, type Decision, type PlanInput, plan } from '../../../src/uplink/planner.ts';
import { held, input, lane, NEVER, NOW, probesOf, ready } from './plan-input.ts';
import { OPTIONS } from './plant.ts';

/** Formats a decision as `live 7`, `backlog 7`, `probe 7`, `slice 7`, or `wait` with the milliseconds from now. */
function format(decision: Decision): string {
  if (decision.do === 'wait') return `wait ${decision.untilMs - NOW}`;
  if (decision.do === 'slice') return `slice ${decision.delivery.asset}`;
  return `${decision.kind} ${decision.take.asset}${decision.trial ? ' trial' : ''}`;
}

describe('planner', () => {
  const table: [string, PlanInput, string][] = [
    ['waits without a timer if there are no values', input([]), `wait ${NEVER}`],
    ['delays a new value until POST_INTERVAL has passed', input([lane(1, 3, 4_000)]), 'wait 6000'],
    ['posts a value that has waited for POST_INTERVAL', input([lane(1, 3, 10_000)]), 'live 1'],
    ['posts at once if the values fill a post', input([lane(1, 5_000, 0)]), 'live 1'],
    ['waits until the budget has a request', input([lane(1, 3, 10_000)], { freeAtMs: NOW + 150 }), 'wait 150'],
    [
      'posts nothing while all sockets are in use',
      input([lane(1, 3, 10_000)], { inProgress: { all: 4, backlog: 0, failing: 0, probes: 0 } }),
      `wait ${NEVER}`,
    ],
    [
      'reads no batch while another one is waiting for its request',
      input([lane(1, 3, 10_000)], { unpaid: true }),
      `wait ${NEVER}`,
    ],
    ['posts nothing for a held asset', input([lane(1, 3, 10_000)], { isHeld: () => true }), `wait ${NEVER}`],
    [
      'waits until an asset’s pause ends',
      input([lane(1, 3, 10_000)], {}, [[1, { pausedUntilMs: NOW + 700, failures: 1 }]]),
      'wait 700',
    ],
    [
      'never posts two batches of a lane at a time',
      input([lane(1, 3, 10_000)], {}, [[1, { live: { asset: 1 } }]]),
      `wait ${NEVER}`,
    ],
    [
      'posts the asset that became due first',
      input([lane(1, 3, 11_000), lane(2, 3, 10_500), lane(3, 3, 19_000)], {}, [
        [1, { dueSinceMs: NOW - 900 }],
        [2, { dueSinceMs: NOW - 30_000 }],
        [3, { dueSinceMs: NOW - 800 }],
      ]),
      'live 2',
    ],
    [
      'posts the oldest backlog first',
      input([lane(1, 0, 0, 9, 5), lane(2, 0, 0, 9, 3), lane(3, 0, 0, 9, 4)]),
      'backlog 2',
    ],
    ['posts live values before the backlog', input([lane(1, 0, 0, 9_000, 1), lane(2, 3, 10_000)]), 'live 2'],
    [
      'posts the backlog before live values if it has credit',
      input([lane(1, 0, 0, 9_000, 1), lane(2, 3, 10_000)], { backlogCredit: 1 }),
      'backlog 1',
    ],
    [
      'reserves one socket for live values',
      input([lane(1, 0, 0, 9_000, 1)], { inProgress: { all: 3, backlog: 3, failing: 0, probes: 0 } }),
      `wait ${NEVER}`,
    ],
    [
      'includes a small backlog in the next live post',
      input([lane(1, 3, 1_000, 20, 1)], {}, [[1, { lastBacklogAtMs: NOW - 5_000 }]]),
      'wait 9000',
    ],
    [
      'delays a small backlog for POST_INTERVAL after the latest post',
      input([lane(1, 0, 0, 20, 1)], {}, [[1, { lastPostAtMs: NOW - 4_000 }]]),
      'wait 6000',
    ],
    [
      'posts the end of a long backlog without a delay',
      input([lane(1, 0, 0, 20, 1)], {}, [[1, { lastPostAtMs: NOW - 4_000, isDraining: true }]]),
      'backlog 1',
    ],
    [
      'posts the backlog before live values if the order is oldest-first',
      input([lane(1, 3, 10_000, 20, 1)], { options: { ...OPTIONS, drainOrder: 'oldest-first' } }),
      'backlog 1',
    ],
    [
      'uses at most half of the sockets for failing assets',
      input([lane(1, 3, 10_000), lane(2, 3, 10_000)], { inProgress: { all: 2, backlog: 0, failing: 2, probes: 0 } }, [
        [1, { failures: 3, dueSinceMs: NOW - 60_000 }],
      ]),
      'live 2',
    ],
    [
      'posts an asset that became due before a split batch',
      input([lane(2, 3, 10_000)], { ready: [ready(1, 'live', 100)] }, [[2, { dueSinceMs: NOW - 200 }]]),
      'live 2',
    ],
    [
      'posts a split batch that became ready before an asset',
      input([lane(2, 3, 10_000)], { ready: [ready(1, 'live', 300)] }, [[2, { dueSinceMs: NOW - 200 }]]),
      'slice 1',
    ],
    [
      'sends a due probe if the budget allows',
      input([lane(1, 3, 10_000), lane(2, 3, 10_000)], { ...held(1), probes: [{ asset: 1, maxValues: 50 }] }),
      'probe 1',
    ],
    [
      'probes the next asset if the first ones have no values, are in progress or are paused',
      input([lane(2, 3, 0), lane(3, 3, 0), lane(4, 3, 0)], { ...held(1, 2, 3, 4), probes: probesOf(1, 2, 3, 4) }, [
        [2, { live: { asset: 2 } }],
        [3, { pausedUntilMs: NOW + 700, failures: 1 }],
      ]),
      'probe 4',
    ],
    [
      'sends one probe at a time',
      input([lane(1, 3, 0), lane(2, 3, 10_000)], {
        ...held(1),
        probes: probesOf(1),
        inProgress: { all: 1, backlog: 0, failing: 0, probes: 1 },
      }),
      'live 2',
    ],
    [
      'delays a probe until its asset’s pause ends',
      input([lane(1, 3, 0)], { ...held(1), probes: probesOf(1) }, [[1, { pausedUntilMs: NOW + 700, failures: 1 }]]),
      'wait 700',
    ],
    [
      'sends a probe while no other post is due',
      input([lane(1, 3, 0), lane(2, 3, 1_000)], { ...held(1), probes: probesOf(1) }),
      'probe 1',
    ],
    [
      'does not delay posts because of a probe that is waiting for the budget',
      input([lane(1, 3, 0), lane(2, 3, 10_000)], { ...held(1), probes: probesOf(1), probeFreeAtMs: NOW + 5_000 }),
      'live 2',
    ],
    [
      'waits for the next retry during an outage',
      input([lane(1, 3, 10_000)], { outage: { nextTryAtMs: NOW + 3_000, trialInProgress: false } }),
      'wait 3000',
    ],
    [
      'sends a trial post for the asset with the oldest post',
      input([lane(1, 3, 0), lane(2, 0, 0, 5, 1)], { outage: { nextTryAtMs: NOW, trialInProgress: false } }, [
        [1, { lastPostAtMs: NOW - 10 }],
        [2, { lastPostAtMs: NOW - 20 }],
      ]),
      'backlog 2 trial',
    ],
    [
      'sends no trial post without values',
      input([], { outage: { nextTryAtMs: NOW, trialInProgress: false } }),
      `wait ${NEVER}`,
    ],
    [
      'sends a probe as the trial post if all assets are held',
      input([lane(1, 3, 10_000)], {
        ...held(1),
        probes: probesOf(1),
        outage: { nextTryAtMs: NOW, trialInProgress: false },
      }),
      'probe 1 trial',
    ],
    [
      'sends a trial post from the backlog if the order is oldest-first',
      input([lane(1, 3, 0, 5, 1)], {
        outage: { nextTryAtMs: NOW, trialInProgress: false },
        options: { ...OPTIONS, drainOrder: 'oldest-first' },
      }),
      'backlog 1 trial',
    ],
    [
      'sends a trial post with live values if the order is oldest-first and there is no backlog',
      input([lane(1, 3, 0)], {
        outage: { nextTryAtMs: NOW, trialInProgress: false },
        options: { ...OPTIONS, drainOrder: 'oldest-first' },
      }),
      'live 1 trial',
    ],
    [
      'waits until the budget allows a probe',
      input([lane(1, 3, 10_000)], { ...held(1), probes: probesOf(1), probeFreeAtMs: NOW + 5_000 }),
      'wait 5000',
    ],
    [
      'posts the backlog on all sockets except one',
      input([lane(1, 0, 0, 9_000, 1)], { inProgress: { all: 2, backlog: 2, failing: 0, probes: 0 } }),
      'backlog 1',
    ],
    [
      'posts a ready slice of the backlog before an asset with a later post',
      input([lane(1, 0, 0, 9_000, 1)], { ready: [ready(2, 'backlog', 50)] }, [[1, { lastPostAtMs: NOW - 10 }]]),
      'slice 2',
    ],
    [
      'posts an asset with an earlier post before a ready slice of the backlog',
      input([lane(1, 0, 0, 9_000, 1)], { ready: [ready(2, 'backlog', 50)] }, [[1, { lastPostAtMs: NOW - 100 }]]),
      'backlog 1',
    ],
    [
      'posts the slice that has been ready longest',
      input([], { ready: [10, 50, 30].map((ms) => ready(ms, 'live', ms)) }),
      'slice 50',
    ],
    [
      'posts live slices before backlog slices',
      input([], { ready: [ready(1, 'live', 50), ready(2, 'backlog', 60)] }),
      'slice 1',
    ],
    [
      'posts a backlog that fills a post immediately after another post',
      input([lane(1, 0, 0, 5_000, 1)], {}, [[1, { lastPostAtMs: NOW - 10 }]]),
      'backlog 1',
    ],
    [
      'delays a backlog that does not fill a post',
      input([lane(1, 0, 0, 4_999, 1)], {}, [[1, { lastPostAtMs: NOW - 10 }]]),
      'wait 9990',
    ],
    [
      'does not delay a small backlog if the order is oldest-first',
      input([lane(1, 0, 0, 4_999, 1)], { options: { ...OPTIONS, drainOrder: 'oldest-first' } }, [
        [1, { lastPostAtMs: NOW - 10 }],
      ]),
      'backlog 1',
    ],
    [
      'sends one trial post at a time',
      input([lane(1, 3, 10_000)], { outage: { nextTryAtMs: NOW, trialInProgress: true } }),
      `wait ${NEVER}`,
    ],
  ];

  it.each(table)('%s', (_name, given, decision) => {
    expect(format(plan(given))).toBe(decision);
  });

  it('adds upcoming live values to a backlog post if requests are scarce', () => {
    const lanes = [lane(1, 3, 1_000, 9_000, 1), lane(2, 0, 0, 9_000, 2)];
    const take = (facts: Partial<PlanInput>) => {
      const decision = plan(input(lanes, facts));
      return decision.do === 'post' && [decision.kind, decision.take.lane, decision.take.alongValues];
    };
    const scarce = OPTIONS.postIntervalMs / 8;
    expect(take({ requestIntervalMs: scarce })).toEqual(['backlog', 'live', OPTIONS.postMaxValues]);
    expect(take({ requestIntervalMs: scarce - 1 })).toEqual(['backlog', 'backlog', undefined]);
    const oldestFirst = { ...OPTIONS, drainOrder: 'oldest-first' as const };
    expect(take({ requestIntervalMs: scarce, options: oldestFirst })).toEqual(['backlog', 'backlog', undefined]);
  });

  it('fills a trial post with backlog values, up to the post and trial limits', () => {
    const tried = (postMaxValues: number) => {
      const options = { ...OPTIONS, postMaxValues };
      const outage = { nextTryAtMs: NOW, trialInProgress: false };
      const decision = plan(input([lane(1, 3, 0, 9_000, 1)], { outage, options }));
      return decision.do === 'post' && [decision.take.lane, decision.take.maxValues, decision.take.alongValues];
    };
    const alone = plan(input([lane(1, 0, 0, 9_000, 1)], { outage: { nextTryAtMs: NOW, trialInProgress: false } }));
    expect(alone).toMatchObject({ take: { lane: 'backlog', maxValues: 500 } });
    expect(alone.do === 'post' && alone.take.alongValues).toBeUndefined();
    expect(tried(10)).toEqual(['live', 10, 10]);
    expect(tried(5_000)).toEqual(['live', 500, 500]);
  });

  it('adds backlog values to a live post, up to the backfill rate', () => {
    const along = (facts: Partial<PlanInput>) => {
      const decision = plan(input([lane(1, 3, 10_000, 20, 1)], facts));
      return decision.do === 'post' ? decision.take.alongValues : undefined;
    };
    expect(along({})).toBe(5_000);
    expect(along({ backfill: { available: 7, limited: true, atMs: () => NOW + 900 } })).toBe(7);
  });

  it('reserves one of five posts for the backlog while live values are due', () => {
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
