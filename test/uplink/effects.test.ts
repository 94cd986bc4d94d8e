import { beforeEach, describe, expect, it } from 'vitest';
import type { BatchDelivery } from '../../src/uplink/batch-delivery.ts';
import { MAX_LONE_REFUSALS } from '../../src/uplink/series-waits.ts';
import { batch, EffectsWorld, said } from './effects-world.ts';

/** All that store, access, budget, hooks and log are told after an answer, in its order, and what is different afterwards. */
const [DEBUG, INFO, WARN, ERROR] = [20, 30, 40, 50];
const MINUTE = 60_000;
const LATER = { level: DEBUG, event: 'uplink.later', batch: 'x-1', asset: 7 };
const SETTLED = { level: DEBUG, event: 'uplink.settled', batch: 'x-1', asset: 7, values: 10 };
const STORE_FAILED = { level: ERROR, event: 'uplink.store_failed', error: 'the disk is away' };

let world: EffectsWorld;

beforeEach(() => {
  world = new EffectsWorld();
});

describe('a slice that is accepted while the disk is slow', () => {
  const accept = (delivery: BatchDelivery) => {
    const posted = { post: world.faults.number(), startedMs: world.clock.monotonicMs() };
    return world.effects.meet(delivery, {
      kind: 'answered',
      answer: { ...posted, verdict: said(204), askedMs: 0, at: world.faults.next },
    });
  };
  const turns = async () => {
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  };

  it.each([
    ['a look at refused values', () => world.effects.lookAtParked(), 'ready'],
    ['a recall', () => world.effects.recallAll(), 'over'],
  ])('keeps its batch until the store has settled it, despite %s', async (_name, interrupt, finalState) => {
    const disk = world.holdSettlements();
    const deferred = [{ batch: batch(5, 1, [1]), refusal: { status: 400, message: 'no' }, at: 0 }];
    const delivery = world.begin({}, { deferred });
    const accepted = accept(delivery);
    interrupt();
    await turns();
    expect(delivery.state.kind).toBe('deciding');
    expect(world.heard()).not.toContain('store: release 5');
    disk.resolve();
    await accepted;
    await world.effects.settled();
    expect(delivery.state.kind).toBe(finalState);
    expect(world.effects.deliveredValues).toBe(10);
  });

  it('shows that the platform is available before the store has settled it', async () => {
    for (const asset of [8, 9]) world.faults.met('refused', asset);
    const disk = world.holdSettlements();
    const accepted = accept(world.begin({ asset: 10 }));
    const refused = world.begin({}, { isDivided: true }, batch(2, 1, [1]));
    await world.answer(refused, said(400));
    expect(world.availability.outage).toBeUndefined();
    expect(refused.state.kind).toBe('parked');
    disk.resolve();
    await accepted;
  });
});

describe('a slice that is taken', () => {
  it('is settled, told and counted; its batch is over where it was the last', async () => {
    await world.clock.advance(5_000);
    const delivery = world.begin({ acceptedMs: world.clock.monotonicMs() - 250 });
    expect(await world.answer(delivery, said(204))).toEqual([
      'store: settle 1',
      { ...SETTLED, slice: 1, post: 0 },
      'hook: delivered 10 after 250',
      'wake',
    ]);
    expect([delivery.state, world.schedule.deliveries.size]).toEqual([{ kind: 'over' }, 0]);
    expect(world.effects).toMatchObject({
      deliveredValues: 10,
      quarantinedValues: 0,
      lastDeliveredMs: world.clock.wallMs(),
      lastRefusal: undefined,
    });
  });

  it('is followed by the others of its batch; of the backlog alone nobody has waited', async () => {
    const delivery = world.begin({ lane: 'backlog', kind: 'backlog' }, { waiting: [batch(2, 5)] });
    expect(await world.answer(delivery, said(204))).toContain('hook: delivered 10 after undefined');
    expect(delivery.state).toMatchObject({ kind: 'ready', slices: { waiting: [{ id: 2 }], taken: 1 } });
    await world.effects.meet(delivery, { kind: 'turn' });
    await world.effects.meet(delivery, { kind: 'sent' });
    await world.answer(delivery, said(204));
    expect(world.effects.deliveredValues).toBe(15);
  });

  it('counts once the store has settled it, however long that takes', async () => {
    world.storeFailures = 3;
    const answered = world.answer(world.begin(), said(204));
    await world.clock.advance(2_999);
    expect(world.heard()).toEqual([
      'store: settle 1',
      { ...STORE_FAILED, count: 1 },
      'store: settle 1',
      { ...STORE_FAILED, count: 2 },
      'store: settle 1',
    ]);
    expect([world.effects.deliveredValues, world.effects.lastDeliveredMs]).toEqual([0, undefined]);
    await world.clock.advance(1);
    expect(await answered).toEqual([
      'store: settle 1',
      { ...SETTLED, slice: 1, post: 0 },
      'hook: delivered 10 after undefined',
      'wake',
    ]);
  });

  it('needs nobody who is told', async () => {
    const quiet = new EffectsWorld({});
    await quiet.answer(quiet.begin(), said(204));
    const again = { again: new Set([1]), waiting: [batch(2)] };
    await quiet.answer(quiet.begin({}, again, batch(1, 1, [1])), said(400));
    expect([quiet.effects.deliveredValues, quiet.effects.quarantinedValues]).toEqual([10, 1]);
  });

  it('takes its asset from those that fail, and its next failure is told as a first one', async () => {
    const fail = () => world.answer(world.begin(), said(503));
    world.faults.taken(8, 0, world.clock.monotonicMs());
    world.faults.taken(9, 0, world.clock.monotonicMs());
    for (const count of [1, 2, undefined]) {
      const line = (await fail()).find((one) => typeof one === 'object' && one.event === 'uplink.asset_pauses');
      expect((line as { count?: number }).count).toBe(count);
    }
    expect(world.schedule.paused(world.clock.monotonicMs())).toMatchObject([{ asset: 7, failures: 3 }]);
    await world.answer(world.begin(), said(204));
    expect(world.schedule.paused(world.clock.monotonicMs())).toEqual([]);
    expect(await fail()).toContainEqual(expect.objectContaining({ event: 'uplink.asset_pauses', count: 1 }));
  });

  it.each([
    ['an asset that is held', {}, () => world.heldAssets.add(7)],
    ['what a probe tries', { kind: 'probe', probe: { asset: 7, maxValues: 50 } }, () => {}],
  ] as const)('lifts the hold of %s', async (_name, facts, hold) => {
    hold();
    world.probes.retrySoon.add(7).add(8);
    world.heldAssets.add(8);
    const told = await world.answer(world.begin(facts), said(204));
    expect(told.slice(-2)).toEqual(['access: delivered 7 [1,2]', 'wake']);
    expect([...world.probes.retrySoon]).toEqual([8]);
  });

  it('is delivered where its hold cannot be lifted too', async () => {
    world.heldAssets.add(7);
    world.accessFails = true;
    expect((await world.answer(world.begin(), said(204))).slice(-3)).toEqual([
      'access: delivered 7 [1,2]',
      { ...STORE_FAILED, error: 'the holds are away', count: 1 },
      'wake',
    ]);
  });

  it('lets series go on that waited, of those that are in it', async () => {
    world.heldSeries.push(30);
    for (const series of [2, 5]) world.waits.hold(7, series, { status: 400, message: 'no' }, 0);
    const told = await world.answer(world.begin(), said(204));
    expect(told).toContain('store: hold series [30,5]');
    expect(told).toContainEqual({ level: INFO, event: 'uplink.series_back', batch: 'x-1', asset: 7, series: [2] });
  });

  it('as the third that fills the limit makes posts larger', async () => {
    world.size.setLimit(1_500);
    world.size.refused(2_400, world.clock.monotonicMs() - MINUTE);
    const post = () => world.answer(world.begin({}, {}, { ...batch(1), body: new Uint8Array(700) }), said(204));
    expect([await post(), await post()].flat()).not.toContainEqual(
      expect.objectContaining({ level: DEBUG, maxBytes: 1_500 }),
    );
    expect(await post()).toContainEqual({ level: DEBUG, event: 'uplink.size_grown', maxBytes: 1_500 });
    expect(world.size.maxBytes).toBe(1_500);
  });

  it.each([
    [4, true],
    [5, false],
    [6, false],
  ])('and began as post %d leaves an outage since post 5: %s', async (post, isLeft) => {
    world.availability.fail({ code: '503', words: 'away' }, 0, 0, 5);
    world.size.refused(100_000, 0);
    await world.clock.advance(7_000);
    const told = await world.answer(world.begin(), said(204), { post });
    const back = { level: INFO, event: 'uplink.back', code: '503', attempts: 1, forMs: 7_000 };
    expect(told.filter((line) => typeof line === 'object' && line.event === 'uplink.back')).toEqual(
      isLeft ? [] : [back],
    );
    expect(world.availability.outage !== undefined).toBe(isLeft);
    expect(world.size.maxBytes).toBe(isLeft ? 50_000 : 480_000);
  });

  it('lets others that were refused alone before be tried again, and those that wait for their turn look', async () => {
    const refused = { batch: batch(3, 1, [1]), refusal: { status: 400, message: 'no' }, at: 0 };
    const slices = { waiting: [], deferred: [refused], shelved: [], again: new Set<number>(), loneRefusals: 1 };
    const state = { kind: 'parked', slices: { ...slices, taken: 0, isDivided: true } } as const;
    const parked = world.begin({ asset: 8, state });
    const ready = world.begin({ asset: 9, state: { ...state, kind: 'ready', sinceMs: 5 } });
    const delivery = world.begin();
    await world.answer(delivery, said(204), { post: 0 });
    expect(parked.state).toMatchObject({ kind: 'ready', slices: { deferred: [], waiting: [{ id: 3 }] } });
    expect(ready.state).toMatchObject({ kind: 'ready', sinceMs: 5, slices: { deferred: [], waiting: [{ id: 3 }] } });
  });
});

describe('a slice that is refused', () => {
  const LONE = batch(1, 1, [1]);
  const REFUSED = { level: WARN, event: 'uplink.refused', batch: 'x-1', asset: 7, slice: 1, status: 400, words: 'no' };

  it('is divided, and its parts wait for their turn', async () => {
    const delivery = world.begin();
    world.divided = [batch(11), batch(12)];
    expect(await world.answer(delivery, said(400, 'no'))).toEqual([
      { ...REFUSED, values: 10, count: 1 },
      'store: divide 1',
      { level: DEBUG, event: 'uplink.divided', batch: 'x-1', asset: 7, slice: 1, into: [11, 12] },
      'wake',
    ]);
    expect(delivery.state).toMatchObject({ kind: 'ready', sinceMs: world.clock.monotonicMs() });
    expect(world.effects.lastRefusal).toEqual({ atMs: world.clock.wallMs(), code: '400', words: 'no' });
    expect(world.faults.assetsWith('refused')).toEqual([7]);
  });

  it('for its size makes posts smaller, unless one as large was just taken', async () => {
    const size = (maxBytes: number) => ({
      level: WARN,
      event: 'uplink.size_learned',
      batch: 'x-1',
      maxBytes,
      count: 1,
    });
    const large = () => world.begin({}, {}, { ...batch(1), body: new Uint8Array(20_000) });
    world.divided = [batch(11), batch(12)];
    const told = await world.answer(large(), said(413, 'no'));
    expect(told.slice(1, 3)).toEqual([size(10_000), 'store: divide 1']);
    world.size.taken(20_000, world.clock.monotonicMs());
    expect((await world.answer(large(), said(413, 'no')))[1]).toBe('store: divide 1');
  });

  it('alone is put off until something is taken, whichever lane', async () => {
    const delivery = world.begin({}, {}, LONE);
    world.faults.taken(8, 0, world.clock.monotonicMs());
    expect(await world.answer(delivery, said(400, 'no'))).toEqual([{ ...REFUSED, values: 1, count: 1 }, 'wake']);
    expect(delivery.state.kind).toBe('parked');
    expect(world.waits.loneRefusals(1)).toBe(1);
  });

  it('alone a second time is in quarantine, with what the platform said', async () => {
    const again = { again: new Set([1]), waiting: [batch(2)] };
    expect(await world.answer(world.begin({}, again, LONE), said(422, 'no'))).toEqual([
      { ...REFUSED, status: 422, values: 1, count: 1 },
      'store: quarantine 1, 422 no',
      'hook: quarantined 1, 422',
      { ...REFUSED, event: 'uplink.quarantined', series: 1, status: 422, count: 1 },
      'wake',
    ]);
    expect(world.effects).toMatchObject({ quarantinedValues: 1, deliveredValues: 0, lastDeliveredMs: undefined });
    await world.answer(world.begin({}, again, LONE), said(400, 'no'));
    expect(world.effects.quarantinedValues).toBe(2);
  });

  it('alone for the last time lets its series wait, told once', async () => {
    world.heldSeries.push(30);
    const again = { again: new Set([1]), waiting: [batch(2, 3, [1]), batch(3, 2, [2])] };
    const told = async () => {
      for (let refusals = 0; refusals < MAX_LONE_REFUSALS; refusals++) world.waits.refusedAlone(1);
      return (await world.answer(world.begin({ name: 'x-1' }, again, LONE), said(400, 'no'))).slice(4);
    };
    const waits = {
      ...LATER,
      level: ERROR,
      event: 'uplink.series_waits',
      series: 1,
      status: 400,
      words: 'no',
      count: 1,
    };
    const released = ['store: release 2', { ...LATER, slice: 2, values: 3 }, 'wake'];
    expect(await told()).toEqual(['store: hold series [30,1]', waits, ...released]);
    const [waiting] = world.waits.list();
    expect(waiting).toMatchObject({ series: 1, asset: 7, refusal: { status: 400, message: 'no' }, sinceMs: 1_000 });
    expect(await told()).toEqual(['store: hold series [30,1]', ...released]);
  });

  it('without an address lets its series wait', async () => {
    const delivery = world.begin({ state: { kind: 'taking', after: 'next' } });
    await world.effects.meet(delivery, { kind: 'unaddressed', batch: batch(1, 10, [5]) });
    const waits = { ...LATER, level: ERROR, event: 'uplink.no_address', series: 5, count: 1 };
    expect(world.heard()).toEqual([
      'store: hold series [5]',
      { ...waits, words: 'VALUES_PATH names an instrumentation, and tags.yaml gives this series none' },
      'store: release 1',
      { ...LATER, slice: 1, values: 10 },
      'wake',
    ]);
  });
});

describe('what goes back', () => {
  it('waits again slice by slice; a lone refusal that was not confirmed counts for nothing', async () => {
    for (const series of [1, 2, 3]) world.waits.refusedAlone(series);
    const deferred = [{ batch: batch(4, 1, [1]), refusal: { status: 400, message: 'no' }, at: 0 }];
    const waiting = [batch(5, 2, [2]), batch(6, 1, [3])];
    const delivery = world.begin({}, { deferred, waiting }, batch(1, 3, [2]));
    world.faults.taken(8, 0, world.clock.monotonicMs());
    await world.effects.meet(delivery, { kind: 'broken off' });
    expect(world.heard()).toEqual([
      ...[
        [4, 1],
        [1, 3],
        [5, 2],
        [6, 1],
      ].flatMap(([slice, values]) => [`store: release ${slice}`, { ...LATER, slice, values }]),
      'wake',
    ]);
    expect([1, 2, 3].map((series) => world.waits.loneRefusals(series))).toEqual([0, 1, 0]);
    expect([delivery.state.kind, world.schedule.deliveries.size]).toEqual(['over', 0]);
  });

  it('gives the request back that it has paid for and did not need', async () => {
    for (const paid of [true, false]) {
      const delivery = world.begin({ state: { kind: 'taking', after: 'next' } });
      await world.effects.meet(delivery, { kind: 'cut', batch: batch(1) });
      // One that has yet to pay takes nothing from anybody and gives nothing free.
      expect(world.heard()).toEqual([]);
      await world.effects.meet(delivery, { kind: 'unsent', paid });
      const back = ['store: release 1', { ...LATER, slice: 1, values: 10 }, 'wake'];
      expect(world.heard()).toEqual(paid ? ['budget: give back', ...back] : back);
    }
  });
});

describe('nothing to take', () => {
  const find = (probe?: { asset: number; onlySeries?: readonly number[]; maxValues: number }) => {
    const delivery = world.begin({ state: { kind: 'taking', after: 'next' }, probe });
    return world.effects.meet(delivery, { kind: 'nothing' });
  };

  it('lets the asset pause for a moment, and shortens no pause', async () => {
    const nowMs = world.clock.monotonicMs();
    await find();
    expect([world.heard(), world.schedule.of(7).pausedUntilMs]).toEqual([['wake'], nowMs + 250]);
    world.schedule.of(7).pausedUntilMs = nowMs + 251;
    await find();
    expect([world.schedule.of(7).pausedUntilMs, world.schedule.deliveries.size]).toEqual([nowMs + 251, 0]);
  });

  it('ends the wait of the series that a probe tried, and does not pause its asset', async () => {
    world.waits.hold(7, 5, { status: 400, message: 'no' }, -60 * MINUTE);
    const nowMs = world.clock.monotonicMs();
    const [probe] = world.probes.due(nowMs);
    await find(probe);
    expect(world.schedule.of(7).pausedUntilMs).toBe(Number.NEGATIVE_INFINITY);
    expect([world.waits.ids(), world.probes.due(nowMs + 60 * MINUTE)]).toEqual([[], []]);
  });
});
