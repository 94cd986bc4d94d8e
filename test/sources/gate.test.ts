import { describe, expect, it } from 'vitest';
import { STAMPED_HERE, STATUS_FLAGS, ValueColumns } from '../../src/buffer/format/value-columns.ts';
import type { Shaping } from '../../src/config/tags.ts';
import { pointsOf } from '../../src/sources/points.ts';
import { isSent, scaledOf } from '../../src/sources/shaping.ts';
import { Stamps } from '../../src/sources/stamps.ts';
import { makeIntakeBench, originOf, storeFault, tagOf, until } from './sink-double.ts';

function gateWith(shaping: Partial<Shaping> = {}, timeFrom: 'arrival' | 'source' = 'source', inOrder = false) {
  const tags = new Map([['T', tagOf('T', 1, [{ key: 'v', from: originOf('host', 's', true, shaping) }])]]);
  const bench = makeIntakeBench(tags);
  const gate = bench.gateOf('s', timeFrom, inOrder);
  const [point] = pointsOf(tags, 's', bench.intake);
  const take = async (raw: number, ...more: [number?, ('good' | 'uncertain' | 'bad')?]) => {
    gate.take(point!, raw, ...more);
    await gate.committed();
  };
  const values = () => bench.sink.stored.map(({ value }) => value);
  return { ...bench, gate, point: point!, take, values };
}

describe('the gate', () => {
  it('scales, and leaves a raw value alone where nothing is to do', () => {
    expect(scaledOf(3, { scale: 0.1, offset: 0 })).toBe(0.3);
    expect(scaledOf(1_000, { scale: 0.1, offset: -40 })).toBe(60);
    expect(scaledOf(0.1 + 0.2, { scale: 1, offset: 0 })).toBe(0.1 + 0.2);
  });

  it('gives each value of a series a time of its own, and changes none that came with a value', async () => {
    const { gate, point, sink, clock, intake } = gateWith();
    for (let n = 0; n < 5; n++) gate.take(point, n);
    gate.take(point, 9, 1_000);
    const draft = intake.draft();
    for (let n = 0; n < 3; n++) draft.add(draft.slotOfTag('T', 'v')!, n, Number.NaN, 0);
    await intake.submit(draft, 'http');
    await gate.settled();
    const at = clock.wallMs();
    const times = sink.stored.map(({ timeMs }) => timeMs);
    expect(times.toSorted()).toEqual([1_000, ...Array.from({ length: 8 }, (_, n) => at + n)].toSorted());
    expect(sink.stored.find(({ value }) => value === 9)).toMatchObject({ timeMs: 1_000, stampedHere: false });
  });

  it('gives times of arrival where those of the source do not count', async () => {
    const { take, sink, clock } = gateWith({}, 'arrival');
    await take(1, 1_000, 'bad');
    expect(sink.stored).toMatchObject([{ timeMs: clock.wallMs(), status: STATUS_FLAGS.bad, stampedHere: true }]);
  });

  it('counts, once they are on disk, values whose own time lies more than a day ahead of a clock that can be trusted', async () => {
    const { take, gate, point, sink, clock, ahead } = gateWith();
    const day = 86_400_000;
    sink.holds = true;
    const taken = [day - 1, day + 1, 300 * day].map((by) => take(by, clock.wallMs() + by));
    expect(ahead.get('s')).toBeUndefined();
    await until(() => sink.waiting > 0);
    sink.commit();
    await Promise.all(taken);
    expect([ahead.get('s'), sink.stored.map(({ timeMs }) => timeMs - clock.wallMs())]).toEqual([
      2,
      [day - 1, day + 1, 300 * day],
    ]);
    sink.holds = false;
    // Whole columns, as programs print them, one of them stamped here.
    const columns = new ValueColumns();
    for (const flags of [0, STAMPED_HERE]) columns.add(point.series, clock.wallMs() + 2 * day, 1, flags);
    gate.add(columns);
    await gate.settled();
    expect(ahead.get('s')).toBe(3);
    // In 1970 every time lies ahead, and says nothing.
    clock.jumpWall(-clock.wallMs());
    await take(1, 300 * day);
    expect(ahead.get('s')).toBe(3);
  });

  it.each([
    [{ deadband: { units: 1 } }, [10, 10.5, 11, 11.01, 10.5], [10, 11.01]],
    [{ deadband: { units: 0.1 } }, [0.3, 0.4, 0.41], [0.3, 0.41]],
    [{ deadband: { share: 0.01 } }, [100, 100.9, 101.1, 99], [100, 101.1, 99]],
    [{ onChange: true }, [1, 1, 2, 2, 1], [1, 2, 1]],
    [{ scale: 0.1, deadband: { units: 1 } }, [100, 105, 120], [10, 12]],
  ] as [Partial<Shaping>, number[], number[]][])('sends by %o of %o what differs', async (shaping, raw, sent) => {
    const { take, values } = gateWith(shaping);
    for (const one of raw) await take(one);
    expect(values()).toEqual(sent);
  });

  it('sends at least so often, and a change of status always', async () => {
    const { take, values, clock, sink } = gateWith({ deadband: { units: 5 }, maxSilenceMs: 10_000 });
    await take(1);
    await take(2);
    await clock.advance(10_000);
    await take(3);
    await take(4, undefined, 'bad');
    await take(4, undefined, 'bad');
    await take(4, undefined, 'good');
    expect(values()).toEqual([1, 3, 4, 4]);
    expect(sink.stored.map(({ status }) => status)).toEqual([0, 0, 3, 1]);
  });

  it('says a failure once, with the last value, and nothing where there was none', async () => {
    const { gate, point, take, sink } = gateWith({ onFailure: 'bad' });
    expect(gate.fail(point)).toBe(false);
    await take(7);
    gate.fail(point);
    gate.fail(point);
    gate.take(point, Number.NaN);
    await gate.settled();
    await take(8);
    expect(sink.stored.map(({ value, status }) => [value, status])).toEqual([
      [7, 0],
      [7, 3],
      [8, 0],
    ]);
  });

  it('moves on with the commit alone: what was not stored is sent again, and nobody is told of more', async () => {
    const { gate, point, take, values, sink } = gateWith({ deadband: { units: 1 } });
    await take(10);
    sink.holds = true;
    const first = take(20);
    await until(() => sink.waiting === 1);
    // Left out because of one that is not on disk: it waits for that one.
    const second = take(20.5);
    let isTold = false;
    second.then(
      () => (isTold = true),
      () => {},
    );
    sink.fault = new Error('the disk is gone');
    sink.commit();
    await expect(first).rejects.toThrow('gone');
    await expect(second).rejects.toThrow('gone');
    expect(isTold).toBe(false);
    sink.fault = undefined;
    sink.holds = false;
    await take(20.2);
    gate.take(point, 20.3);
    await gate.settled();
    expect(values()).toEqual([10, 20.2]);
  });

  it('offers values again while the store refuses, with their times, and counts them once', async () => {
    const { take, sink, clock, counted, gate } = gateWith();
    sink.fault = storeFault('buffer.full', 2_000);
    const at = clock.wallMs();
    const taken = take(1);
    await clock.advance(5_000);
    expect([gate.waiting, gate.stored]).toEqual([1, 0]);
    sink.fault = undefined;
    await clock.advance(2_000);
    await taken;
    expect(sink.stored).toMatchObject([{ value: 1, timeMs: at }]);
    expect([counted.get('s'), gate.stored, gate.waiting]).toEqual([1, 1, 0]);
  });

  it('puts notes into the transaction of the values they came with', async () => {
    const { gate, point, sink } = gateWith();
    sink.fault = storeFault('buffer.full', 1_000);
    gate.take(point, 1);
    gate.note({ name: 'a', text: '1' }, { name: 'b', text: '2' });
    const refused = gate.committed();
    await gate.stop();
    await expect(refused).rejects.toThrow('stopped');
    expect([sink.notes.size, sink.stored.length]).toEqual([0, 0]);
  });
});

describe('the gate of a kind that keeps order', () => {
  /** A number each turn, with a note of how far that is. */
  function counting() {
    const bench = gateWith({ deadband: { units: 0.5 } }, 'source', true);
    const { gate, point, sink, values } = bench;
    const say = async (number: number) => {
      gate.take(point, number, number);
      gate.note({ name: 'far', text: String(number) });
      await gate.committed();
    };
    return { ...bench, say, kept: () => [...values(), `far ${sink.notes.get('far')}`] };
  }

  it('puts nothing on disk, and no fact, before what came before it: what the store refused holds up what follows', async () => {
    const { say, kept, sink, clock } = counting();
    sink.fault = storeFault('buffer.full', 5_000);
    const first = say(1);
    await until(() => clock.waiting === 1);
    sink.fault = undefined;
    const more = [2, 3, 3.2].map((number) => say(number));
    await clock.advance(4_000);
    expect([sink.appends, kept()]).toEqual([1, ['far undefined']]);
    await clock.advance(2_000);
    await Promise.all([first, ...more]);
    // What had waited went together, with one that was left out because of its neighbour.
    expect([sink.appends, kept()]).toEqual([3, [1, 2, 3, 'far 3.2']]);
  });

  it('gives what waits for its turn at a stop, early, and none of it behind what the store refuses', async () => {
    const taken = counting();
    taken.sink.holds = true;
    const all = [taken.say(1)];
    await until(() => taken.sink.waiting === 1);
    all.push(taken.say(2));
    const over = taken.gate.stop();
    taken.sink.commit();
    await until(() => taken.sink.waiting === 1);
    expect(taken.sink.hurries).toBe(1);
    taken.sink.commit();
    await Promise.all([over, ...all]);
    expect(taken.kept()).toEqual([1, 2, 'far 2']);

    const refused = counting();
    refused.sink.fault = storeFault('buffer.full', 5_000);
    const none = [refused.say(1)];
    await until(() => refused.clock.waiting === 1);
    refused.sink.fault = undefined;
    none.push(refused.say(2));
    const ends = Promise.allSettled(none);
    await refused.gate.stop();
    expect((await ends).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(refused.kept()).toEqual(['far undefined']);
  });
});

describe('stamps', () => {
  it('follow a clock that was a day and more ahead, and none that went back by less', () => {
    const stamps = new Stamps();
    expect([1_000_000, 999_000, 999_000].map((wall) => stamps.next(1, wall))).toEqual([
      1_000_000, 1_000_001, 1_000_002,
    ]);
    const far = 1_000_000 + 25 * 3_600_000;
    expect([far, 1_000_000].map((wall) => stamps.next(2, wall))).toEqual([far, 1_000_000]);
  });

  it('go on where an earlier process was ahead of the clock', () => {
    const before = new Stamps();
    for (let n = 0; n < 10; n++) before.next(3, 5_000);
    before.next(4, 5_000);
    expect(before.kept(5_000)).toEqual({ latestMs: 5_000, ahead: [[3, 5_009]] });
    // Once more before anything comes: what is kept is kept on.
    const after = new Stamps(new Stamps(before.kept(5_000)).kept(5_000));
    expect([after.next(3, 5_001), after.next(4, 5_001)]).toEqual([5_010, 5_001]);
    expect(after.kept(6_000)).toEqual({ latestMs: 5_010, ahead: [] });
  });

  it('go on behind an earlier process where the clock was set back meanwhile', () => {
    const hour = 3_600_000;
    const before = new Stamps();
    expect([before.next(1, 2 * hour), before.next(2, 2 * hour + 5)]).toEqual([2 * hour, 2 * hour + 5]);
    const after = new Stamps(before.kept(2 * hour + 5));
    const given = [1, 2, 1, 2].map((series) => after.next(series, hour));
    expect(given).toEqual([2 * hour + 6, 2 * hour + 6, 2 * hour + 7, 2 * hour + 7]);
    // And behind that one in turn, though its clock never came so far.
    const third = new Stamps(after.kept(hour));
    expect([third.next(1, hour), third.next(3, hour)]).toEqual([2 * hour + 8, 2 * hour + 6]);
  });

  it('do not follow an earlier process that was days ahead, and give none twice then either', () => {
    const after = new Stamps({ latestMs: 90 * 86_400_000, ahead: [] });
    expect([1, 1, 2].map((series) => after.next(series, 5_000))).toEqual([5_000, 5_001, 5_000]);
    expect(after.kept(5_000).latestMs).toBe(5_000);
  });
});

describe('what is sent', () => {
  it('is everything where nothing says otherwise', () => {
    const last = { value: 1, isBad: false, atMs: 0 };
    expect(isSent({ scale: 1, offset: 0, onFailure: 'skip' }, last, 1, false, 0)).toBe(true);
  });
});
