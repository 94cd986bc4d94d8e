import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { Poller } from '../../../src/sources/poller.ts';
import { type SimulateValue, simulated } from '../../../src/sources/simulate/simulate-source.ts';
import { type IntakeBench, makeIntakeBench, originOf, storeFault, tagOf, until } from './sink-double.ts';

const TAGS = new Map([
  [
    'GW-01',
    tagOf('GW-01', 900, [
      { key: 'load', from: originOf('host', 'self', { reading: 'load1' }) },
      { key: 'fast', from: originOf('host', 'self', { reading: 'load5' }, { everyMs: 200 }) },
    ]),
  ],
]);

/** Returns a poller of the first `count` points. A read lasts `readMs`. */
function pollerOf(
  bench: IntakeBench,
  { count = 1, readMs = 0, fails = () => false }: { count?: number; readMs?: number; fails?: () => boolean } = {},
) {
  const warnings: { event: string }[] = [];
  const log = silentLogger();
  log.warn = ((fields: { event: string }) => warnings.push(fields)) as typeof log.warn;
  const gate = bench.gateOf('self');
  const points = pointsOf(TAGS, 'self', bench.intake).slice(0, count);
  const reads: string[] = [];
  const poller = new Poller({
    points,
    gate,
    status: gate.status,
    clock: bench.clock,
    log,
    async read(due) {
      reads.push(`${bench.clock.monotonicMs()} ${due.map((point) => point.name).join()}`);
      if (readMs > 0) await bench.clock.sleep(readMs);
      if (fails()) throw new Error('no answer');
      return due.map((point) => ({ point, raw: 1 }));
    },
  });
  return { poller, gate, warnings, reads };
}

describe('poller', () => {
  it('polls immediately, then at regular intervals regardless of wall clock changes', async () => {
    const bench = makeIntakeBench(TAGS);
    await bench.clock.advance(300);
    const { poller, reads } = pollerOf(bench);
    poller.start();
    await bench.clock.advance(0);
    bench.clock.jumpWall(-14 * 86_400_000);
    await bench.clock.advance(700);
    bench.clock.jumpWall(28 * 86_400_000);
    await bench.clock.advance(2_000);
    await poller.stop();
    expect([reads.length, bench.counted.get('self')]).toEqual([4, 4]);
    await bench.clock.advance(5_000);
    expect(reads.length).toBe(4);
  });

  it('continues reading while values wait for the disk', async () => {
    const bench = makeIntakeBench(TAGS);
    bench.sink.holds = true;
    const { poller, gate } = pollerOf(bench);
    poller.start();
    await bench.clock.advance(3_500);
    expect([bench.sink.appends, gate.status.stored, gate.status.pollsLate]).toEqual([4, 0, 0]);
    bench.sink.commit();
    await until(() => gate.status.stored === 4);
    expect(bench.sink.stored.map((each) => each.timeMs).every((at, i, all) => i === 0 || at > all[i - 1]!)).toBe(true);
    await poller.stop();
  });

  it('polls a device every second even if each response takes 700 ms', async () => {
    const bench = makeIntakeBench(TAGS);
    const { poller, gate, reads } = pollerOf(bench, { readMs: 700 });
    poller.start();
    await bench.clock.advance(10_000);
    const stopping = poller.stop();
    await bench.clock.advance(1_000);
    await stopping;
    expect([reads.length, gate.status.pollsLate]).toEqual([11, 0]);
  });

  it('reads each value at its own interval', async () => {
    const bench = makeIntakeBench(TAGS);
    const { poller, reads } = pollerOf(bench, { count: 2 });
    poller.start();
    await bench.clock.advance(1_999);
    await poller.stop();
    expect(reads.filter((read) => read.includes('fast')).length).toBe(10);
    expect(reads.filter((read) => read.includes('load')).length).toBe(2);
  });

  it('counts and reports late polls without dropping earlier values', async () => {
    const bench = makeIntakeBench(TAGS);
    const { poller, gate, warnings } = pollerOf(bench, { readMs: 2_500 });
    poller.start();
    await bench.clock.advance(6_100);
    expect(gate.status.pollsLate).toBe(4);
    expect(warnings).toMatchObject([1, 2].map((count) => ({ event: 'source.polls_late', count })));
    const stopping = poller.stop();
    await bench.clock.advance(3_000);
    await stopping;
    await until(() => gate.status.stored === 3);
  });

  it('stores the values of all polls after the store has rejected them for a while', async () => {
    const bench = makeIntakeBench(TAGS);
    bench.sink.fault = storeFault('buffer.full');
    const { poller, gate } = pollerOf(bench);
    poller.start();
    await bench.clock.advance(4_400);
    expect([gate.status.stored, bench.sink.stored.length]).toEqual([0, 0]);
    bench.sink.fault = undefined;
    await bench.clock.advance(6_000);
    await poller.stop();
    await until(() => bench.sink.stored.length === 11);
    expect([gate.status.stored, bench.counted.get('self')]).toEqual([11, 11]);
  });

  it('continues after a failed read', async () => {
    const bench = makeIntakeBench(TAGS);
    let left = 3;
    const { poller, gate, warnings, reads } = pollerOf(bench, { fails: () => left-- > 0 });
    poller.start();
    await bench.clock.advance(10_000);
    await poller.stop();
    expect([gate.status.errors, reads.length > 10, warnings.length]).toEqual([3, true, 2]);
  });
});

describe('simulated values', () => {
  const shapes = ['sine', 'ramp', 'walk', 'noise', 'step'] as const;
  const tags = new Map([
    [
      'SIM',
      tagOf(
        'SIM',
        1,
        shapes.map((shape) => ({ key: shape, from: originOf('simulate', 'sim', { shape, low: -5, high: 20 }) })),
      ),
    ],
  ]);

  function run(polls: number): number[][] {
    const points = pointsOf<SimulateValue>(tags, 'sim', makeIntakeBench(tags).intake);
    const generators = points.map((point) => simulated(point, 60_000));
    return Array.from({ length: polls }, (_, poll) => generators.map((next) => next(poll * 1_000)));
  }

  it('change within their limits, and are identical for the same configuration', () => {
    const rows = run(400);
    expect(rows.flat().every((value) => value >= -5 && value <= 20)).toBe(true);
    expect(new Set(rows.map((row) => row[2])).size).toBeGreaterThan(100);
    const levels = new Set(rows.map((row) => row[4])).size;
    expect([levels > 5, levels < 60]).toEqual([true, true]);
    expect(run(400)).toEqual(rows);
  });

  it('form a repeating ramp', () => {
    const ramp = run(120).map((row) => row[1]!);
    const falls = ramp.filter((value, at) => at > 0 && value < ramp[at - 1]!).length;
    expect(falls).toBe(2);
  });
});
