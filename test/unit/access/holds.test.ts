import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { type AssetProbe, Holds } from '../../../src/access/holds.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { accessEvent, association, buildPlant, SeriesList, START_MS, TAGS, tag } from './plant.ts';

const MINUTE = 60_000;

/** Sends all due probes one after another. */
function tryDue(holds: Holds, clock: ManualClock): Pick<AssetProbe, 'asset' | 'onlySeries'>[] {
  const tried = [];
  for (let probe = holds.dueProbes(clock.monotonicMs())[0]; probe; probe = holds.dueProbes(clock.monotonicMs())[0]) {
    holds.probed(probe);
    const { asset, onlySeries } = probe;
    tried.push({ asset, ...(onlySeries ? { onlySeries } : {}) });
  }
  return tried;
}

describe('rejected asset', () => {
  it.each([403, 404] as const)(
    'is held after a %i response, and probed with one post every two minutes',
    async (status) => {
      const { holds, clock } = await buildPlant();
      await holds.refused(881, status);
      expect(holds.isHeld(881)).toBe(true);
      expect(holds.isHeld(882)).toBe(false);
      await clock.advance(2 * MINUTE - 1);
      expect(tryDue(holds, clock)).toEqual([]);
      await clock.advance(1);
      expect(tryDue(holds, clock)).toEqual([{ asset: 881 }]);
      expect(tryDue(holds, clock)).toEqual([]);
      await holds.refused(881, status);
      expect(holds.isHeld(881)).toBe(true);
      await clock.advance(2 * MINUTE);
      expect(tryDue(holds, clock)).toEqual([{ asset: 881 }]);
      expect(holds.list()).toMatchObject([
        { kind: 'asset', id: 881, cause: `answered_${status}`, tags: ['FT-101', 'FT-102'] },
      ]);
    },
  );

  it('is logged once with its ID, together with other assets rejected for the same reason', async () => {
    const said: Record<string, unknown>[] = [];
    const logger = pino({ base: null, level: 'info' }, { write: (line: string) => void said.push(JSON.parse(line)) });
    const tags = Array.from({ length: 60 }, (_, i) => tag(`T-${i}`, 1000 + i, undefined, 'flow'));
    const { holds, clock } = await buildPlant({ logger, tags });
    for (const { asset } of tags) await holds.refused(asset, 403);
    await clock.advance(20_000);
    const held = said.filter(({ event }) => event === 'access.held');
    expect(held).toHaveLength(2);
    expect(held[0]).toMatchObject({ asset: 1000, cause: 'answered_403' });
    expect(held[1]).toMatchObject({ assets: expect.arrayContaining([1001, 1020]), objects: 59, cause: 'answered_403' });
    expect(held[1]!.assets).toHaveLength(20);
  });

  it('is released in memory and on disk by a probe that returns 2xx', async () => {
    const { holds, clock, restart } = await buildPlant();
    await holds.refused(881, 403);
    await clock.advance(2 * MINUTE);
    tryDue(holds, clock);
    await holds.delivered(881, [1]);
    expect(holds.isHeld(881)).toBe(false);
    expect(holds.nextProbeAtMs()).toBeUndefined();
    expect((await restart()).isHeld(881)).toBe(false);
  });

  it('is released by an accepted regular post, for example after an outage', async () => {
    const { holds } = await buildPlant();
    await holds.refused(881, 403);
    await holds.delivered(881, [1]);
    expect(holds.isHeld(881)).toBe(false);
  });

  it('is released immediately when it or its instrumentation appears', async () => {
    const { holds } = await buildPlant();
    await holds.refused(881, 403);
    await holds.refused(882, 404);
    await holds.apply(accessEvent('instrumentation_appeared', 4711, 1));
    expect([holds.isHeld(881), holds.isHeld(882)]).toEqual([false, true]);
    await holds.apply(accessEvent('asset_appeared', 882, 1));
    expect(holds.isHeld(882)).toBe(false);
  });

  it('is held again only if a post sent after it reappeared is rejected', async () => {
    const { holds, clock } = await buildPlant();
    await holds.refused(881, 403);
    await clock.advance(2 * MINUTE);
    tryDue(holds, clock);
    await holds.apply(accessEvent('asset_appeared', 881, 1));
    await holds.refused(881, 403);
    expect(holds.isHeld(881)).toBe(false);
    await holds.refused(881, 403);
    expect(holds.isHeld(881)).toBe(true);
  });

  it('is still held after a restart, and is probed within a minute', async () => {
    const { holds, clock, restart } = await buildPlant();
    await holds.refused(881, 403);
    const again = await restart();
    expect(again.isHeld(881)).toBe(true);
    await clock.advance(MINUTE);
    expect(tryDue(again, clock)).toEqual([{ asset: 881 }]);
  });

  it('is probed soon after it is associated with an instrumentation, but not after an association ends', async () => {
    const { holds, clock } = await buildPlant();
    await holds.refused(881, 403);
    await holds.apply(association(881, 4711, 'destroyed'));
    expect(tryDue(holds, clock)).toEqual([]);
    await holds.apply(association(881, 4711, 'created'));
    expect(tryDue(holds, clock)).toEqual([{ asset: 881 }]);
  });
});

describe('asset with lost access', () => {
  it('is held across restarts and probed every 15 minutes, until a 2xx releases it permanently', async () => {
    const { holds, clock, restart } = await buildPlant();
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    expect(holds.isHeld(881)).toBe(true);
    const again = await restart();
    expect(again.isHeld(881)).toBe(true);
    await clock.advance(5 * MINUTE);
    expect(tryDue(again, clock)).toEqual([{ asset: 881 }]);
    await again.refused(881, 403);
    await clock.advance(15 * MINUTE - 1);
    expect(tryDue(again, clock)).toEqual([]);
    await clock.advance(1);
    expect(tryDue(again, clock)).toEqual([{ asset: 881 }]);
    await again.delivered(881, [1, 3]);
    expect(again.isHeld(881)).toBe(false);
    // A duplicate and an older event.
    await again.apply(accessEvent('asset_disappeared', 881, 10));
    await again.apply(accessEvent('asset_disappeared', 881, 5));
    expect((await restart()).isHeld(881)).toBe(false);
    await again.apply(accessEvent('asset_disappeared', 881, 11));
    expect(again.isHeld(881)).toBe(true);
  });

  it('stays held if an earlier post returns 2xx', async () => {
    const { holds, clock } = await buildPlant();
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    await holds.delivered(881, [1]);
    expect(holds.isHeld(881)).toBe(true);
    // The response to a probe of an earlier hold does not release it either.
    await clock.advance(15 * MINUTE);
    tryDue(holds, clock);
    await holds.apply(accessEvent('asset_appeared', 881, 11));
    await holds.apply(accessEvent('asset_disappeared', 881, 12));
    await holds.delivered(881, [1]);
    expect(holds.isHeld(881)).toBe(true);
  });

  it('is held only if it disappeared after it last appeared, regardless of event arrival order', async () => {
    const { holds } = await buildPlant();
    await holds.apply(accessEvent('asset_appeared', 881, 20));
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    expect(holds.isHeld(881)).toBe(false);
    await holds.apply(accessEvent('asset_disappeared', 882, 10));
    await holds.apply(accessEvent('asset_appeared', 882, 20));
    expect(holds.isHeld(882)).toBe(false);
    await holds.apply(accessEvent('asset_disappeared', 882, 20));
    expect(holds.isHeld(882)).toBe(false);
  });

  it('is probed every 15 minutes even if it was previously rejected', async () => {
    const { holds, clock } = await buildPlant();
    await holds.refused(881, 404);
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    await clock.advance(14 * MINUTE);
    expect(tryDue(holds, clock)).toEqual([]);
    expect(holds.list()[0]?.cause).toBe('asset_disappeared');
    await clock.advance(MINUTE);
    tryDue(holds, clock);
    await holds.delivered(881, [1]);
    expect(holds.isHeld(881)).toBe(false);
  });
});

describe('hold on a disappeared instrumentation', () => {
  it('suspends only the series with tags for the instrumentation', async () => {
    const { holds, series, restart } = await buildPlant();
    await holds.apply(accessEvent('instrumentation_disappeared', 4711, 10));
    expect(holds.isHeld(881)).toBe(false);
    expect(holds.heldSeries()).toEqual([1, 2]);
    expect(holds.heldCount()).toBe(0);
    series.list.push({ id: 6, asset: 881, key: 'flow', group: 'process' });
    series.list.push({ id: 7, asset: 881, key: 'temperature', group: undefined });
    expect(holds.heldSeries()).toEqual([1, 2, 7]);
    expect((await restart()).heldSeries()).toEqual([1, 2, 7]);
    await holds.apply(accessEvent('instrumentation_appeared', 4711, 11));
    expect(holds.heldSeries()).toEqual([]);
  });

  it('is probed every 15 minutes with its own series, and released only when they are delivered', async () => {
    const { holds, clock } = await buildPlant();
    await holds.apply(accessEvent('instrumentation_disappeared', 4711, 10));
    await clock.advance(15 * MINUTE);
    expect(tryDue(holds, clock)).toEqual([{ asset: 881, onlySeries: [1, 2] }]);
    await holds.delivered(881, [3]);
    expect(holds.heldSeries()).toEqual([1, 2]);
    await clock.advance(15 * MINUTE);
    tryDue(holds, clock);
    await holds.delivered(881, [2]);
    expect(holds.heldSeries()).toEqual([]);
  });

  it('does not extend to the entire asset after a rejected probe', async () => {
    const { holds, clock } = await buildPlant();
    await holds.apply(accessEvent('instrumentation_disappeared', 4711, 10));
    await clock.advance(15 * MINUTE);
    tryDue(holds, clock);
    await holds.refused(881, 403, [1, 2]);
    expect(holds.isHeld(881)).toBe(false);
    expect(holds.heldSeries()).toEqual([1, 2]);
  });

  it('is matched against reloaded tags', async () => {
    const { holds } = await buildPlant();
    await holds.apply(accessEvent('instrumentation_disappeared', 4712, 10));
    expect(holds.heldSeries()).toEqual([4]);
    holds.setTags([tag('PT-200', 882, undefined, 'pressure'), tag('GW-01', 900, 4712, 'load')]);
    expect(holds.heldSeries()).toEqual([5]);
  });
});

describe('asset holds', () => {
  it('include lost nodes without suspending posts, and are retried when a node reappears', async () => {
    const { holds, clock } = await buildPlant();
    await holds.apply(accessEvent('node_disappeared', 5, 10));
    expect(holds.lostNodes()).toEqual([{ node: 5, since: expect.stringMatching(/^\d{4}-.*Z$/) }]);
    expect(holds.heldCount()).toBe(0);
    await holds.refused(881, 403);
    await holds.apply(accessEvent('node_appeared', 5, 11));
    expect(holds.lostNodes()).toEqual([]);
    expect(tryDue(holds, clock)).toEqual([{ asset: 881 }]);
  });

  it('notify listeners once per change', async () => {
    const { holds } = await buildPlant();
    const changes: boolean[] = [];
    const stop = holds.onChange(() => void changes.push(holds.isHeld(881)));
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    await holds.apply(accessEvent('asset_appeared', 881, 11));
    stop();
    await holds.refused(882, 404);
    expect(changes).toEqual([true, false]);
  });

  it('remain unchanged if an event cannot be written, and are updated when the event is repeated', async () => {
    const { table } = await buildPlant();
    let full = true;
    const holds = new Holds({
      store: {
        load: async () => table.load(),
        save: async (change) => {
          if (full) throw Object.assign(new Error('disk full'), { code: 'SQLITE_FULL' });
          table.save(change);
        },
      },
      tags: TAGS,
      series: new SeriesList(),
      clock: new ManualClock(START_MS),
      logger: silentLogger(),
    });
    await holds.start();
    await expect(holds.apply(accessEvent('asset_disappeared', 881, 10))).rejects.toThrow('disk full');
    expect(holds.isHeld(881)).toBe(false);
    // A rejection takes effect even if it cannot be stored.
    await holds.refused(900, 403);
    expect(holds.isHeld(900)).toBe(true);
    full = false;
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    expect(holds.isHeld(881)).toBe(true);
    expect(table.load().objects).toMatchObject([{ kind: 'asset', id: 881, gone: true }]);
  });

  it('skip and count rows with an invalid checksum', async () => {
    const { holds, database, table, restart } = await buildPlant();
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    await holds.refused(882, 403);
    database.prepare('UPDATE access_object SET id = 999').run();
    database.prepare('UPDATE access_refused SET status = 402').run();
    expect(table.load()).toEqual({ objects: [], refusals: [], damaged: 2, cursor: 0 });
    expect((await restart()).heldCount()).toBe(0);
  });
});

describe('event delivery order', () => {
  const random = new ManualClock(START_MS, 20261121);
  const pick = (count: number) => Math.floor(random.random() * count);

  it('has no effect on the resulting holds', async () => {
    const types = ['asset_appeared', 'asset_disappeared', 'instrumentation_appeared', 'instrumentation_disappeared'];
    for (let round = 0; round < 200; round++) {
      const events = Array.from({ length: 2 + pick(10) }, () => {
        const eventType = types[pick(4)]!;
        const id = (eventType.startsWith('asset') ? [881, 882] : [4711, 4712])[pick(2)]!;
        // Several events have the same time, and some have none.
        return accessEvent(eventType, id, pick(12) === 0 ? undefined : pick(5));
      });
      const sorted = [...events].sort((a, b) => (a.occurredAtMs ?? 0) - (b.occurredAtMs ?? 0));
      const shuffled = events.map((event) => ({ event, at: random.random() })).sort((a, b) => a.at - b.at);
      const repeated = [...shuffled.map(({ event }) => event), ...events.filter(() => pick(2) === 0)];
      const outcomes = [];
      for (const order of [sorted, repeated]) {
        const kept = new Map<string, unknown>();
        const holds = new Holds({
          store: {
            load: async () => ({ objects: [], refusals: [], damaged: 0, cursor: 0 }),
            save: async (change) => {
              for (const one of change.objects ?? []) kept.set(`${one.kind} ${one.id}`, one);
            },
          },
          tags: TAGS,
          series: new SeriesList(),
          clock: new ManualClock(START_MS),
          logger: silentLogger(),
        });
        await holds.start();
        for (const event of order) await holds.apply(event);
        outcomes.push({
          assets: [881, 882].map((asset) => holds.isHeld(asset)),
          series: [...holds.heldSeries()].sort(),
          kept: [...kept].sort(([one], [other]) => (one < other ? -1 : 1)),
        });
      }
      expect(outcomes[1], JSON.stringify(events)).toEqual(outcomes[0]);
    }
  });
});
