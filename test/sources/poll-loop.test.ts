import { describe, expect, it } from 'vitest';
import { STAMPED_HERE, ValueColumns } from '../../src/buffer/value-columns.ts';
import { silentLogger } from '../../src/logger.ts';
import { pointsOf } from '../../src/sources/points.ts';
import { PollLoop } from '../../src/sources/poll-loop.ts';
import { Simulator } from '../../src/sources/simulator.ts';
import { type Door, makeDoor, storeFault, tagOf, until } from './sink-double.ts';

function loopOf(door: Door, read?: () => Promise<ValueColumns>): { loop: PollLoop; warnings: { event: string }[] } {
  const series = door.catalogue.idOf(900, 'load', undefined, undefined);
  const warnings: { event: string }[] = [];
  const log = silentLogger();
  log.warn = ((fields: { event: string }) => warnings.push(fields)) as typeof log.warn;
  const one = () => {
    const columns = new ValueColumns();
    columns.add(series, door.clock.wallMs(), 1, STAMPED_HERE);
    return Promise.resolve(columns);
  };
  const countIngested = (source: string, values: number) => {
    door.counted.set(source, (door.counted.get(source) ?? 0) + values);
  };
  const { sink, clock } = door;
  return {
    loop: new PollLoop({ name: 'self', everyMs: 1_000, sink, clock, log, countIngested, read: read ?? one }),
    warnings,
  };
}

describe('a poll loop', () => {
  it('polls at once and then at even steps of the monotonic clock, whatever the wall clock does', async () => {
    const door = makeDoor();
    await door.clock.advance(300);
    const { loop } = loopOf(door);
    loop.start();
    await door.clock.advance(0);
    door.clock.jumpWall(-14 * 86_400_000);
    await door.clock.advance(700);
    door.clock.jumpWall(28 * 86_400_000);
    await door.clock.advance(2_000);
    await loop.stop();
    expect([loop.stats, door.counted.get('self')]).toEqual([{ polls: 4, missed: 0, failed: 0, refused: 0 }, 4]);
    await door.clock.advance(5_000);
    expect(loop.stats.polls).toBe(4);
  });

  it('has one append under way at most, counts the turns it missed, and says so once', async () => {
    const door = makeDoor();
    door.sink.holds = true;
    const { loop, warnings } = loopOf(door);
    loop.start();
    await door.clock.advance(10_500);
    expect(door.sink.appends).toBe(1);
    door.sink.commit();
    await door.clock.advance(500);
    expect([door.sink.appends, loop.stats.polls, loop.stats.missed]).toEqual([2, 1, 10]);
    expect(warnings.map((each) => each.event)).toEqual(['source.polls_missed']);
    door.sink.commit();
    await loop.stop();
  });

  it('counts a poll only when its values are on disk, and pauses for as long as the store asks', async () => {
    const door = makeDoor();
    door.sink.fault = storeFault('buffer.full', 4_500);
    const { loop, warnings } = loopOf(door);
    loop.start();
    await door.clock.advance(4_400);
    expect([door.sink.appends, loop.stats.polls, loop.stats.refused]).toEqual([1, 0, 1]);
    door.sink.fault = undefined;
    await door.clock.advance(1_600);
    expect([loop.stats.polls > 0, door.sink.stored.length, door.counted.get('self')]).toEqual([
      true,
      loop.stats.polls,
      loop.stats.polls,
    ]);
    expect(warnings[0]).toMatchObject({ event: 'source.store_refused', source: 'self', code: 'buffer.full' });
    await loop.stop();
  });

  it('goes on after a source that could not be read', async () => {
    const door = makeDoor();
    let reads = 0;
    const { loop, warnings } = loopOf(door, () =>
      reads++ < 3 ? Promise.reject(new Error('no answer')) : Promise.resolve(new ValueColumns()),
    );
    loop.start();
    await door.clock.advance(10_000);
    await loop.stop();
    expect([loop.stats.failed, reads > 10, warnings.length]).toEqual([3, true, 1]);
  });

  it('ends by its signal, and stop waits for the values under way', async () => {
    const door = makeDoor();
    door.sink.holds = true;
    const { loop } = loopOf(door);
    const end = new AbortController();
    loop.start(end.signal);
    await until(() => door.sink.waiting === 1);
    end.abort();
    let stopped = false;
    const stopping = loop.stop().then(() => {
      stopped = true;
    });
    await door.clock.advance(100);
    expect(stopped).toBe(false);
    door.sink.commit();
    await stopping;
    expect([loop.stats.polls, door.clock.waiting]).toEqual([1, 0]);
  });
});

describe('the simulator', () => {
  const tags = new Map([
    [
      'SIM',
      tagOf(
        'SIM',
        1,
        (['sine', 'walk', 'step'] as const).map((shape) => ({
          key: shape,
          from: { kind: 'simulate', source: 'sim', shape, low: -5, high: 20 },
        })),
      ),
    ],
  ]);

  async function run(polls: number): Promise<number[][]> {
    const door = makeDoor(tags);
    const simulator = new Simulator(pointsOf(tags, 'sim', 'simulate', door.intake), door.clock);
    const rows: number[][] = [];
    for (let poll = 0; poll < polls; poll++) {
      rows.push([...(await simulator.read()).value.subarray(0, 3)]);
      door.clock.jumpWall(1_000);
    }
    return rows;
  }

  it('stays within its bounds, moves, and plays the same play again', async () => {
    const rows = await run(400);
    expect(rows.flat().every((value) => value >= -5 && value <= 20)).toBe(true);
    expect(new Set(rows.map((row) => row[1])).size).toBeGreaterThan(100);
    const levels = new Set(rows.map((row) => row[2])).size;
    expect([levels > 5, levels < 60]).toEqual([true, true]);
    expect(await run(400)).toEqual(rows);
  });
});
