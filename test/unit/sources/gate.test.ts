import { describe, expect, it } from 'vitest';
import { StoreError } from '../../../src/base/errors.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { type CommitPort, Committer } from '../../../src/buffer/client/committer.ts';
import { STATUS_FLAGS } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { StoreFacts } from '../../../src/buffer/store-facts.ts';
import type { Shaping } from '../../../src/config/tags.ts';
import { Gate, type GateOptions } from '../../../src/sources/intake/gate.ts';
import { Intake } from '../../../src/sources/intake/intake.ts';
import { Stamps } from '../../../src/sources/intake/stamps.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { makeIntakeBench, originOf, statusOf, tagOf } from './sink-double.ts';

function gateWith(shaping: Partial<Shaping> = {}, timeFrom: 'arrival' | 'source' = 'source') {
  const tags = new Map([['T', tagOf('T', 1, [{ key: 'v', from: originOf('host', 's', true, shaping) }])]]);
  const bench = makeIntakeBench(tags);
  const gate = bench.gateOf('s', timeFrom);
  const [point] = pointsOf(tags, 's', bench.intake);
  const take = (raw: number, timeMs?: number, quality?: 'good' | 'uncertain' | 'bad') =>
    gate.write([{ point: point!, raw, timeMs, quality }]);
  const values = () => bench.sink.stored.map(({ value }) => value);
  return { ...bench, gate, point: point!, take, values };
}

describe('source gate', () => {
  it('returns the latest value received, even if it was not sent', async () => {
    const { gate, point, take, values } = gateWith({ deadband: { units: 10 }, onFailure: 'bad' });
    expect(gate.status.latestOf(point.series)).toBeUndefined();
    await take(20);
    await take(29);
    expect([gate.status.latestOf(point.series), values()]).toEqual([29, [20]]);
    await gate.write([{ point, failure: undefined }]);
    expect([gate.status.latestOf(point.series), values()]).toEqual([29, [20, 20]]);
  });

  it('assigns unique timestamps within each series, and keeps timestamps from the source', async () => {
    const { gate, point, sink, clock, intake } = gateWith();
    for (let n = 0; n < 5; n++) gate.record([{ point, raw: n }]);
    gate.record([{ point, raw: 9, timeMs: 1_000 }]);
    const draft = intake.draft();
    for (let n = 0; n < 3; n++) draft.add(draft.slotOfTag('T', 'v')!, n, Number.NaN, 0);
    await intake.submit(draft, 'http');
    await gate.write([]);
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

  it.each([
    [{ deadband: { units: 1 } }, [10, 10.5, 11, 11.01, 10.5], [10, 11.01]],
    [{ deadband: { units: 0.1 } }, [0.3, 0.4, 0.41], [0.3, 0.41]],
    [{ deadband: { share: 0.01 } }, [100, 100.9, 101.1, 99], [100, 101.1, 99]],
    [{ onChange: true }, [1, 1, 2, 2, 1], [1, 2, 1]],
    [{ scale: 0.1, deadband: { units: 1 } }, [100, 105, 120], [10, 12]],
    [{ scale: 0.1 }, [3, 3], [0.3, 0.3]],
    [{ scale: 0.1, offset: -40 }, [1_000], [60]],
    [{}, [0.1 + 0.2], [0.1 + 0.2]],
  ] as [Partial<Shaping>, number[], number[]][])(
    'sends scaled values beyond the dead band: settings %o, readings %o',
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
    const failure = { point, failure: undefined };
    await gate.write([failure]);
    await take(7);
    await gate.write([failure, failure, { point, raw: Number.NaN }]);
    await take(8);
    expect(sink.stored.map(({ value, status }) => [value, status])).toEqual([
      [7, 0],
      [7, 3],
      [8, 0],
    ]);
  });

  it('resends the previous value after its own timestamp, which can be ahead of the clock', async () => {
    const { gate, point, take, sink, clock } = gateWith({ onFailure: 'bad' });
    const aheadMs = clock.wallMs() + 5_000;
    await take(7, aheadMs);
    await gate.write([{ point, failure: undefined }]);
    await take(8, aheadMs + 10);
    await gate.write([{ point, failure: 'no number', timeMs: aheadMs }]);
    const stored = sink.stored.map(({ value, status, timeMs }) => [value, status, timeMs - aheadMs]);
    expect(stored).toEqual([
      [7, 0, 0],
      [7, 3, 1],
      [8, 0, 10],
      [8, 3, 11],
    ]);
  });
});

/** Committer over a store whose commits end when the test says so. */
function committing(shaping: Partial<Shaping> = {}) {
  const clock = new ManualClock();
  const catalogue = new SeriesCatalogue();
  const commits: { values: number[]; notes: string[]; end: (failure?: StoreError) => void }[] = [];
  const facts = { dirty: false, maintenanceDue: false, short: false, spare: false, oversized: false } as StoreFacts;
  const port: CommitPort = {
    commit: ({ columns, notes = [] }) =>
      new Promise((resolve, reject) => {
        const values = columns === undefined ? [] : [...columns.value.subarray(0, columns.length)];
        const end = (failure?: StoreError) => (failure ? reject(failure) : resolve(facts));
        commits.push({ values, notes: notes.map(({ name, text }) => `${name}=${text}`), end });
      }),
    maintain: async () => facts,
    vacuum: async () => facts,
  };
  const [intervalMs, values] = [1_000, 100];
  const committer = new Committer(port, { clock, catalogue, intervalMs, values, maxWaiting: 150, onFacts: () => {} });
  const tags = new Map([['T', tagOf('T', 1, [{ key: 'v', from: originOf('host', 's', true, shaping) }])]]);
  const [stamps, log] = [new Stamps(), silentLogger()];
  const intake = new Intake({ catalogue, tags, committer, stamps, clock, log });
  const [point] = pointsOf(tags, 's', intake);
  const gateOf = (options: Partial<GateOptions> = {}) =>
    new Gate({ status: statusOf('s', { clock }), timeFrom: 'source', committer, stamps, clock, log, ...options });
  const say = (gate: Gate, ...numbers: number[]) => gate.write(numbers.map((raw) => ({ point: point!, raw })));
  const stateOf = (promise: Promise<void>) => {
    const state = { is: 'waiting' };
    promise.then(
      () => (state.is = 'stored'),
      (error) => (state.is = String(error.code)),
    );
    return state;
  };
  return { clock, commits, committer, gateOf, say, stateOf, point: point! };
}
const DISK_FULL = new StoreError('the disk is full', { code: 'buffer.disk-full', retryable: true });

describe('write to a gate', () => {
  it('resolves when the commit that pulled its values is on disk, and not before', async () => {
    const { clock, commits, gateOf, say, stateOf } = committing();
    const gate = gateOf();
    const first = stateOf(say(gate, 1, 2));
    await clock.advance(0);
    // Added while the commit runs, so that it belongs to the next one.
    const second = stateOf(say(gate, 3));
    await clock.advance(0);
    expect([commits.map(({ values }) => values), first.is, second.is]).toEqual([[[1, 2]], 'waiting', 'waiting']);
    commits[0]!.end();
    await clock.advance(999);
    expect([commits.length, first.is, second.is]).toEqual([1, 'stored', 'waiting']);
    await clock.advance(1);
    commits[1]!.end();
    await clock.advance(0);
    expect([commits[1]!.values, second.is]).toEqual([[3], 'stored']);
  });

  it('is part of one commit with the values and latest notes of all other sources', async () => {
    const { clock, commits, gateOf, point, say } = committing();
    const [one, other] = [gateOf(), gateOf({ status: statusOf('other') })];
    void one.write([{ point, raw: 1 }], [{ name: 'position', text: '1' }]);
    void say(other, 2);
    void one.write([{ point, raw: 3 }], [{ name: 'position', text: '3' }]);
    await clock.advance(0);
    expect([commits[0]!.values, commits[0]!.notes]).toEqual([[1, 3, 2], ['position=3']]);
  });

  it('causes a commit before the interval ends if COMMIT_VALUES values wait in all sources', async () => {
    const { clock, commits, gateOf, say } = committing();
    const gates = [gateOf(), gateOf()];
    void say(gates[0]!, 0);
    await clock.advance(0);
    commits[0]!.end();
    for (const gate of gates) void say(gate, ...Array(49).keys());
    await clock.advance(10);
    expect(commits.length).toBe(1);
    void say(gates[0]!, 1, 2);
    await clock.advance(10);
    expect(commits.map(({ values }) => values.length)).toEqual([1, 100]);
  });

  it('belongs to the batch even if the dead band suppresses the reading', async () => {
    const { clock, commits, gateOf, say, stateOf } = committing({ deadband: { units: 1 } });
    const gate = gateOf();
    const sent = stateOf(say(gate, 20));
    const inOpen = stateOf(say(gate, 20.5));
    await clock.advance(0);
    const inWritten = stateOf(say(gate, 20.4));
    await clock.advance(0);
    expect([sent.is, inOpen.is, inWritten.is]).toEqual(['waiting', 'waiting', 'waiting']);
    // The value to which they were compared is not on disk, so none of them is confirmed.
    commits[0]!.end(DISK_FULL);
    await clock.advance(0);
    expect([sent.is, inOpen.is, inWritten.is]).toEqual(['waiting', 'waiting', 'waiting']);
    await clock.advance(1_000);
    commits[1]!.end();
    await clock.advance(0);
    expect([commits[1]!.values, sent.is, inOpen.is, inWritten.is]).toEqual([[20], 'stored', 'stored', 'stored']);
    expect(await say(gate, 20.3)).toBeUndefined();
  });

  it('is stored in the order of acceptance and counted once after a failed commit', async () => {
    const { clock, commits, committer, gateOf, point, stateOf } = committing();
    const counted: number[] = [];
    const gate = gateOf({ countIngested: (_source, values) => counted.push(values) });
    const write = (raw: number) => stateOf(gate.write([{ point, raw }], [{ name: 'position', text: String(raw) }]));
    const all = [write(1)];
    await clock.advance(0);
    all.push(write(2));
    commits[0]!.end(DISK_FULL);
    await clock.advance(0);
    all.push(write(3));
    expect([gate.waiting, gate.status.stored, committer.waitingValues]).toEqual([3, 0, 3]);
    await clock.advance(1_000);
    expect([commits[1]!.values, commits[1]!.notes]).toEqual([[1, 2, 3], ['position=3']]);
    commits[1]!.end();
    await clock.advance(0);
    expect([all.map(({ is }) => is), counted, gate.waiting]).toEqual([Array(3).fill('stored'), [3], 0]);
  });

  it('rejects after a failed commit if the sender repeats the request, and later requests are not affected', async () => {
    const { clock, commits, gateOf, say, stateOf } = committing();
    const gate = gateOf({ repeats: true });
    const first = stateOf(say(gate, 1));
    await clock.advance(0);
    const second = stateOf(say(gate, 2));
    commits[0]!.end(DISK_FULL);
    await clock.advance(1_000);
    expect([first.is, second.is, commits[1]!.values]).toEqual(['buffer.disk-full', 'waiting', [2]]);
    commits[1]!.end();
    await clock.advance(0);
    expect(second.is).toBe('stored');
  });

  it('rejects if the source stops and its final commit fails', async () => {
    const { clock, commits, gateOf, say, stateOf } = committing();
    const gate = gateOf();
    const write = stateOf(say(gate, 1));
    await clock.advance(0);
    commits[0]!.end(DISK_FULL);
    await clock.advance(0);
    const stopped = stateOf(gate.stop());
    await clock.advance(1_000);
    expect([write.is, stopped.is, commits[1]!.values]).toEqual(['waiting', 'waiting', [1]]);
    commits[1]!.end(DISK_FULL);
    await clock.advance(2_000);
    expect([write.is, stopped.is, commits.length]).toEqual(['buffer.disk-full', 'stored', 2]);
  });
});

describe('stopped gate', () => {
  it('commits its batch early, and stops only when the batch is on disk', async () => {
    const { clock, commits, gateOf, say, stateOf } = committing();
    const gate = gateOf();
    void say(gate, 1);
    await clock.advance(0);
    const second = stateOf(say(gate, 2));
    const stopped = stateOf(gate.stop());
    commits[0]!.end();
    await clock.advance(100);
    expect([commits[1]!.values, stopped.is]).toEqual([[2], 'waiting']);
    // A source that replaces it opens later, so its values are stored later.
    commits[1]!.end();
    await clock.advance(0);
    expect([stopped.is, second.is, stateOf(say(gate, 3))]).toMatchObject(['stored', 'stored', {}]);
    await expect(say(gate, 4)).rejects.toMatchObject({ code: 'source.stopped' });
  });
});

describe('full gate', () => {
  it('pauses its source at its own limit or that of all sources', async () => {
    const { clock, commits, gateOf, say } = committing();
    const [gate, other] = [gateOf({ maxWaiting: 3 }), gateOf()];
    void say(gate, 1, 2, 3);
    await clock.advance(0);
    expect([gate.isFull, other.isFull]).toEqual([true, false]);
    void say(other, ...Array(150).keys());
    expect(other.isFull).toBe(true);
    commits[0]!.end();
    await clock.advance(0);
    commits[1]!.end();
    await clock.advance(0);
    expect([gate.isFull, other.isFull]).toEqual([false, false]);
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
