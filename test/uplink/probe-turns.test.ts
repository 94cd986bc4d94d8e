import { beforeEach, describe, expect, it } from 'vitest';
import { AssetSchedule } from '../../src/uplink/asset-schedule.ts';
import type { ProbeView } from '../../src/uplink/planner.ts';
import type { AccessPort, Probe } from '../../src/uplink/ports.ts';
import { Probes } from '../../src/uplink/probes.ts';
import { SeriesWaits } from '../../src/uplink/series-waits.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { MemoryAccess } from './plant.ts';

const QUARTER_MS = 15 * 60_000;

describe('what is tried with one post now and then', () => {
  let clock: ManualClock;
  let waits: SeriesWaits;
  let probes: Probes;

  const due = () => probes.due(clock.monotonicMs());
  const trial = (series: number): ProbeView => ({ asset: 1, onlySeries: [series], maxValues: 1 });

  beforeEach(() => {
    clock = new ManualClock(Date.UTC(2026, 10, 23), 1);
    waits = new SeriesWaits();
    probes = new Probes({ access: new MemoryAccess(clock), clock, schedule: new AssetSchedule(clock), waits });
    for (const series of [7, 8]) waits.hold(1, series, { status: 400, message: 'no' }, clock.monotonicMs());
  });

  it('is a value of each series that waits, a quarter of an hour after it was last tried', async () => {
    await clock.advance(QUARTER_MS - 1);
    expect(due()).toEqual([]);
    await clock.advance(1);
    expect(due()).toMatchObject([trial(7), trial(8)]);
    probes.goesOut(trial(7));
    expect(due()).toMatchObject([trial(8)]);
    await clock.advance(QUARTER_MS);
    expect(due()).toMatchObject([trial(8), trial(7)]);
  });

  it('keeps its turn where the answer said nothing about it', async () => {
    await clock.advance(QUARTER_MS);
    probes.goesOut(trial(7));
    await clock.advance(1_000);
    probes.dueAgain(trial(7));
    expect(due()).toMatchObject([trial(8), trial(7)]);
  });

  it('leaves the turns of series alone where what goes out is the trial of a hold', async () => {
    await clock.advance(QUARTER_MS);
    const ofHold: ProbeView = { ...trial(7), hold: 'instrumentation 4711' };
    probes.goesOut(ofHold);
    expect(due()).toMatchObject([trial(7), trial(8)]);
    probes.goesOut(trial(7));
    probes.dueAgain(ofHold);
    expect(due()).toMatchObject([trial(8)]);
  });

  it('is no longer a series of which nothing is left', async () => {
    await clock.advance(QUARTER_MS);
    expect(probes.foundNothing(trial(7), clock.monotonicMs())).toBe(true);
    await clock.advance(QUARTER_MS);
    expect([due(), waits.ids()]).toMatchObject([[trial(8)], [8]]);
  });

  it('is an asset that was denied while everything was, ahead of the others, until it goes out', async () => {
    await clock.advance(QUARTER_MS);
    const access = new MemoryAccess(clock);
    probes = new Probes({ access, clock, schedule: new AssetSchedule(clock), waits });
    await access.refused(5, 404);
    probes.retrySoon.add(5).add(6);
    // 6 is held no longer.
    expect(due().map(({ asset, onlySeries }) => onlySeries ?? asset)).toEqual([5, [7], [8]]);
    probes.goesOut({ asset: 5, maxValues: 50 });
    expect(due().map(({ asset, onlySeries }) => onlySeries ?? asset)).toEqual([[7], [8]]);
  });

  describe('beside what access holds', () => {
    let held: Probe[];
    let told: [string, Probe][];
    let schedule: AssetSchedule;
    let still: Set<number>;
    const NOW = 50_000;

    const view = (asset: number, facts: Partial<ProbeView> = {}): ProbeView => ({ asset, maxValues: 50, ...facts });
    const seven = { asset: 1, onlySeries: [7], dueSinceMs: 1_000 + QUARTER_MS, maxValues: 1 };
    const eight = { ...seven, onlySeries: [8] };
    const later = 1_000 + QUARTER_MS;

    beforeEach(() => {
      [held, told, still] = [[], [], new Set()];
      schedule = new AssetSchedule(clock);
      const access = {
        isHeld: (asset: number) => still.has(asset),
        dueProbes: (nowMs: number) => held.filter(({ dueSinceMs = 0 }) => dueSinceMs <= nowMs),
        probed: (probe: Probe) => void told.push(['probed', probe]),
        unanswered: (probe: Probe) => void told.push(['unanswered', probe]),
      };
      probes = new Probes({ access: access as unknown as AccessPort, clock, schedule, waits });
    });

    const underWay = (probe: ProbeView | undefined) =>
      schedule.begin({ name: 'x', asset: 9, lane: 'live', kind: 'live', probe, trial: false, state: { kind: 'over' } });

    it('it is all that is due, whoever has been due longest first, and of equal ones as access has them', () => {
      const instrumentation = { hold: 'instrumentation 4', onlySeries: [1, 2] };
      held.push({ asset: 4, ...instrumentation, dueSinceMs: later + 5 }, { asset: 5, hold: 'asset 5' }, { asset: 6 });
      held.push({ asset: 3, dueSinceMs: later });
      const old = [
        view(3, { dueSinceMs: later }),
        seven,
        eight,
        view(4, { ...instrumentation, dueSinceMs: later + 5 }),
      ];
      // Of whom it is not told since when they have been due now.
      const now = [view(5, { hold: 'asset 5' }), view(6)];
      expect(probes.due(later + 6)).toEqual([...old, ...now]);
      expect(probes.due(later - 1)).toEqual(now);
      still.add(8).add(6);
      for (const asset of [8, 2, 6]) probes.retrySoon.add(asset);
      // 2 is held no longer: there is nothing to try.
      expect(probes.due(later + 6)).toEqual([view(8), view(6), ...old, ...now]);
      expect([...probes.retrySoon]).toEqual([8, 6]);
    });

    it.each<[string, number, number, number]>([
      ['a hold', 1, 0, 0],
      ['a series', 0, 1, 0],
      ['an asset to be tried soon', 0, 0, 1],
      ['a hold and a series', 1, 1, 0],
      ['a hold and an asset to be tried soon', 1, 0, 1],
      ['a series and an asset to be tried soon', 0, 1, 1],
      ['two of a kind and one of another', 1, 1, 2],
    ])('it is %s', (_name, holds, series, soon) => {
      waits.taken(series > 0 ? [8] : [7, 8]);
      for (let asset = 11; asset < 11 + holds; asset++) held.push({ asset });
      for (let asset = 21; asset < 21 + soon; asset++) {
        still.add(asset);
        probes.retrySoon.add(asset);
      }
      expect(probes.due(later)).toHaveLength(holds + series + soon);
    });

    it('of several probes of one hold there is one under way at most, and others are not held up by that', () => {
      held.push({ asset: 4, hold: 'instrumentation 4' }, { asset: 5, hold: 'instrumentation 4' });
      held.push({ asset: 6, hold: 'instrumentation 6' }, { asset: 7 });
      const assets = () => probes.due(NOW).map(({ asset }) => asset);
      underWay(undefined);
      expect(assets()).toEqual([4, 5, 6, 7]);
      underWay(view(4, { hold: 'instrumentation 4' }));
      expect(assets()).toEqual([6, 7]);
    });

    it('what found nothing is left out for half a minute, and nothing that is only like it', () => {
      const all: ProbeView[] = [
        view(4),
        view(5),
        view(4, { hold: 'a' }),
        view(4, { hold: 'b' }),
        view(5, { hold: 'a' }),
        view(4, { onlySeries: [1, 2] }),
        view(4, { onlySeries: [12] }),
        view(41, { onlySeries: [2] }),
      ];
      held.push(...all.map(({ maxValues: _, ...probe }) => probe));
      expect(probes.due(NOW)).toEqual(all);
      for (const [i, probe] of all.entries()) {
        const atMs = NOW + i * 40_000;
        probes.foundNothing(probe, atMs);
        const others = all.filter((one) => one !== probe);
        expect(probes.due(atMs + 29_999).filter(({ asset }) => asset !== 1)).toEqual(others);
        expect(probes.due(atMs + 30_000).filter(({ asset }) => asset !== 1)).toEqual(all);
      }
    });

    it('access is told what goes out and what was not answered, and series that wait where it is no hold', () => {
      const hold = view(1, { hold: 'instrumentation 4', onlySeries: [7] });
      const [asset, series] = [view(1), view(1, { onlySeries: [8] })];
      const next = () => waits.list().map(({ nextTryAtMs }) => nextTryAtMs);
      const nowMs = clock.monotonicMs();
      const before = next();
      probes.retrySoon.add(1).add(2);
      for (const probe of [hold, asset]) {
        probes.goesOut(probe);
        probes.dueAgain(probe);
      }
      expect([next(), [...probes.retrySoon]]).toEqual([before, [2]]);
      probes.dueAgain(series);
      expect(next()).toEqual([before[0], nowMs]);
      probes.goesOut(series);
      expect(next()).toEqual([before[0], nowMs + QUARTER_MS]);
      expect(told).toEqual([
        ['probed', hold],
        ['unanswered', hold],
        ['probed', asset],
        ['unanswered', asset],
        ['unanswered', series],
        ['probed', series],
      ]);
    });
  });
});
