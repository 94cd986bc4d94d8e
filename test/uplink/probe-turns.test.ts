import { beforeEach, describe, expect, it } from 'vitest';
import { AssetSchedule } from '../../src/uplink/asset-schedule.ts';
import type { ProbeView } from '../../src/uplink/planner.ts';
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

  it('is left out for half a minute where there was nothing to try it with', async () => {
    await clock.advance(QUARTER_MS);
    probes.foundNothing(trial(7), clock.monotonicMs());
    await clock.advance(29_999);
    expect(due()).toMatchObject([trial(8)]);
    await clock.advance(1);
    expect(due()).toMatchObject([trial(7), trial(8)]);
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
});
