import { describe, expect, it } from 'vitest';
import { StoreError } from '../../../src/base/errors.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { accessEvent, buildPlant, MINUTE, START_MS, tag } from './plant.ts';

describe('rejected asset', () => {
  it.each([403, 404] as const)('is held after %i and probed every two minutes', async (status) => {
    const plant = await buildPlant();
    const { clock } = plant;
    plant.deny(881, status);
    expect([plant.holds.isHeld(881), plant.holds.isHeld(882), plant.holds.heldCount()]).toEqual([true, false, 1]);
    await clock.advance(2 * MINUTE - 1);
    expect(plant.tryDue()).toEqual([]);
    await clock.advance(1);
    expect(plant.tryDue()).toEqual([{ asset: 881 }]);
    plant.deny(881, status);
    await clock.advance(2 * MINUTE);
    expect(plant.tryDue()).toEqual([{ asset: 881 }]);
    const line = { kind: 'asset', id: 881, cause: `answered_${status}`, tags: ['FT-101', 'FT-102'], values_wait: true };
    expect(plant.holds.list()).toMatchObject([line]);
  });

  it('is released in memory and on disk by an accepted post, and when it or its instrumentation appears', async () => {
    const plant = await buildPlant();
    for (const asset of [881, 882, 900]) plant.deny(asset);
    plant.accept(900, 5);
    await plant.receive(accessEvent('instrumentation_appeared', 4711, 1));
    expect(plant.held()).toEqual([882]);
    await plant.receive(accessEvent('asset_appeared', 882, 1));
    expect(plant.held()).toEqual([]);
    await plant.restart();
    expect(plant.held()).toEqual([]);
  });

  it('is held again only if a post is rejected that started after it appeared', async () => {
    const plant = await buildPlant();
    plant.deny(881);
    const startedMs = plant.clock.monotonicMs();
    await plant.clock.advance(100);
    await plant.receive(accessEvent('asset_appeared', 881, 1));
    plant.deny(881, 403, startedMs);
    expect(plant.held()).toEqual([]);
    plant.deny(881);
    expect(plant.held()).toEqual([881]);
  });

  it('is still held after a restart and probed within a minute', async () => {
    const plant = await buildPlant();
    plant.deny(881);
    await plant.holds.stop();
    await plant.restart();
    expect(plant.held()).toEqual([881]);
    await plant.clock.advance(MINUTE);
    expect(plant.tryDue()).toEqual([{ asset: 881 }]);
  });

  it('is probed soon after a node appears, and after it is associated with an instrumentation', async () => {
    const plant = await buildPlant();
    plant.deny(881);
    const association = (change: string) => {
      const content = { asset: { id: 881 }, instrumentation: { id: 4711 } };
      const eventType = `asset_instrumentation_association_${change}`;
      return { eventType, occurredAtMs: START_MS, envelope: { content } };
    };
    await plant.receive(association('destroyed'));
    expect(plant.tryDue()).toEqual([]);
    await plant.receive(association('created'));
    expect(plant.tryDue()).toEqual([{ asset: 881 }]);
    await plant.receive(accessEvent('node_disappeared', 5, 10));
    expect(plant.follower.lostNodes()).toEqual([{ node: 5, since: expect.stringMatching(/^\d{4}-.*Z$/) }]);
    expect([plant.held(), plant.tryDue()]).toEqual([[881], []]);
    await plant.receive(accessEvent('node_appeared', 5, 11));
    expect([plant.follower.lostNodes(), plant.tryDue()]).toEqual([[], [{ asset: 881 }]]);
  });

  it('is logged together with other assets that are rejected for the same reason', async () => {
    const tags = Array.from({ length: 60 }, (_, i) => tag(`T-${i}`, 1000 + i, undefined, 'flow'));
    const plant = await buildPlant({ tags });
    for (const { asset } of tags) plant.deny(asset);
    await plant.clock.advance(20_000);
    const held = plant.logged.filter(({ event }) => event === 'access.held');
    expect(held).toMatchObject([
      { asset: 1000, cause: 'answered_403' },
      { objects: 59, cause: 'answered_403' },
    ]);
    expect(held[1]!.assets).toHaveLength(20);
  });

  it.each(['rejected', 'lost'])('that is %s is no longer held if it has neither values nor a tag', async (how) => {
    const plant = await buildPlant({ tags: [tag('A', 881, undefined, 'flow')] });
    for (const asset of [881, 905]) {
      if (how === 'rejected') plant.deny(asset, 404);
      else await plant.receive(accessEvent('asset_disappeared', asset, 10));
    }
    plant.lanes.delete(881);
    await plant.clock.advance(15 * MINUTE);
    for (const probe of plant.holds.due(plant.clock.monotonicMs())) plant.holds.foundNothing(probe);
    expect(plant.holds.list()).toMatchObject([{ id: 881, values_wait: false }]);
    await plant.holds.stop();
    await plant.restart();
    expect(plant.held()).toEqual([881]);
    await plant.receive(accessEvent('asset_disappeared', 905, 20));
    expect(plant.holds.isHeld(905)).toBe(true);
  });
});

describe('asset with lost access', () => {
  it('is held across restarts and probed every 15 minutes until an accepted post releases it permanently', async () => {
    const plant = await buildPlant();
    await plant.receive(accessEvent('asset_disappeared', 881, 10));
    await plant.restart();
    await plant.clock.advance(5 * MINUTE);
    expect(plant.tryDue()).toEqual([{ asset: 881 }]);
    plant.deny(881);
    await plant.clock.advance(15 * MINUTE - 1);
    expect(plant.tryDue()).toEqual([]);
    await plant.clock.advance(1);
    expect(plant.tryDue()).toEqual([{ asset: 881 }]);
    plant.accept(881, 1);
    expect(plant.held()).toEqual([]);
    // Duplicates and older events.
    await plant.receive(accessEvent('asset_disappeared', 881, 10), accessEvent('asset_disappeared', 881, 5));
    await plant.holds.stop();
    await plant.restart();
    expect(plant.held()).toEqual([]);
    await plant.receive(accessEvent('asset_disappeared', 881, 12));
    expect(plant.held()).toEqual([881]);
  });

  it('stays held if a post is accepted that started earlier, and after its probe has no response', async () => {
    const plant = await buildPlant();
    const startedMs = plant.clock.monotonicMs();
    await plant.clock.advance(100);
    await plant.receive(accessEvent('asset_disappeared', 881, 10));
    plant.holds.accepted(881, [1], startedMs);
    expect(plant.held()).toEqual([881]);
    await plant.clock.advance(15 * MINUTE);
    const [probe] = plant.holds.due(plant.clock.monotonicMs());
    plant.holds.tried(probe!);
    plant.holds.untried(probe!);
    expect(plant.tryDue()).toEqual([{ asset: 881 }]);
    expect(plant.holds.list()[0]).toMatchObject({ last_probe: null, cause: 'asset_disappeared' });
  });

  it('is held only if it disappeared at least a second after it last appeared, in any order of arrival', async () => {
    const random = new ManualClock(START_MS, 20261121);
    const pick = (count: number) => Math.floor(random.random() * count);
    for (let round = 0; round < 40; round++) {
      const events = Array.from({ length: 2 + pick(8) }, () => {
        const atSeconds = pick(12) === 0 ? undefined : pick(30) / 10;
        return accessEvent(pick(2) ? 'asset_appeared' : 'asset_disappeared', 900, atSeconds);
      });
      const last = (type: string) =>
        Math.max(
          ...events.filter(({ eventType }) => eventType === type).map((one) => one.occurredAtMs ?? -1),
          -Infinity,
        );
      const plant = await buildPlant();
      const shuffled = events.map((event) => ({ event, at: random.random() })).sort((one, other) => one.at - other.at);
      await plant.receive(...shuffled.map(({ event }) => event), ...events.filter(() => pick(2) === 0));
      const lostMs = last('asset_disappeared');
      const isLost = lostMs > Number.NEGATIVE_INFINITY && lostMs >= last('asset_appeared') + 1_000;
      expect(plant.holds.isHeld(900), JSON.stringify(shuffled)).toBe(isLost);
    }
  });

  it('is not held if its instrumentation appeared later, in any order of arrival', async () => {
    const lost = accessEvent('asset_disappeared', 881, 10);
    const inherited = accessEvent('instrumentation_appeared', 4711, 11);
    for (const order of [
      [lost, inherited],
      [inherited, lost],
    ]) {
      const plant = await buildPlant();
      await plant.receive(...order);
      expect(plant.held()).toEqual([]);
      await plant.receive(accessEvent('asset_disappeared', 881, 13));
      expect(plant.held()).toEqual([881]);
    }
  });
});

describe('lost instrumentation', () => {
  it('holds only the series of its tags, which are probed in turn and released by their own values', async () => {
    const tags = [tag('A', 881, 4711, 'flow', 'temperature'), tag('B', 882, 4711, 'pressure')];
    const plant = await buildPlant({ tags });
    await plant.receive(accessEvent('instrumentation_disappeared', 4711, 10));
    expect([plant.holds.isHeld(881), plant.holds.heldCount(), plant.holds.heldSeries()]).toEqual([false, 0, [1, 2, 4]]);
    plant.known.push({ ...plant.known[3]!, id: 6 });
    expect(plant.holds.heldSeries()).toEqual([1, 2, 4, 6]);
    await plant.clock.advance(15 * MINUTE);
    expect(plant.tryDue()).toEqual([{ asset: 881, onlySeries: [1, 2] }]);
    await plant.clock.advance(15 * MINUTE);
    const [probe] = plant.holds.due(plant.clock.monotonicMs());
    expect(probe).toMatchObject({ asset: 882, onlySeries: [4, 6] });
    // The rejection does not concern the whole asset.
    plant.holds.denied(882, 403, { startedMs: plant.clock.monotonicMs(), probe });
    expect(plant.holds.isHeld(882)).toBe(false);
    plant.accept(881, 3);
    expect(plant.held()).toEqual([4711]);
    plant.accept(881, 2);
    expect([plant.held(), plant.holds.heldSeries()]).toEqual([[], []]);
  });

  it('is not compared with accepted posts of assets whose tags do not reference it', async () => {
    const plant = await buildPlant({ tags: [tag('A', 881, 4711, 'flow'), tag('B', 882, 4712, 'pressure')] });
    for (const id of [4711, 4712]) await plant.receive(accessEvent('instrumentation_disappeared', id, 10));
    plant.lookups.length = 0;
    plant.accept(881, 3);
    expect(plant.lookups).toEqual([4711]);
  });

  it('has waiting values only if its tags have series and its latest probe found values', async () => {
    const tags = [tag('A', 881, 4711, 'flow'), tag('B', 881, 4712, 'never-measured')];
    const plant = await buildPlant({ tags });
    const waiting = () => plant.holds.list().map(({ id, values_wait }) => [id, values_wait]);
    for (const id of [4711, 4712]) await plant.receive(accessEvent('instrumentation_disappeared', id, 10));
    expect(waiting()).toEqual([
      [4711, true],
      [4712, false],
    ]);
    await plant.clock.advance(15 * MINUTE);
    plant.holds.foundNothing(plant.holds.due(plant.clock.monotonicMs())[0]!);
    expect(waiting()[0]).toEqual([4711, false]);
  });
});

describe('access event of a user', () => {
  const lost = (user: unknown) => accessEvent('asset_disappeared', 881, 10, user);
  it.each([
    { whose: 'own', options: {}, user: { id: 5 }, held: true },
    { whose: 'none', options: {}, user: null, held: true },
    { whose: 'another', options: {}, user: { id: 6 }, held: false, logged: 'access.other_user' },
    { whose: 'some, own unknown', options: { user: undefined }, user: { id: 6 }, held: false },
    { whose: 'none, own unknown', options: { user: undefined }, user: null, held: true },
    { whose: 'own, relayed', options: { isRelayed: true }, user: { id: 5 }, held: true },
    { whose: 'another, relayed', options: { isRelayed: true }, user: { id: 6 }, held: false },
    { whose: 'none, relayed', options: { isRelayed: true }, user: null, held: false },
    {
      whose: 'some, relayed, own unknown',
      options: { isRelayed: true, user: undefined },
      user: { id: 6 },
      held: false,
      logged: 'access.user_unknown',
    },
  ])('($whose) holds the asset: $held', async ({ options, user, held, logged }) => {
    const plant = await buildPlant(options);
    await plant.receive(lost(user), lost(user));
    expect(plant.holds.isHeld(881)).toBe(held);
    const warned = plant.logged.filter(({ level, event }) => level === 40 && event !== 'access.held');
    expect(warned.map(({ event }) => event)).toEqual(logged ? [logged] : []);
  });

  it('makes the next probe of a held asset due if it concerns another user', async () => {
    const plant = await buildPlant();
    plant.deny(881);
    await plant.receive(accessEvent('asset_appeared', 881, 1, { id: 6 }));
    expect(plant.held()).toEqual([881]);
    expect(plant.tryDue()).toEqual([{ asset: 881 }]);
  });
});

describe('values that are rejected repeatedly', () => {
  const REFUSAL = { status: 400, message: 'no such unit' };

  it('hold their series, then their asset, until a value is accepted', async () => {
    const plant = await buildPlant();
    const { holds } = plant;
    for (let value = 1; value < 8; value++) expect(holds.countRejection(881, 1)).toBeUndefined();
    expect(holds.rejected(881, 1, REFUSAL)).toBeUndefined();
    expect(holds.countRejection(881, 1)).toBe('series');
    expect(holds.rejected(881, 1, REFUSAL)).toBe('series');
    expect(holds.heldSeries()).toEqual([1]);
    expect(holds.waitingSeries()).toMatchObject([{ series: 1, asset: 881, status: 400, reason: 'no such unit' }]);
    for (const series of [2, 3, 2, 3]) for (let value = 0; value < 6; value++) holds.countRejection(881, series);
    expect(holds.rejected(881, 2, REFUSAL)).toBe('asset');
    expect(holds.list()).toMatchObject([{ kind: 'asset', id: 881, cause: 'rejected' }]);
    expect(plant.tryDue()).toEqual([]);
    await plant.clock.advance(15 * MINUTE);
    expect(plant.tryDue()).toHaveLength(2);
    plant.accept(881, 1);
    expect([plant.held(), holds.heldSeries(), holds.countRejection(881, 1)]).toEqual([[], [], undefined]);
    const events = plant.logged.map(({ event }) => event);
    expect(events).toEqual(['uplink.series_waits', 'uplink.series_waits', 'uplink.series_back', 'uplink.series_back']);
  });
});

describe('disk failure', () => {
  const full = new StoreError('disk full', { code: 'inbox.disk_full', retryable: true });

  it('delays events until they can be stored, while responses take effect', async () => {
    const plant = await buildPlant();
    plant.failure = full;
    void plant.receive(accessEvent('asset_disappeared', 881, 10));
    await plant.clock.advance(MINUTE);
    plant.deny(900);
    await plant.holds.stop();
    expect(plant.held()).toEqual([900]);
    expect(plant.logged.map(({ event }) => event)).toEqual(
      expect.arrayContaining(['access.waiting', 'access.unsaved', 'access.held']),
    );
    plant.failure = undefined;
    await plant.clock.advance(MINUTE);
    await plant.follower.idle();
    expect(plant.held().sort()).toEqual([881, 900]);
  });

  it('of another kind skips an event after several attempts', async () => {
    const plant = await buildPlant();
    plant.failure = new Error('unexpected');
    const reading = plant.receive(accessEvent('asset_disappeared', 881, 10));
    for (let minute = 0; minute < 8; minute++) await plant.clock.advance(MINUTE);
    await reading;
    expect(plant.logged.at(-1)).toMatchObject({ event: 'access.passed_over', inboxId: 1 });
    plant.failure = undefined;
    await plant.receive(accessEvent('asset_disappeared', 882, 10));
    expect(plant.held()).toEqual([882]);
  });

  it('that damages rows removes and counts them, and the inbox is read again', async () => {
    const plant = await buildPlant();
    await plant.receive(accessEvent('asset_disappeared', 881, 10));
    plant.deny(882);
    await plant.holds.stop();
    expect(plant.table.load()).toMatchObject({ damaged: 0, cursor: 1 });
    plant.database.prepare(`UPDATE access_object SET cause = 'answered_404'`).run();
    await plant.restart();
    await plant.follower.idle();
    expect(plant.held()).toEqual([881]);
    expect(plant.logged).toContainEqual(expect.objectContaining({ event: 'access.damaged', rows: 2 }));
  });
});
