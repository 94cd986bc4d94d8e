import { describe, expect, it } from 'vitest';
import { STAMPED_HERE, STATUS_FLAGS, ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import type { Shaping } from '../../../src/config/tags.ts';
import { isSent, scaledOf } from '../../../src/sources/intake/shaping.ts';
import { Stamps } from '../../../src/sources/intake/stamps.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { makeIntakeBench, originOf, storeFault, tagOf, until } from './sink-double.ts';

function gateWith(shaping: Partial<Shaping> = {}, timeFrom: 'arrival' | 'source' = 'source', inOrder = false) {
  const tags = new Map([['T', tagOf('T', 1, [{ key: 'v', from: originOf('host', 's', true, shaping) }])]]);
  const bench = makeIntakeBench(tags);
  const gate = bench.gateOf('s', timeFrom, inOrder);
  const [point] = pointsOf(tags, 's', bench.intake);
  const take = async (raw: number, ...more: [number?, ('good' | 'uncertain' | 'bad')?]) => {
    gate.accept(point!, raw, ...more);
    await gate.committed();
  };
  const values = () => bench.sink.stored.map(({ value }) => value);
  return { ...bench, gate, point: point!, take, values };
}

describe('source gate', () => {
  it('scales raw values if a scale is configured, and otherwise leaves them unchanged', () => {
    expect(scaledOf(3, { scale: 0.1, offset: 0 })).toBe(0.3);
    expect(scaledOf(1_000, { scale: 0.1, offset: -40 })).toBe(60);
    expect(scaledOf(0.1 + 0.2, { scale: 1, offset: 0 })).toBe(0.1 + 0.2);
  });

  it('returns the latest value received, even if it was not sent', async () => {
    const { gate, point, take, values } = gateWith({ deadband: { units: 10 }, onFailure: 'bad' });
    expect(gate.latestOf(point)).toBeUndefined();
    await take(20);
    await take(29);
    expect([gate.latestOf(point), values()]).toEqual([29, [20]]);
    gate.recordFailure(point);
    await gate.committed();
    expect([gate.latestOf(point), values()]).toEqual([29, [20, 20]]);
  });

  it('assigns unique timestamps within each series, and keeps timestamps from the source', async () => {
    const { gate, point, sink, clock, intake } = gateWith();
    for (let n = 0; n < 5; n++) gate.accept(point, n);
    gate.accept(point, 9, 1_000);
    const draft = intake.draft();
    for (let n = 0; n < 3; n++) draft.add(draft.slotOfTag('T', 'v')!, n, Number.NaN, 0);
    await intake.submit(draft, 'http');
    await gate.settled();
    const at = clock.wallMs();
    const times = sink.stored.map(({ timeMs }) => timeMs);
    expect(times.toSorted()).toEqual([1_000, ...Array.from({ length: 8 }, (_, n) => at + n)].toSorted());
    expect(sink.stored.find(({ value }) => value === 9)).toMatchObject({ timeMs: 1_000, stampedHere: false });
  });

  it('assigns arrival times if source timestamps are disabled', async () => {
    const { take, sink, clock } = gateWith({}, 'arrival');
    await take(1, 1_000, 'bad');
    expect(sink.stored).toMatchObject([{ timeMs: clock.wallMs(), status: STATUS_FLAGS.bad, stampedHere: true }]);
  });

  it('counts stored values with timestamps more than a day ahead of a trusted clock', async () => {
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
    // Columns from a program, with one value per row and its arrival time.
    const columns = new ValueColumns();
    for (const flags of [0, STAMPED_HERE]) columns.add(point.series, clock.wallMs() + 2 * day, 1, flags);
    gate.add(columns);
    await gate.settled();
    expect(ahead.get('s')).toBe(3);
    // Not counted while the clock is in 1970, because every time is ahead.
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
  ] as [Partial<Shaping>, number[], number[]][])(
    'sends only changes: settings %o, readings %o',
    async (shaping, raw, sent) => {
      const { take, values } = gateWith(shaping);
      for (const one of raw) await take(one);
      expect(values()).toEqual(sent);
    },
  );

  it('sends values at the minimum rate, and always sends status changes', async () => {
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

  it('resends the previous value once with status bad after a failure', async () => {
    const { gate, point, take, sink } = gateWith({ onFailure: 'bad' });
    expect(gate.recordFailure(point)).toBe(false);
    await take(7);
    gate.recordFailure(point);
    gate.recordFailure(point);
    gate.accept(point, Number.NaN);
    await gate.settled();
    await take(8);
    expect(sink.stored.map(({ value, status }) => [value, status])).toEqual([
      [7, 0],
      [7, 3],
      [8, 0],
    ]);
  });

  it('resends values that were not stored, and acknowledges values only after their commit', async () => {
    const { gate, point, take, values, sink } = gateWith({ deadband: { units: 1 } });
    await take(10);
    sink.holds = true;
    const first = take(20);
    await until(() => sink.waiting === 1);
    // Suppressed because of a value that is not on disk yet, so it is not confirmed before that value.
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
    gate.accept(point, 20.3);
    await gate.settled();
    expect(values()).toEqual([10, 20.2]);
  });

  it('retries rejected values with their original timestamps, and counts each value once', async () => {
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

  it('commits notes in the same transaction as their values', async () => {
    const { gate, point, sink } = gateWith();
    sink.fault = storeFault('buffer.full', 1_000);
    gate.accept(point, 1);
    gate.note({ name: 'a', text: '1' }, { name: 'b', text: '2' });
    const refused = gate.committed();
    await gate.stop();
    await expect(refused).rejects.toThrow('stopped');
    expect([sink.notes.size, sink.stored.length]).toEqual([0, 0]);
  });
});

describe('ordered source gate', () => {
  /** Accepts one number per turn, with a note of the position. */
  function counting() {
    const bench = gateWith({ deadband: { units: 0.5 } }, 'source', true);
    const { gate, point, sink, values } = bench;
    const say = async (number: number) => {
      gate.accept(point, number, number);
      gate.note({ name: 'far', text: String(number) });
      await gate.committed();
    };
    return { ...bench, say, kept: () => [...values(), `far ${sink.notes.get('far')}`] };
  }

  it('commits values and notes in order, even if the store rejects earlier entries', async () => {
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
    // Pending values were written together, including one that was suppressed.
    expect([sink.appends, kept()]).toEqual([3, [1, 2, 3, 'far 3.2']]);
  });

  it('commits pending values early on shutdown, unless the store rejects earlier values', async () => {
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

describe('arrival timestamps', () => {
  it('follow clock corrections of more than a day, but not smaller backward changes', () => {
    const stamps = new Stamps();
    expect([1_000_000, 999_000, 999_000].map((wall) => stamps.next(1, wall))).toEqual([
      1_000_000, 1_000_001, 1_000_002,
    ]);
    const far = 1_000_000 + 25 * 3_600_000;
    expect([far, 1_000_000].map((wall) => stamps.next(2, wall))).toEqual([far, 1_000_000]);
  });

  it('continue after timestamps from a previous process that was ahead of the clock', () => {
    const before = new Stamps();
    for (let n = 0; n < 10; n++) before.next(3, 5_000);
    before.next(4, 5_000);
    expect(before.kept(5_000)).toEqual({ latestMs: 5_000, ahead: [[3, 5_009]] });
    // A second restart without values keeps the stamps.
    const after = new Stamps(new Stamps(before.kept(5_000)).kept(5_000));
    expect([after.next(3, 5_001), after.next(4, 5_001)]).toEqual([5_010, 5_001]);
    expect(after.kept(6_000)).toEqual({ latestMs: 5_010, ahead: [] });
  });

  it('continue after timestamps from a previous process if the clock was set back', () => {
    const hour = 3_600_000;
    const before = new Stamps();
    expect([before.next(1, 2 * hour), before.next(2, 2 * hour + 5)]).toEqual([2 * hour, 2 * hour + 5]);
    const after = new Stamps(before.kept(2 * hour + 5));
    const given = [1, 2, 1, 2].map((series) => after.next(series, hour));
    expect(given).toEqual([2 * hour + 6, 2 * hour + 6, 2 * hour + 7, 2 * hour + 7]);
    // Also after a third process whose clock never reached that time.
    const third = new Stamps(after.kept(hour));
    expect([third.next(1, hour), third.next(3, hour)]).toEqual([2 * hour + 8, 2 * hour + 6]);
  });

  it('ignore timestamps from a previous process that was days ahead, and are never assigned twice', () => {
    const after = new Stamps({ latestMs: 90 * 86_400_000, ahead: [] });
    expect([1, 1, 2].map((series) => after.next(series, 5_000))).toEqual([5_000, 5_001, 5_000]);
    expect(after.kept(5_000).latestMs).toBe(5_000);
  });
});

describe('value shaping', () => {
  it('sends every value by default', () => {
    const last = { value: 1, isBad: false, atMs: 0 };
    expect(isSent({ scale: 1, offset: 0, onFailure: 'skip' }, last, 1, false, 0)).toBe(true);
  });
});
