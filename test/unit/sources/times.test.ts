import { describe, expect, it } from 'vitest';
import type { Reading } from '../../../src/sources/intake/gate.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { makeIntakeBench, originOf, tagOf } from './sink-double.ts';

function sourceWith(timeFrom: 'arrival' | 'source' = 'source') {
  const tags = new Map([
    [
      'T',
      tagOf(
        'T',
        1,
        ['v', 'w'].map((key) => ({ key, from: originOf('mqtt', 's', true) })),
      ),
    ],
  ]);
  const bench = makeIntakeBench(tags);
  bench.times.earliestMs = Date.UTC(2000, 0, 1);
  const gate = bench.gateOf('s', timeFrom);
  const points = pointsOf(tags, 's', bench.intake);
  const [point, other] = points;
  gate.status.points = points;
  const read = (timeMs: number, more: Partial<Extract<Reading, { raw: unknown }>> = {}) =>
    gate.write([{ point: point!, raw: 1, timeMs, ...more }]);
  const stored = () => bench.sink.stored.map(({ timeMs }) => timeMs);
  return { ...bench, gate, point: point!, other: other!, read, stored, report: () => gate.status.report(0) };
}

describe('implausible timestamp of a value', () => {
  it('is replaced with the arrival time if the value was read live, and is reported with a correction', async () => {
    const { clock, read, stored, report } = sourceWith();
    const nowMs = clock.wallMs();
    await read(Math.floor(nowMs / 1_000), { msOfUnit: 1, unitFix: (unit) => `set time_unit: ${unit}` });
    await read(nowMs + 86_400_001);
    await read(1e300);
    expect(stored()).toEqual([nowMs, nowMs + 1, nowMs + 2]);
    const [warning] = report().warnings;
    expect(warning).toMatchObject({ event: 'source.time_replaced', count: 3 });
    await read(Math.floor(nowMs / 1_000), { msOfUnit: 1, unitFix: (unit) => `set time_unit: ${unit}` });
    expect(report().warnings[0]!.problem).toContain('is before 2000-01-01: set time_unit: s');
    expect(report().rejected).toBeNull();
  });

  it('is replaced with the time of a message broker', async () => {
    const { read, stored } = sourceWith();
    await read(8_000, { arrival: () => Date.UTC(2025, 1, 1) });
    expect(stored()).toEqual([Date.UTC(2025, 1, 1)]);
  });

  it('is rejected and counted if the value was not read live', async () => {
    const { clock, gate, point, read, stored, report } = sourceWith();
    await read(8_000, { arrival: 'unknown' });
    expect(gate.rejectsPast(point, 8_000)).toBe(true);
    expect(gate.rejectsPast(point, clock.wallMs())).toBe(false);
    expect(stored()).toEqual([]);
    expect(report()).toMatchObject({
      errors: 2,
      rejected: { count: 2, problem: expect.stringContaining('T v: timestamp 1970') },
    });
  });

  it('is accepted if it is ahead only because the gateway clock is behind, which the platform may not have shown yet', async () => {
    const { clock, platform, read, stored, report } = sourceWith();
    const nowMs = clock.wallMs();
    clock.jumpWall(-14 * 86_400_000);
    for (const platformMs of [undefined, nowMs]) {
      platform.nowMs = () => platformMs;
      await read(nowMs + (platformMs === undefined ? 0 : 1));
    }
    expect([stored(), report().warnings]).toEqual([[nowMs, nowMs + 1], []]);
    platform.nowMs = () => clock.wallMs();
    await read(nowMs + 2);
    expect(report().warnings).toMatchObject([{ event: 'source.time_replaced', count: 1 }]);
  });

  it('is accepted while the gateway clock is not set, with an earlier EARLIEST_TIME, or with time_from: arrival', async () => {
    const { clock, read, stored, times, report } = sourceWith();
    times.earliestMs = 0;
    await read(8_000);
    times.earliestMs = Date.UTC(2000, 0, 1);
    clock.jumpWall(5_000 - clock.wallMs());
    await read(9_000);
    expect([stored(), report().warnings]).toEqual([[8_000, 9_000], []]);
    const arrival = sourceWith('arrival');
    await arrival.read(8_000, { arrival: 'unknown' });
    expect([arrival.stored(), arrival.report().warnings]).toEqual([[arrival.clock.wallMs()], []]);
  });
});

describe('plausible timestamp of a value that was read live', () => {
  const HOUR_MS = 3_600_000;

  it('is stored and reported if it is ahead of the gateway and the platform', async () => {
    const { clock, platform, read, stored, report } = sourceWith();
    const nowMs = clock.wallMs();
    platform.nowMs = () => nowMs;
    const times = [nowMs - HOUR_MS, nowMs + 60_000, nowMs + HOUR_MS];
    for (const timeMs of times) await read(timeMs, { msOfUnit: 1_000 });
    await read(nowMs + 2 * HOUR_MS, { arrival: 'unknown' });
    expect(stored()).toEqual([...times, nowMs + 2 * HOUR_MS]);
    expect(report().warnings).toMatchObject([
      {
        event: 'source.time_ahead',
        count: 1,
        problem: expect.stringMatching(/^T v: timestamp .* is 1 h ahead of the arrival time: .*time_from: arrival/),
      },
    ]);
  });

  it('is not reported as ahead if the gateway clock is behind, or if the missing zone has been reported', async () => {
    const { clock, gate, platform, read, report } = sourceWith();
    const nowMs = clock.wallMs();
    platform.nowMs = () => nowMs;
    clock.jumpWall(-HOUR_MS);
    await read(nowMs);
    clock.jumpWall(HOUR_MS);
    gate.reportMissingZone('no UTC offset');
    await read(nowMs + HOUR_MS);
    expect(report().warnings).toMatchObject([{ event: 'source.zone_missing' }]);
  });
});

describe('duplicate timestamps of a series', () => {
  it('are stored and reported once per source, unless the values are equal', async () => {
    const { clock, gate, point, other, report } = sourceWith();
    const timeMs = clock.wallMs();
    await gate.write([
      { point, raw: 1, timeMs },
      { point: other, raw: 2, timeMs },
      { point, raw: 1, timeMs },
      { point, raw: 3 },
    ]);
    expect(report().warnings).toEqual([]);
    await gate.write([2, 3, 4].map((raw) => ({ point, raw, timeMs })));
    expect(report().warnings).toMatchObject([
      { event: 'source.same_time', count: 3, problem: expect.stringMatching(/^T v at 2026.*time_from: arrival/) },
    ]);
  });
});
