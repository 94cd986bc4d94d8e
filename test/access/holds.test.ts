import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { type AssetProbe, Holds } from '../../src/access/holds.ts';
import { silentLogger } from '../../src/base/logger.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { accessEvent, association, buildPlant, SeriesList, START_MS, TAGS, tag } from './plant.ts';

const MINUTE = 60_000;

/** Posts what is due, one after the other, as the uplink does where it has room. */
function tryDue(holds: Holds, clock: ManualClock): Pick<AssetProbe, 'asset' | 'onlySeries'>[] {
  const tried = [];
  for (let probe = holds.dueProbes(clock.monotonicMs())[0]; probe; probe = holds.dueProbes(clock.monotonicMs())[0]) {
    holds.probed(probe);
    const { asset, onlySeries } = probe;
    tried.push({ asset, ...(onlySeries ? { onlySeries } : {}) });
  }
  return tried;
}

describe('an asset that is refused', () => {
  it.each([403, 404] as const)('is held after %i and tried again every two minutes, with one post', async (status) => {
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
  });

  it('is said once for all that are refused for the same reason, with their numbers', async () => {
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

  it('is released by a probe that is answered 2xx, on disk as well', async () => {
    const { holds, clock, restart } = await buildPlant();
    await holds.refused(881, 403);
    await clock.advance(2 * MINUTE);
    tryDue(holds, clock);
    await holds.delivered(881, [1]);
    expect(holds.isHeld(881)).toBe(false);
    expect(holds.nextProbeAtMs()).toBeUndefined();
    expect((await restart()).isHeld(881)).toBe(false);
  });

  it('is released by a post that the uplink tried of its own accord, as after an outage', async () => {
    const { holds } = await buildPlant();
    await holds.refused(881, 403);
    await holds.delivered(881, [1]);
    expect(holds.isHeld(881)).toBe(false);
  });

  it('is released at once by its own appearance, and by that of its instrumentation alone', async () => {
    const { holds } = await buildPlant();
    await holds.refused(881, 403);
    await holds.refused(882, 404);
    await holds.apply(accessEvent('instrumentation_appeared', 4711, 1));
    expect([holds.isHeld(881), holds.isHeld(882)]).toEqual([false, true]);
    await holds.apply(accessEvent('asset_appeared', 882, 1));
    expect(holds.isHeld(882)).toBe(false);
  });

  it('is not held again by the late refusal of a post from before its appearance, but by the next one', async () => {
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

  it('survives a restart and is then tried within a minute', async () => {
    const { holds, clock, restart } = await buildPlant();
    await holds.refused(881, 403);
    const again = await restart();
    expect(again.isHeld(881)).toBe(true);
    await clock.advance(MINUTE);
    expect(tryDue(again, clock)).toEqual([{ asset: 881 }]);
  });

  it('is tried soon after it was assigned to an instrumentation, and not because an assignment ended', async () => {
    const { holds, clock } = await buildPlant();
    await holds.refused(881, 403);
    await holds.apply(association(881, 4711, 'destroyed'));
    expect(tryDue(holds, clock)).toEqual([]);
    await holds.apply(association(881, 4711, 'created'));
    expect(tryDue(holds, clock)).toEqual([{ asset: 881 }]);
  });
});

describe('an asset that disappeared', () => {
  it('is held across restarts and tried every quarter of an hour; a 2xx releases it for good', async () => {
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
    // The same event once more: from the deliveries list, or an older one that was late.
    await again.apply(accessEvent('asset_disappeared', 881, 10));
    await again.apply(accessEvent('asset_disappeared', 881, 5));
    expect((await restart()).isHeld(881)).toBe(false);
    await again.apply(accessEvent('asset_disappeared', 881, 11));
    expect(again.isHeld(881)).toBe(true);
  });

  it('stays held when a post that was under way before is answered 2xx', async () => {
    const { holds, clock } = await buildPlant();
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    await holds.delivered(881, [1]);
    expect(holds.isHeld(881)).toBe(true);
    // Neither does the answer to a probe of an earlier hold.
    await clock.advance(15 * MINUTE);
    tryDue(holds, clock);
    await holds.apply(accessEvent('asset_appeared', 881, 11));
    await holds.apply(accessEvent('asset_disappeared', 881, 12));
    await holds.delivered(881, [1]);
    expect(holds.isHeld(881)).toBe(true);
  });

  it('is not held by an event that occurred before it appeared, whichever arrives first', async () => {
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

  it('is tried every quarter of an hour even where it had been refused before', async () => {
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

describe('an instrumentation that disappeared', () => {
  it('holds the series of the tags that name it, and nothing else of the asset', async () => {
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

  it('is tried every quarter of an hour with its own series, released by their delivery and not by their neighbours', async () => {
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

  it('does not hold the whole asset when its probe is refused', async () => {
    const { holds, clock } = await buildPlant();
    await holds.apply(accessEvent('instrumentation_disappeared', 4711, 10));
    await clock.advance(15 * MINUTE);
    tryDue(holds, clock);
    await holds.refused(881, 403, [1, 2]);
    expect(holds.isHeld(881)).toBe(false);
    expect(holds.heldSeries()).toEqual([1, 2]);
  });

  it('follows tags.yaml when it is read again', async () => {
    const { holds } = await buildPlant();
    await holds.apply(accessEvent('instrumentation_disappeared', 4712, 10));
    expect(holds.heldSeries()).toEqual([4]);
    holds.setTags([tag('PT-200', 882, undefined, 'pressure'), tag('GW-01', 900, 4712, 'load')]);
    expect(holds.heldSeries()).toEqual([5]);
  });
});

describe('the request budget', () => {
  it('spreads the probes of many held assets, so that each is tried less often and none is forgotten', async () => {
    const { holds, clock } = await buildPlant({ probesPerMinute: () => 10 });
    const assets = Array.from({ length: 60 }, (_, index) => 1_000 + index);
    for (const asset of assets) await holds.refused(asset, 403);
    const tried: { asset: number; atMs: number }[] = [];
    for (let step = 0; step < 14 * 60; step++) {
      await clock.advance(1_000);
      for (const { asset } of tryDue(holds, clock)) tried.push({ asset, atMs: clock.monotonicMs() });
    }
    for (const { atMs } of tried) {
      const within = tried.filter((other) => other.atMs >= atMs && other.atMs < atMs + MINUTE);
      expect(within.length).toBeLessThanOrEqual(10);
    }
    expect(new Set(tried.map(({ asset }) => asset)).size).toBe(60);
    const times = assets.map((asset) => tried.filter((one) => one.asset === asset).length);
    expect(Math.max(...times) - Math.min(...times)).toBeLessThanOrEqual(1);
  });
});

describe('holds', () => {
  it('know lost nodes without holding anything for them, and try held assets when a node appears', async () => {
    const { holds, clock } = await buildPlant();
    await holds.apply(accessEvent('node_disappeared', 5, 10));
    expect(holds.lostNodes()).toEqual([{ node: 5, since: expect.stringMatching(/^\d{4}-.*Z$/) }]);
    expect(holds.heldCount()).toBe(0);
    await holds.refused(881, 403);
    await holds.apply(accessEvent('node_appeared', 5, 11));
    expect(holds.lostNodes()).toEqual([]);
    expect(tryDue(holds, clock)).toEqual([{ asset: 881 }]);
  });

  it('tell of each change once', async () => {
    const { holds } = await buildPlant();
    const changes: unknown[] = [];
    const stop = holds.onChange((change) => changes.push(change));
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    await holds.apply(accessEvent('asset_appeared', 881, 11));
    stop();
    await holds.refused(882, 404);
    expect(changes).toEqual([
      { held: ['asset 881'], released: [] },
      { held: [], released: ['asset 881'] },
    ]);
  });

  it('change nothing when the event cannot be written, and take it when it comes again', async () => {
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
      probesPerMinute: () => 40,
    });
    await holds.start();
    await expect(holds.apply(accessEvent('asset_disappeared', 881, 10))).rejects.toThrow('disk full');
    expect(holds.isHeld(881)).toBe(false);
    // A refusal acts all the same: it came from the platform, and the next answer would repeat it.
    await holds.refused(900, 403);
    expect(holds.isHeld(900)).toBe(true);
    full = false;
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    expect(holds.isHeld(881)).toBe(true);
    expect(table.load().objects).toMatchObject([{ kind: 'asset', id: 881, gone: true }]);
  });

  it('drop a row that does not fit its checksum, and count it', async () => {
    const { holds, database, table, restart } = await buildPlant();
    await holds.apply(accessEvent('asset_disappeared', 881, 10));
    await holds.refused(882, 403);
    database.prepare('UPDATE access_object SET id = 999').run();
    database.prepare('UPDATE access_refused SET status = 402').run();
    expect(table.load()).toEqual({ objects: [], refusals: [], damaged: 2, cursor: 0 });
    expect((await restart()).heldCount()).toBe(0);
  });
});

describe('any order of deliveries', () => {
  const random = new ManualClock(START_MS, 20261121);
  const pick = (count: number) => Math.floor(random.random() * count);

  it('leads to the holds that the order of occurrence leads to', async () => {
    const types = ['asset_appeared', 'asset_disappeared', 'instrumentation_appeared', 'instrumentation_disappeared'];
    for (let round = 0; round < 200; round++) {
      const events = Array.from({ length: 2 + pick(10) }, () => {
        const eventType = types[pick(4)]!;
        const id = (eventType.startsWith('asset') ? [881, 882] : [4711, 4712])[pick(2)]!;
        // Few moments, so that several events share one; some events do not say when.
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
          probesPerMinute: () => 40,
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
