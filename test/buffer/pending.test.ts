/** What waits for a commit and what the commit writes; how a span is written and read, and which segments are kept once they were. */
import Database from 'better-sqlite3';
import { beforeEach, describe, expect, it } from 'vitest';
import { SegmentReader } from '../../src/buffer/batches/segment-reader.ts';
import { ByteWriter } from '../../src/buffer/format/bytes.ts';
import { packSegment } from '../../src/buffer/format/segment.ts';
import { unpackRanges } from '../../src/buffer/format/settled-ranges.ts';
import { Pending } from '../../src/buffer/pending.ts';
import {
  entryBehind,
  markGone,
  newSpan,
  packDirectory,
  packGone,
  type Span,
  segmentId,
  unpackDirectory,
} from '../../src/buffer/span.ts';
import {
  prepareStatements,
  prepareTables,
  quarantineSum,
  type Statements,
  seriesFields,
  spanSum,
} from '../../src/buffer/tables.ts';

const SERIES = { asset: 1, key: 'k', group: undefined, unit: undefined, instrumentation: undefined, since: 1 };
const QUARANTINED = { series: 4, count: 2, packed: Uint8Array.of(7), status: 422, message: 'no', atMs: 5 };

/** A span of so many segments, of as many series, of 1, 2, 3 and so on values. */
function spanOf(id: number, entries: number, place = id): Span {
  const list = Array.from({ length: entries }, (_, i) => ({
    series: i + 1,
    count: i + 1,
    lastTimeMs: 100 * (entries - i),
    leadSeconds: i,
  }));
  return newSpan({ id, place, run: 3, acceptedMs: 70 + id }, list);
}

/** Each thing that can be pending, and how it comes to be. */
const KINDS: [string, (pending: Pending) => void][] = [
  ['settled', (pending) => pending.settled.push({ series: 1, firstSeq: 1, lastSeq: 2 })],
  ['segments', (pending) => pending.segments.set(1, Uint8Array.of(1))],
  ['new spans', (pending) => pending.newSpans.add(spanOf(1, 1))],
  ['segments that are gone', (pending) => pending.goneSegments.add(1)],
  ['progress', (pending) => pending.progress.set(1, spanOf(1, 1))],
  ['changed spans', (pending) => pending.changedSpans.add(spanOf(1, 1))],
  ['dropped spans', (pending) => pending.droppedSpans.add(spanOf(1, 1))],
  ['quarantine', (pending) => pending.quarantine.push(QUARANTINED)],
  ['what left quarantine', (pending) => pending.releasedQuarantine.push(1)],
  ['moved values', (pending) => pending.moved.add(1, 1, 1, 0)],
  ['copies of what is damaged', (pending) => pending.aside.push({ what: 'log', place: 1, atMs: 0, bytes: undefined })],
  ['copies that go', (pending) => pending.droppedAside.push(1)],
  ['damaged rows', (pending) => pending.droppedRows.push(1)],
  ['damaged series', (pending) => pending.droppedSeries.push(1)],
  ['rows that hold nothing', (pending) => Object.assign(pending, { dropRowsThrough: 1 })],
  ['that all is carried over', (pending) => Object.assign(pending, { isCarried: true })],
];

describe('what is pending', () => {
  it.each(KINDS)('is something by its %s alone, and nothing once that is on disk', (_, bring) => {
    const pending = new Pending();
    expect(pending.isEmpty).toBe(true);
    bring(pending);
    expect(pending.isEmpty).toBe(false);
    pending.clear();
    expect(pending).toEqual(new Pending());
    expect(pending.isEmpty).toBe(true);
  });

  it('has no series left that values were to move to', () => {
    const pending = new Pending();
    pending.newSeries.set(1, { id: 1, ...SERIES });
    const { moved } = pending;
    moved.add(1, 1, 1, 0);
    pending.clear();
    expect([pending.newSeries.size, pending.moved.length, moved.length]).toEqual([0, 0, 1]);
  });

  it.each([true, false])('of a span that goes is that it goes, where it stands on disk: new %s', (isNew) => {
    const pending = new Pending();
    const [span, other] = [spanOf(1, 3), spanOf(2, 2)];
    if (isNew) for (const one of [span, other]) pending.newSpans.add(one);
    for (const one of [span, other]) {
      pending.changedSpans.add(one);
      for (const entry of one.series.keys()) {
        pending.segments.set(segmentId(one.id, entry), Uint8Array.of(entry));
        pending.goneSegments.add(segmentId(one.id, entry));
        pending.progress.set(segmentId(one.id, entry), one);
      }
    }
    pending.dropSpan(span);
    const left = [segmentId(2, 0), segmentId(2, 1)];
    expect([[...pending.segments.keys()], [...pending.goneSegments], [...pending.progress.keys()]]).toEqual([
      left,
      left,
      left,
    ]);
    expect([[...pending.newSpans], [...pending.changedSpans], [...pending.droppedSpans]]).toEqual([
      isNew ? [other] : [],
      [other],
      isNew ? [] : [span],
    ]);
  });

  it('of a segment that goes is no progress, and that it goes where it stands on disk', () => {
    const pending = new Pending();
    const span = spanOf(1, 3);
    for (const entry of [0, 1, 2]) pending.progress.set(segmentId(1, entry), span);
    pending.segments.set(segmentId(1, 0), Uint8Array.of(1));
    pending.dropSegment(span, 0);
    expect([pending.segments.size, pending.goneSegments.size]).toEqual([0, 0]);
    pending.dropSegment(span, 1);
    expect([[...pending.goneSegments], [...pending.changedSpans]]).toEqual([[segmentId(1, 1)], [span]]);
    expect([...pending.progress.keys()]).toEqual([segmentId(1, 2)]);
  });
});

describe('a commit', () => {
  let database: Database.Database;
  let statements: Statements;
  beforeEach(() => {
    database = new Database(':memory:');
    prepareTables(database);
    statements = prepareStatements(database);
  });
  const rows = (table: string) => database.prepare(`SELECT * FROM ${table} ORDER BY 1`).raw().all();
  const ids = (table: string) => database.prepare(`SELECT * FROM ${table} ORDER BY 1`).pluck().all();
  const bytes = (...values: number[]) => Buffer.from(values);

  it('writes what came: spans with their segments, what is settled of them, quarantine, series and copies', () => {
    const pending = new Pending();
    const span = spanOf(2, 9);
    span.progress.set(3, [1, 2]);
    span.gone[8] = 1;
    pending.newSpans.add(span);
    pending.changedSpans.add(span);
    pending.segments.set(segmentId(2, 3), bytes(33));
    pending.progress.set(segmentId(2, 3), span);
    // Its progress has ended since.
    pending.progress.set(segmentId(2, 4), span);
    pending.newSeries.set(6, { id: 6, ...SERIES });
    pending.quarantine.push(QUARANTINED);
    pending.aside.push({ what: 'segment', place: 8, atMs: 9, bytes: bytes(1, 2) });
    pending.aside.push({ what: 'log', place: 7, atMs: 0, bytes: undefined });
    pending.write(statements);
    expect(rows('span')).toEqual([[2, 2, 3, 72, Buffer.from(packDirectory(span)), spanSum(2, 2, 3, 72)]]);
    expect(rows('span_gone')).toEqual([[2, Buffer.from(packGone(span))]]);
    expect(rows('segment')).toEqual([[segmentId(2, 3), bytes(33)]]);
    const [[segment, ranges], ...others] = rows('segment_progress') as [number, Buffer][] as [[number, Buffer]];
    expect([segment, unpackRanges(ranges), others]).toEqual([segmentId(2, 3), [1, 2], []]);
    expect(rows('series')).toEqual([seriesFields({ id: 6, ...SERIES })]);
    expect(rows('quarantine')).toEqual([[1, 4, 2, bytes(7), 422, 'no', 5, quarantineSum(4, 2, 422, 'no', 5)]]);
    expect(rows('set_aside')).toEqual([
      [1, 'segment', 8, 9, bytes(1, 2)],
      [2, 'log', 7, 0, null],
    ]);
  });

  it('deletes what went, and nothing beside it', () => {
    const one = bytes(1);
    for (const id of [1, 2, 3, 4, 5, 6]) {
      statements.addRow.run(id, one);
      writeSeriesRow(id);
      statements.addQuarantine.run(id, 1, one, 400, 'no', 0, 0);
      statements.setAside.run('log', id, 0, one);
      statements.addSpan.run(id, id, 1, 0, one, 0);
      statements.setGone.run(id, one);
      for (const entry of [0, 1, 2, 3, 4, 5, 6, 7, 2 ** 20 - 1]) {
        statements.addSegment.run(segmentId(id, entry), one);
        statements.setProgress.run(segmentId(id, entry), one);
      }
    }
    statements.addOrigin.run('old', 1, 1);
    const segments = ids('segment');
    const pending = new Pending();
    pending.droppedAside = [2, 4];
    pending.droppedRows = [5];
    pending.dropRowsThrough = 2;
    pending.droppedSeries = [1, 3];
    pending.releasedQuarantine = [6, 2];
    pending.droppedSpans.add(spanOf(3, 2));
    const gone = [
      segmentId(1, 1),
      segmentId(1, 2),
      segmentId(1, 3),
      segmentId(1, 6),
      segmentId(1, 5),
      segmentId(2, 2 ** 20 - 1),
    ];
    for (const id of gone) pending.goneSegments.add(id);
    pending.write(statements);
    expect([ids('log'), ids('series'), ids('quarantine'), ids('set_aside'), ids('origin')]).toEqual([
      [3, 4, 6],
      [2, 4, 5, 6],
      [1, 3, 4, 5],
      [1, 3, 5, 6],
      [1],
    ]);
    expect([ids('span'), ids('span_gone')]).toEqual([
      [1, 2, 4, 5, 6],
      [1, 2, 4, 5, 6],
    ]);
    const left = segments.filter((id) => !gone.includes(id as number) && Math.floor((id as number) / 2 ** 20) !== 3);
    expect([ids('segment'), ids('segment_progress')]).toEqual([left, left]);
    pending.clear();
    pending.isCarried = true;
    pending.write(statements);
    expect([ids('origin'), ids('log')]).toEqual([[], [3, 4, 6]]);
  });

  function writeSeriesRow(id: number): void {
    statements.addSeries.run(...seriesFields({ id, ...SERIES }));
  }
});

describe('a span', () => {
  it.each([1, 2, 7, 8, 9, 16, 17, 200])('of %i segments is read as it was written', (entries) => {
    const span = spanOf(4, entries);
    const { count, series, lastTimeMs, leadSeconds, ...rest } = span;
    expect(unpackDirectory(packDirectory(span))).toEqual(
      Array.from({ length: entries }, (_, i) => ({
        ...{ series: i + 1, count: i + 1, lastTimeMs: 100 * (entries - i), leadSeconds: i },
      })),
    );
    for (const column of [series, count, lastTimeMs, leadSeconds]) expect(column).toHaveLength(entries);
    expect(rest).toEqual({
      ...{ id: 4, place: 4, run: 3, acceptedMs: 74, firstAcceptedMs: 74 - 1_000 * (entries - 1) },
      ...{ gone: new Uint8Array(entries), left: entries, changes: 0 },
      ...{ values: (entries * (entries + 1)) / 2, progress: new Map(), underWay: new Map() },
    });
    const isGone = (i: number) => i % 3 === 1 || i === entries - 1;
    const wanted = Array.from({ length: entries }, (_, i) => (isGone(i) ? 1 : 0));
    for (const i of wanted.keys()) span.gone[i] = wanted[i]!;
    const packed = packGone(span);
    const read = spanOf(4, entries);
    if (entries > 1) {
      // One of them is known to be gone already.
      read.gone[1] = 1;
      read.left--;
    }
    expect(markGone(read, packed)).toBe(true);
    expect([[...read.gone], read.left]).toEqual([wanted, wanted.filter((one) => one === 0).length]);
    expect(() => markGone(spanOf(4, entries + 8), packed)).toThrow(/damaged/);
    const broken = packed.slice();
    broken[4]! ^= 1;
    expect(() => markGone(spanOf(4, entries), broken)).toThrow(/damaged/);
    expect(packed.length).toBe(4 + Math.ceil(entries / 8));
  });

  it('has a directory of a few bytes a segment', () => {
    expect([1, 2, 3].map((entries) => packDirectory(spanOf(1, entries)).length)).toEqual([10, 15, 20]);
  });

  it('whose directory names more than it holds is damaged', () => {
    const directory = (length: number, bytes: number) => {
      const writer = new ByteWriter(64);
      writer.reset(4);
      writer.varint(length);
      writer.raw(new Uint8Array(bytes));
      return writer.seal().slice();
    };
    expect(unpackDirectory(directory(2, 6))).toHaveLength(2);
    expect(() => unpackDirectory(directory(3, 6))).toThrow(/the directory of a span/);
    expect(() => unpackDirectory(directory(1, 2))).toThrow(/damaged/);
  });

  it('is passed by who walks, begins with its first entry, or goes on with the next', () => {
    const at = { place: 5, span: 7, entry: 3 };
    const behind = (place: number, id: number) => entryBehind(at, spanOf(id, 1, place));
    const passed = Number.POSITIVE_INFINITY;
    expect([behind(5, 7), behind(5, 6), behind(5, 8)]).toEqual([3, passed, 0]);
    expect([behind(4, 7), behind(4, 8), behind(6, 7), behind(6, 6)]).toEqual([passed, passed, 0, 0]);
  });
});

describe('segments that were read', () => {
  /** So many segments of 9,960 values of a span, which with their columns count for 10,000 each. */
  function reader(segments: number) {
    const count = 9_960;
    const entries = Array.from({ length: segments }, (_, i) => ({
      series: i + 1,
      count,
      lastTimeMs: 0,
      leadSeconds: 0,
    }));
    const span = newSpan({ id: 1, place: 1, run: 1, acceptedMs: 0 }, entries);
    const column = new Float64Array(count);
    const values = { count, timeMs: column, value: column, flags: new Uint8Array(count) };
    const asked: number[] = [];
    const damaged: unknown[] = [];
    const gives: { bytes?: unknown } = {};
    const read = new SegmentReader(
      (id, of, entry) => {
        asked.push(entry);
        expect([id, of]).toEqual([segmentId(1, entry), span]);
        if ('bytes' in gives) return gives.bytes as Uint8Array;
        return packSegment(values, 0, count, { series: entry + 1, place: 1 });
      },
      (...told) => damaged.push(told),
    );
    const ask = (...places: number[]) => {
      for (const entry of places) expect(read.read(span, entry)).toMatchObject({ series: entry + 1 });
      return asked.splice(0);
    };
    return { read, span, ask, damaged, gives };
  }

  it('are kept as far as they count for a hundred thousand values, the oldest goes first', () => {
    const { ask, read } = reader(12);
    expect(ask(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(ask(0, 9)).toEqual([]);
    expect(ask(10, 9, 1)).toEqual([10]);
    expect(ask(0, 2)).toEqual([0]);
    expect(ask(1)).toEqual([1]);
    // Room for another.
    read.forget(segmentId(1, 5));
    read.forget(segmentId(1, 5));
    expect(ask(11, 3, 4, 6)).toEqual([11]);
    expect(ask(5, 4)).toEqual([5]);
    expect(ask(3)).toEqual([3]);
  });

  it('are told where they are damaged, or are not there, and asked for again', () => {
    const { read, span, damaged, gives } = reader(2);
    for (const bytes of [undefined, Uint8Array.of(1, 2, 3, 4, 5)]) {
      gives.bytes = bytes;
      expect([read.read(span, 1), damaged.splice(0)]).toEqual([undefined, [[span, 1, bytes]]]);
    }
    const shorter = { count: 1, timeMs: new Float64Array(1), value: new Float64Array(1), flags: new Uint8Array(1) };
    gives.bytes = packSegment(shorter, 0, 1, { series: 2, place: 1 });
    expect([read.read(span, 1), damaged.splice(0)]).toEqual([undefined, [[span, 1, gives.bytes]]]);
    // What is no damage is not taken for it.
    const get = () => {
      throw new RangeError('out of memory');
    };
    gives.bytes = Object.defineProperty(new Uint8Array(9), 'length', { get });
    expect(() => read.read(span, 1)).toThrow('out of memory');
    delete gives.bytes;
    expect([read.read(span, 1)?.count, damaged]).toEqual([9_960, []]);
  });
});
