import { beforeEach, describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import type { BatchDelivery } from '../../src/uplink/batch-delivery.ts';
import { verdictOfError } from '../../src/uplink/verdict.ts';
import { batch, EffectsWorld, said } from './effects-world.ts';

/**
 * What posts that are neither taken nor refused leave behind: of an asset, of the platform, of what is held; and how all of it stops. The
 * batch that meets an outage is among those that are recalled: each of them is a `wake` before the line.
 */
const MINUTE = 60_000;
const [DEBUG, INFO, WARN, ERROR] = [20, 30, 40, 50];
const RELEASED = [
  'store: release 1',
  { level: DEBUG, event: 'uplink.later', batch: 'x-1', asset: 7, slice: 1, values: 10 },
];
const AWAY = { level: WARN, event: 'uplink.away', batch: 'x-1', attempts: 1, nextTryMs: 1_000, count: 1 };
const BACK = { level: INFO, event: 'uplink.back', attempts: 1 };
const STORE_FAILED = { level: ERROR, event: 'uplink.store_failed', error: 'the disk is away' };
const PROBE = { kind: 'probe', probe: { asset: 7, onlySeries: [5], maxValues: 1 } } as const;
const NO_ANSWER = verdictOfError(new PlatformError('refused', { code: 'platform.connection_refused' }));

let world: EffectsWorld;

beforeEach(() => {
  world = new EffectsWorld();
  world.clock.jumpWall(-world.clock.wallMs());
});

/** Others had posts taken lately: what one asset meets is its own. */
const inCompany = () => {
  for (const asset of [8, 9, 10]) world.faults.taken(asset, 0, world.clock.monotonicMs());
};

describe('an asset that fails', () => {
  const pauses = (pauseMs: number, count: number) => ({
    ...{ level: WARN, event: 'uplink.asset_pauses', batch: 'x-1', asset: 7, pauseMs, count },
    ...{ code: '503', words: 'busy' },
  });

  it('pauses, longer each time, or for as long as it asks', async () => {
    inCompany();
    const fail = (askedMs: number) => world.answer(world.begin(), said(503, 'busy'), { askedMs });
    expect(await fail(0)).toEqual([pauses(2_000, 1), ...RELEASED, 'wake']);
    expect(await fail(30_000)).toEqual([pauses(30_000, 2), ...RELEASED, 'wake']);
    const [paused] = world.schedule.paused(world.clock.monotonicMs());
    expect(paused).toEqual({ asset: 7, failures: 2, untilMs: world.clock.monotonicMs() + 30_000 });
    expect(world.availability.outage).toBeUndefined();
    expect(world.effects.lastRefusal).toEqual({ atMs: 0, code: '503', words: 'busy' });
    expect([world.faults.assetsWith('later'), world.faults.assetsWith('no-access')]).toEqual([[7], []]);
  });
});

describe('the platform', () => {
  const nothing = { waiting: [], deferred: [], shelved: [], again: new Set<number>() };
  const slices = { ...nothing, loneRefusals: 0, taken: 0, isDivided: true };

  it('is away where whoever posts fails: no asset is to blame, and what waits goes back', async () => {
    world.schedule.pause(9);
    world.schedule.of(10).dueSinceMs = 5;
    const ready = { kind: 'ready', slices: { ...slices, waiting: [batch(2, 5)] }, sinceMs: 0 } as const;
    const other = world.begin({ name: 'x-2', asset: 8, state: ready });
    const posting = world.begin({ name: 'x-3', asset: 9 });
    const later = { level: DEBUG, event: 'uplink.later', batch: 'x-2', asset: 8, slice: 2, values: 5 };
    const told = await world.answer(world.begin({ name: 'x-1' }), said(503, 'busy'), { askedMs: 3_000 });
    expect(told).toEqual([
      'store: release 2',
      'wake',
      'wake',
      { ...AWAY, code: '503', words: 'busy', nextTryMs: 3_000 },
      'store: release 1',
      later,
      ...RELEASED.slice(1),
      'wake',
      'wake',
    ]);
    expect([other.state.kind, posting.state]).toMatchObject(['over', { kind: 'posting', after: 'return' }]);
    expect([world.schedule.paused(0), world.schedule.of(10).dueSinceMs]).toEqual([[], undefined]);
    const { availability, clock, faults } = world;
    expect(availability.outage).toMatchObject({ sincePost: faults.next, nextTryAtMs: clock.monotonicMs() + 3_000 });
  });

  it('is tried again after a wait from the start of the try that failed', async () => {
    const delivery = world.begin();
    const startedMs = world.clock.monotonicMs();
    await world.clock.advance(700);
    const told = await world.answer(delivery, said(503, 'busy'), { startedMs });
    expect(told).toEqual(['wake', { ...AWAY, code: '503', words: 'busy', nextTryMs: 300 }, ...RELEASED, 'wake']);
  });

  it.each([
    [4, false],
    [5, true],
  ])('that is away since post 5 is so for longer by a failure of post %d: %s', async (post, isLonger) => {
    inCompany();
    world.availability.fail({ code: '502', words: 'away' }, 0, 0, 5);
    const before = world.availability.outage;
    world.schedule.pause(9);
    const other = world.begin({ name: 'x-2', asset: 8 });
    const told = await world.answer(world.begin({ name: 'x-1' }), said(503, 'busy'), { post });
    const away = { ...AWAY, code: '503', words: 'busy', attempts: 2, nextTryMs: 2_000 };
    expect(told).toEqual([...(isLonger ? [away] : []), ...RELEASED, 'wake']);
    if (!isLonger) expect(world.availability.outage).toBe(before);
    // What happens during an outage was decided when it began.
    expect(other.state).toMatchObject({ kind: 'posting', after: 'next' });
    expect(world.schedule.paused(world.clock.monotonicMs())).toMatchObject([{ asset: 9 }]);
  });

  it('that nobody reaches has counted no request', async () => {
    const told = await world.answer(world.begin(), NO_ANSWER);
    const away = { ...AWAY, code: 'platform.connection_refused', words: 'refused' };
    expect(told).toEqual(['wake', away, ...RELEASED, 'wake']);
    expect(world.faults.assetsWith('later')).toEqual([]);
    expect(world.effects.lastRefusal).toMatchObject({ code: 'platform.connection_refused' });
  });

  it('that has no quota left is waited for by minutes', async () => {
    const told = await world.answer(world.begin(), said(402, 'spent'));
    const quota = { ...AWAY, level: ERROR, event: 'uplink.quota', code: '402', words: 'spent', nextTryMs: MINUTE };
    expect(told).toEqual(['wake', quota, ...RELEASED, 'wake']);
    expect(world.availability.outage?.sincePost).toBe(world.faults.next);
  });

  it('that refuses everything is away by what it refused, of whichever batch', async () => {
    const deferred = [{ batch: batch(3, 1, [1]), refusal: { status: 400, message: 'no' }, at: 9 }];
    const delivery = world.begin({ state: { kind: 'ready', sinceMs: 0, slices: { ...slices, deferred } } });
    await world.clock.advance(5_000);
    world.effects.lookAtParked();
    await world.effects.settled();
    const { batch: _batch, ...refused } = { ...AWAY, event: 'uplink.all_refused', code: '400', words: 'no' };
    const released = ['store: release 3', { ...(RELEASED[1] as object), slice: 3, values: 1 }, 'wake'];
    // It is itself among those that are recalled: it is on its way back already.
    expect(world.heard()).toEqual(['wake', refused, ...released]);
    expect(delivery.state.kind).toBe('over');
  });

  it('that answers a try as it should is back, and what was too large is forgotten', async () => {
    world.availability.fail({ code: '503', words: 'away' }, 0, 0, 0);
    world.size.refused(100_000, 0);
    world.restingUntilMs = world.clock.monotonicMs() + 15_000.4;
    const rest = { level: WARN, event: 'uplink.rest', batch: 'x-1', asset: 7, waitMs: 15_000, count: 1 };
    await world.clock.advance(0.2);
    const told = await world.answer(world.begin({ trial: true }), said(429));
    expect(told).toEqual([{ ...BACK, code: '503', forMs: 0 }, rest, ...RELEASED, 'wake']);
    expect([world.availability.outage, world.size.maxBytes]).toEqual([undefined, 480_000]);
  });

  it('that was not away is not told to be back, and keeps what it taught', async () => {
    world.size.refused(100_000, 0);
    const rest = { level: WARN, event: 'uplink.rest', batch: 'x-1', asset: 7, waitMs: 0, count: 1 };
    expect(await world.answer(world.begin({ trial: true }), said(429))).toEqual([rest, ...RELEASED, 'wake']);
    expect(world.size.maxBytes).toBe(50_000);
  });
});

describe('an asset that may not be posted to', () => {
  const denied = (status: number, series?: number, instrumentation?: number) =>
    `access: refused 7, ${status}, series ${series}, instrumentation ${instrumentation}`;

  it('is held, with the address that was tried; it is not tried soon any more', async () => {
    inCompany();
    world.probes.retrySoon.add(7).add(8);
    const told = await world.answer(world.begin(), said(403), { instrumentation: 12 });
    expect(told).toEqual([denied(403, undefined, 12), ...RELEASED, 'wake']);
    expect([...world.probes.retrySoon]).toEqual([8]);
  });

  it.each([
    ['all of them held', [5, 6], 5],
    ['none of them held', [6], undefined],
  ])('says by a probe of series, %s, something about these or about itself', async (_name, held, series) => {
    inCompany();
    world.heldSeries.push(...held);
    expect((await world.answer(world.begin(PROBE), said(404)))[0]).toBe(denied(404, series));
  });

  it('with part of a probe’s series held says something about itself', async () => {
    inCompany();
    world.heldSeries.push(5);
    const probe = { ...PROBE, probe: { ...PROBE.probe, onlySeries: [5, 6] } };
    expect((await world.answer(world.begin(probe), said(403)))[0]).toBe(denied(403));
  });

  it('is no more to blame than the others where none may be: all of them are tried soon', async () => {
    for (const asset of [8, 9, 10]) world.faults.met('no-access', asset);
    world.accessFails = true;
    const told = await world.answer(world.begin(), said(404, 'none'));
    const lost = { ...STORE_FAILED, error: 'the holds are away', count: 1 };
    const away = { ...AWAY, event: 'uplink.none_visible', code: '404', words: 'none' };
    expect(told).toEqual([denied(404), lost, 'wake', away, ...RELEASED, 'wake']);
    expect([...world.probes.retrySoon]).toEqual([8, 9, 10, 7]);
  });
});

describe('a probe', () => {
  it('is one once it goes out, and due again where the answer says nothing about it', async () => {
    world.waits.hold(7, 5, { status: 400, message: 'no' }, 0);
    const slices = { waiting: [batch(1)], deferred: [], shelved: [], again: new Set<number>(), loneRefusals: 0 };
    const paying = { kind: 'paying', after: 'next', slices: { ...slices, taken: 0, isDivided: false } } as const;
    const delivery = world.begin({ ...PROBE, state: paying });
    await world.effects.meet(delivery, { kind: 'sent' });
    expect([world.heard(), delivery.state.kind]).toEqual([['access: probed 7 [5]', 'wake'], 'posting']);
    expect(world.waits.list()).toMatchObject([{ nextTryAtMs: world.clock.monotonicMs() + 15 * MINUTE }]);
    const told = await world.answer(delivery, said(401, 'no'));
    const signedOut = { ...AWAY, event: 'uplink.signed_out', code: '401', words: 'no' };
    expect(told).toEqual(['wake', signedOut, 'access: unanswered 7 [5]', ...RELEASED, 'wake']);
    expect(world.waits.list()).toMatchObject([{ nextTryAtMs: world.clock.monotonicMs() }]);
  });
});

describe('a store that fails', () => {
  it('is asked once a second until each slice has ended', async () => {
    world.storeFailures = 1;
    const meeting = world.effects.meet(world.begin(), { kind: 'broken off' });
    await world.clock.advance(999);
    expect(world.heard()).toEqual(['store: release 1', { ...STORE_FAILED, count: 1 }]);
    await world.clock.advance(1);
    await meeting;
    expect(world.heard()).toEqual([...RELEASED, 'wake']);
  });

  it('is not asked again while the agent stops, and whoever waited for it is told why', async () => {
    const delivery = world.begin();
    world.effects.beginStop();
    expect([delivery.state, world.heard()]).toMatchObject([{ kind: 'posting', after: 'return' }, ['wake']]);
    world.storeFailures = 1;
    await expect(world.effects.meet(delivery, { kind: 'broken off' })).rejects.toThrow('the disk is away');
    expect(world.heard()).toEqual(['store: release 1', { ...STORE_FAILED, count: 1 }]);
  });

  it('keeps nobody waiting once posts are broken off', async () => {
    world.storeFailures = 100;
    const meeting = world.effects.meet(world.begin(), { kind: 'broken off' });
    const ended = expect(meeting).rejects.toThrow('the agent stops');
    await world.clock.advance(1_500);
    world.stop.abort(new Error('the agent stops'));
    await ended;
    expect(world.clock.waiting).toBe(0);
  });
});

describe('a stop', () => {
  it('ends once what nobody else waits for has ended, also where the store is gone', async () => {
    const nothing = { waiting: [batch(2)], deferred: [], shelved: [], again: new Set<number>() };
    const slices = { ...nothing, loneRefusals: 0, taken: 0, isDivided: true };
    const ready = () => world.begin({ state: { kind: 'ready', slices, sinceMs: 0 } });
    const deliveries: BatchDelivery[] = [ready(), ready()];
    world.storeFailures = 1;
    world.effects.beginStop();
    expect(deliveries.map(({ state }) => state.kind)).toEqual(['returning', 'returning']);
    await world.effects.settled();
    // The one whose release failed waits again after the next start.
    expect(deliveries.map(({ state }) => state.kind)).toEqual(['returning', 'over']);
    const failed = world.heard().filter((one) => typeof one === 'object' && one.event === 'uplink.store_failed');
    expect(failed).toMatchObject([{ count: 1 }, { count: 2 }]);
    await world.effects.settled();
  });

  it('lets batches that are under way look only where something of them was put off', async () => {
    const delivery = world.begin();
    world.effects.lookAtParked();
    await world.effects.settled();
    expect(world.heard()).toEqual([]);
    expect(delivery.state.kind).toBe('posting');
  });
});
