/** What a store knows once it has opened, all of it at once: of each row that reads, and of each that does not. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readLogRow } from '../../src/buffer/format/log-row.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { readable } from '../../src/buffer/recovery/readable.ts';
import { recoverState } from '../../src/buffer/recovery/recovery.ts';
import { SeriesCopy } from '../../src/buffer/recovery/series-copy.ts';
import { unpackDirectory } from '../../src/buffer/span.ts';
import { StoreState } from '../../src/buffer/state.ts';
import { originSum } from '../../src/buffer/tables.ts';
import { memoryFolder } from '../memory-folder.ts';
import { HandMadeBuffer, seriesOf } from './hand-made-buffer.ts';

let folder: string;
let path: string;
let buffer: HandMadeBuffer;
beforeEach(() => {
  folder = memoryFolder('tagferry-recovery-');
  path = join(folder, 'buffer.db');
  buffer = new HandMadeBuffer(path);
});
afterEach(() => {
  buffer.close();
  rmSync(folder, { recursive: true, force: true });
});

const NOW = { monotonicMs: 5_000, wallMs: 77, boot: 'this' };

function recovered(maxLoadedSeries?: number) {
  const state = new StoreState();
  const pending = new Pending();
  const found = recoverState(buffer.database, state, pending, NOW, {
    path,
    copy: new SeriesCopy(path),
    maxLoadedSeries,
  });
  found.carrying?.close();
  return { state, pending, found };
}

/** Of the state what stands there, of `Pending` what is not empty. */
function picture(maxLoadedSeries?: number) {
  const { state, pending, found } = recovered(maxLoadedSeries);
  const { nextRow, nextSeq, nextSpan, nextPlace, logValues, segmentValues, notLoaded } = state;
  const known = state.series.filter((one) => one !== undefined);
  return {
    next: { row: nextRow, seq: nextSeq, span: nextSpan, place: nextPlace },
    values: { log: logValues, segments: segmentValues, notLoaded },
    rows: state.rows.map(({ id, firstSeq, count, left, isLoaded }) => [id, firstSeq, count, left, isLoaded]),
    spans: state.spans.map(({ id, series, gone, left, progress }) => [id, [...series], [...gone], left, [...progress]]),
    // Of each: segments, the latest time there, and of the values in its queue place, time, and whether they wait or are late.
    series: known.map(({ series, segments, backlogTimeMs, lastSeq, queue }) => [
      series.id,
      series.asset,
      segments,
      backlogTimeMs,
      lastSeq,
      Array.from({ length: queue.length }, (_, i) => queue.popped + i)
        .filter((at) => !queue.isSettled(at))
        .map((at) => queue.seqAt(at)),
      [...queue.copy(queue.popped, queue.length).timeMs],
      [...queue.copy(queue.popped, queue.length).flags],
      [queue.waiting, queue.late],
    ]),
    // How many have a queue.
    inLog: state.seriesInLog(),
    touched: [...state.touched].map(({ asset }) => asset),
    pending: pendingOf(pending),
    damaged: found.damaged,
    read: found.series.map(({ id }) => id),
    run: found.run,
    isCarrying: found.carrying !== undefined,
  };
}

function pendingOf(pending: Pending) {
  const { aside, droppedRows, droppedSeries, newSeries, goneSegments, changedSpans, droppedSpans } = pending;
  const all = {
    aside: aside.map(({ what, place, atMs, bytes }) => [what, place, atMs, bytes?.length]),
    droppedRows,
    droppedSeries,
    newSeries: [...newSeries.keys()],
    goneSegments: [...goneSegments],
    changedSpans: [...changedSpans].map(({ id }) => id),
    droppedSpans: [...droppedSpans].map(({ id }) => id),
  };
  return Object.fromEntries(Object.entries(all).filter(([, list]) => list.length > 0));
}

const NOTHING = {
  next: { row: 1, seq: 0, span: 1, place: 1 },
  values: { log: 0, segments: 0, notLoaded: 0 },
  rows: [],
  spans: [],
  series: [],
  inLog: 0,
  touched: [],
  pending: {},
  damaged: [],
  read: [],
  run: { id: 1, boot: 'this', isNew: true, notedMs: 5_000 },
  isCarrying: false,
};

describe('a store that opens', () => {
  it('knows nothing of an empty buffer', () => {
    expect(picture()).toEqual(NOTHING);
  });

  it('knows the log, the directories, what of both is settled, and the series that these name', () => {
    const M = 2 ** 20;
    buffer
      .series(1, 2, seriesOf(3, 2), 4, 5, 6)
      .span(4, 3, [
        { series: 1, times: [10, 90, 20], settled: [0, 2] },
        { series: 3, times: [5] },
      ])
      .span(2, 8, [
        { series: 1, times: [95], isGone: true },
        { series: 2, times: [7, 8] },
        { series: 4, times: [9], isGone: true },
      ])
      .sql(`INSERT INTO segment_progress SELECT ${2 * M}, ranges FROM segment_progress`)
      .sql(`INSERT INTO segment_progress SELECT ${9 * M}, ranges FROM segment_progress WHERE segment = ${4 * M}`)
      .row(7, 9, [1, 2, 1, 3])
      .row(8, 13, [1, 2], [{ series: 1, firstSeq: 9, lastSeq: 10 }])
      // Nobody has series 8; of series 3 what came is before what is there.
      .row(
        9,
        15,
        [],
        [
          { series: 2, firstSeq: 10, lastSeq: 10 },
          { series: 8, firstSeq: 1, lastSeq: 20 },
          { series: 3, firstSeq: 0, lastSeq: 11 },
          { series: 1, firstSeq: 9, lastSeq: 11 },
        ],
      )
      .quarantine(6, [1])
      .run(3, 'other', 1, 1, 9e9);
    expect(picture()).toEqual({
      next: { row: 10, seq: 15, span: 5, place: 9 },
      values: { log: 3, segments: 4, notLoaded: 0 },
      rows: [
        [7, 9, 4, 1, true],
        [8, 13, 2, 2, true],
        [9, 15, 0, 0, true],
      ],
      spans: [
        [4, [1, 3], [0, 0], 2, [[0, [0, 2]]]],
        // What is gone is named as a neighbour.
        [2, [2, 2, 2], [1, 0, 1], 1, []],
      ],
      series: [
        [1, 1, 1, 90, 13, [13], [130], [1], [1, 0]],
        [2, 1, 1, 8, 14, [14], [140], [2], [1, 0]],
        [3, 2, 1, 5, 12, [12], [120], [0], [1, 0]],
        [6, 1, 0, Number.NEGATIVE_INFINITY, -1, [], [], [], [0, 0]],
      ],
      inLog: 3,
      touched: [1, 2],
      pending: {},
      damaged: [],
      read: [1, 3, 2, 6],
      run: { id: 4, boot: 'this', isNew: true, notedMs: 5_000 },
      isCarrying: false,
    });
  });

  it('lets a value wait for its series’ backlog where its time does not lie behind that', () => {
    buffer
      .series(1, 2)
      .span(1, 1, [{ series: 1, times: [30, 10] }])
      .row(1, 2, [1, 1, 1, 2]);
    const { series } = picture();
    expect(series).toEqual([
      [1, 1, 1, 30, 4, [2, 3, 4], [20, 30, 40], [2, 3, 0], [1, 2]],
      [2, 1, 0, Number.NEGATIVE_INFINITY, 5, [5], [50], [1], [1, 0]],
    ]);
  });

  it.each([
    ['the first', 1, { row: 4, seq: 7, span: 1, place: 1 }, 0],
    ['one between others', 2, { row: 4, seq: 7, span: 1, place: 1 }, 2],
    ['the last', 3, { row: 4, seq: 5, span: 1, place: 1 }, 0],
  ])(
    'keeps a row of the log that does not read aside, and counts what lies between others: %s',
    (_, id, next, missing) => {
      buffer
        .series(1)
        .row(1, 1, [1, 1])
        .row(2, 3, [1, 1])
        .row(3, 5, [1, 1])
        .sql(`UPDATE log SET row = x'0102' WHERE id = ${id}`);
      const sequences = [1, 2, 3].filter((row) => row !== id).flatMap((row) => [row * 2 - 1, row * 2]);
      const times = sequences.map((seq) => seq * 10);
      expect(picture()).toEqual({
        ...NOTHING,
        next,
        values: { log: 4, segments: 0, notLoaded: 0 },
        rows: [1, 2, 3].filter((row) => row !== id).map((row) => [row, row * 2 - 1, 2, 2, true]),
        series: [
          [
            1,
            1,
            0,
            Number.NEGATIVE_INFINITY,
            sequences.at(-1),
            sequences,
            times,
            sequences.map((seq) => seq % 4),
            [4, 0],
          ],
        ],
        inLog: 1,
        touched: [1],
        pending: { aside: [['log', id, 77, 2]], droppedRows: [id] },
        damaged: [{ what: 'log', values: 0 }, ...(missing > 0 ? [{ what: 'log', values: missing }] : [])],
        read: [1],
      });
    },
  );

  // One bit of a row's head makes of bytes a text of as many, and SQLite sees no damage in that.
  it.each(["'a text'", '5'])('takes what stands there instead of bytes for damaged: %s', (other) => {
    buffer
      .series(1)
      .span(1, 1, [
        { series: 1, times: [1, 2], settled: [0, 1] },
        { series: 1, times: [3], isGone: true },
      ])
      .span(2, 2, [{ series: 1, times: [4] }])
      .row(1, 1, [1])
      .sql(`UPDATE log SET row = ${other}; UPDATE span_gone SET gone = ${other}; UPDATE segment_progress SET ranges = ${other};
        UPDATE span SET directory = ${other} WHERE id = 2`);
    const { spans, damaged, pending } = picture();
    expect([spans.map(([id]) => id), damaged.map(({ what }) => what), pending]).toEqual([
      [1, 2],
      ['span', 'progress', 'progress', 'log'],
      { aside: [['log', 1, 77, other === '5' ? undefined : 6]], droppedRows: [1] },
    ]);
  });

  it('posts again what is not known to be settled', () => {
    const M = 2 ** 20;
    buffer
      .series(1, 2)
      .span(1, 1, [
        { series: 1, times: [1, 2], settled: [0, 1] },
        { series: 2, times: [3], isGone: true },
      ])
      .span(2, 2, [{ series: 1, times: [4, 5, 6], settled: [0, 1] }])
      .sql("UPDATE span_gone SET gone = x'0000'")
      .sql(`UPDATE segment_progress SET ranges = x'00' WHERE segment = ${M}`);
    const { spans, damaged, values, pending } = picture();
    expect(spans).toEqual([
      [1, [1, 2], [0, 0], 2, []],
      [2, [1], [0], 1, [[0, [0, 1]]]],
    ]);
    expect([damaged, values, pending]).toEqual([
      [
        { what: 'progress', values: 0 },
        { what: 'progress', values: 0 },
      ],
      { log: 0, segments: 5, notLoaded: 0 },
      {},
    ]);
  });

  it('makes a directory anew from its segments, as its neighbour has it, and what was settled of the span is posted again', () => {
    buffer
      .series(1, 2, 3)
      .span(1, 5, [{ series: 1, times: [1] }], 7)
      .span(2, 9, [
        { series: 1, times: [1], isGone: true },
        { series: 2, times: [4, 3] },
        { series: 3, times: [1, 2, 3] },
      ])
      .span(3, 30, [{ series: 3, times: [9] }], 8)
      .sql('UPDATE span SET place = 4 WHERE id = 2')
      .sql("UPDATE segment SET packed = x'00' WHERE id = 2 * 1048576 + 2");
    const found = picture();
    expect(found.spans).toEqual([
      [1, [1], [0], 1, []],
      [2, [2, 2], [1, 0], 1, []],
      [3, [3], [0], 1, []],
    ]);
    expect([found.damaged, found.next, found.values.segments]).toEqual([
      [{ what: 'span', values: 0 }],
      { row: 1, seq: 0, span: 4, place: 31 },
      4,
    ]);
    expect(buffer.rows('SELECT id, place, run, accepted_ms FROM span')).toEqual([
      [1, 5, 7, 1_000],
      // Its place is what its segments say; the span with the nearest says when that was.
      [2, 9, 7, 1_000],
      [3, 30, 8, 3_000],
    ]);
    expect(buffer.rows('SELECT what, place, at_ms FROM set_aside')).toEqual([['span', 2, 77]]);
    const [directory] = buffer.database.prepare<[], Buffer>('SELECT directory FROM span WHERE id = 2').pluck().all();
    // The first is gone with the last: each stands there as its neighbour, with nothing.
    expect(unpackDirectory(directory!)).toEqual([
      { series: 2, count: 0, lastTimeMs: 0 },
      { series: 2, count: 2, lastTimeMs: 4 },
    ]);
    expect(picture()).toEqual({ ...found, damaged: [] });
  });

  it('makes nothing of segments without a span where no directory is damaged', () => {
    buffer
      .series(1)
      .span(4, 1, [{ series: 1, times: [1] }])
      .sql('DELETE FROM span');
    expect(picture()).toEqual(NOTHING);
    expect(buffer.rows('SELECT id FROM span')).toEqual([]);
  });

  it('takes at once what of a span with a damaged directory stands in a file that was set aside, and of no other', () => {
    const old = new HandMadeBuffer(join(folder, 'aside'));
    old
      .series(1, 2)
      .span(2, 6, [
        { series: 1, times: [1] },
        { series: 2, times: [2, 3] },
      ])
      .span(3, 7, [
        { series: 2, times: [4] },
        { series: 2, times: [5] },
      ])
      .close();
    const M = 2 ** 20;
    buffer
      .series(1, 2)
      .span(2, 6, [
        { series: 1, times: [1] },
        { series: 2, times: [2, 3], isMissing: true },
      ])
      .span(3, 7, [
        { series: 2, times: [4], isMissing: true },
        { series: 2, times: [5], isMissing: true },
      ])
      .sql('UPDATE span SET sum = 0 WHERE id = 2');
    buffer.statements.addOrigin.run('aside', 4, originSum('aside', 4));
    const { spans, values, isCarrying } = picture();
    expect([spans, values.segments, isCarrying]).toEqual([
      [
        [2, [1, 2], [0, 0], 2, []],
        [3, [2, 2], [0, 0], 2, []],
      ],
      5,
      true,
    ]);
    expect(buffer.rows('SELECT id FROM segment ORDER BY id')).toEqual([[2 * M], [2 * M + 1]]);
  });

  it('settles of the log what rows say, once, whatever was settled before and has left', () => {
    const settled = (firstSeq: number, lastSeq = firstSeq) => ({ series: 1, firstSeq, lastSeq });
    buffer
      .series(1, 2)
      .row(1, 1, [1, 1, 2, 1, 1, 1, 1])
      .row(
        2,
        8,
        [],
        [
          settled(4),
          settled(4, 5),
          settled(1),
          settled(6),
          // All of it is settled, and what follows too.
          settled(4, 5),
          settled(1, 2),
          settled(3),
          { series: 2, firstSeq: 1, lastSeq: 9 },
        ],
      );
    const { rows, series, values, inLog } = picture();
    expect([rows, values, inLog]).toEqual([
      [
        [1, 1, 7, 1, true],
        [2, 8, 0, 0, true],
      ],
      { log: 1, segments: 0, notLoaded: 0 },
      1,
    ]);
    expect(series).toEqual([
      [1, 1, 0, Number.NEGATIVE_INFINITY, 7, [7], [70], [3], [1, 0]],
      [2, 1, 0, Number.NEGATIVE_INFINITY, 3, [], [], [], [0, 0]],
    ]);
  });

  it('names nothing of a span of which no segment reads, and makes one of a span without neighbours', () => {
    buffer
      .series(1)
      .span(1, 5, [
        { series: 1, times: [1] },
        { series: 1, times: [2], isGone: true },
      ])
      .span(2, 6, [{ series: 1, times: [6, 2] }])
      .sql("UPDATE span SET sum = 0; UPDATE segment SET packed = x'00' WHERE id = 1048576");
    const found = picture();
    expect([found.spans, found.damaged]).toEqual([
      [[2, [1], [0], 1, []]],
      [
        { what: 'span', values: 0 },
        { what: 'span', values: 0 },
      ],
    ]);
    expect(buffer.rows('SELECT id, place, run, accepted_ms FROM span')).toEqual([[2, 6, 0, 0]]);
    expect(buffer.rows('SELECT span FROM span_gone')).toEqual([[2]]);
  });

  it('knows a series of which the row is lost or garbled by its copy, and writes it again', () => {
    new SeriesCopy(path).append([seriesOf(1, 4), seriesOf(2, 5), seriesOf(3, 6)], () => []);
    buffer
      .series(seriesOf(1, 4), seriesOf(3, 6))
      .row(1, 1, [1, 2, 3])
      .sql("UPDATE series SET key = 'other' WHERE id = 1");
    const { series, pending, damaged, read, values } = picture();
    expect(series.map(([id, asset]) => [id, asset])).toEqual([
      [1, 4],
      [2, 5],
      [3, 6],
    ]);
    expect([pending, damaged, read, values.log]).toEqual([
      { droppedSeries: [1], newSeries: [1, 2] },
      [{ what: 'series', values: 0 }],
      [1, 2, 3],
      3,
    ]);
  });

  it('sets aside what is of a series that nobody knows, and keeps its number from others', () => {
    buffer
      .series(2)
      .span(1, 1, [
        { series: 1, times: [1, 2, 3], settled: [0, 1] },
        { series: 2, times: [4] },
      ])
      .span(2, 2, [
        { series: 1, times: [5, 6] },
        { series: 1, times: [7], isGone: true },
      ])
      .row(1, 7, [1, 2, 1])
      .row(2, 10, [1]);
    const M = 2 ** 20;
    const bytes = (table: string, column: string, id: number) =>
      Number(buffer.rows(`SELECT length(${column}) FROM ${table} WHERE id = ${id}`).flat()[0]);
    const segments = [bytes('segment', 'packed', M), bytes('segment', 'packed', 2 * M)];
    const rows = [bytes('log', 'row', 1), bytes('log', 'row', 2)];
    const found = picture();
    expect(found).toEqual({
      ...NOTHING,
      next: { row: 3, seq: 11, span: 3, place: 3 },
      values: { log: 1, segments: 1, notLoaded: 0 },
      rows: [
        [1, 7, 3, 1, true],
        [2, 10, 1, 0, true],
      ],
      spans: [[1, [1, 2], [1, 0], 1, [[0, [0, 1]]]]],
      series: [
        [1, 0, 0, Number.NEGATIVE_INFINITY, -1, [], [], [], [0, 0]],
        [2, 1, 1, 4, 8, [8], [80], [0], [1, 0]],
      ],
      inLog: 1,
      touched: [0, 1],
      pending: {
        aside: [
          ['segment', M, 77, segments[0]],
          ['segment', 2 * M, 77, segments[1]],
          ['log', 1, 77, rows[0]],
          ['log', 2, 77, rows[1]],
        ],
        goneSegments: [M],
        changedSpans: [1],
        droppedSpans: [2],
      },
      damaged: [
        { what: 'segment', values: 2 },
        { what: 'segment', values: 2 },
        { what: 'log', values: 2 },
        { what: 'log', values: 1 },
      ],
      read: [1, 2],
    });
  });

  it('counts spans on from those that files before this one may hold', () => {
    buffer.series(1).span(3, 1, [{ series: 1, times: [1] }]);
    buffer.statements.addOrigin.run('a', 9, originSum('a', 9));
    buffer.statements.addOrigin.run('b', 5, originSum('b', 5));
    buffer.statements.addOrigin.run('c', 50, originSum('c', 51));
    const { next, isCarrying } = picture();
    expect([next.span, isCarrying]).toEqual([9, true]);
    buffer.sql('UPDATE origin SET sum = 0');
    expect([picture().next.span, picture().isCarrying]).toEqual([4, false]);
  });

  it('knows by which clock earlier runs of this start of the machine counted', () => {
    buffer
      .run(1, 'other', 100, 10, 20)
      .run(2, 'this', 100, 10, 5_000)
      .run(3, 'this', 300, 10, 5_001)
      .run(5, 'this', 400, 40, 50);
    const { state, found } = recovered();
    const stamps = (run: number) => {
      const values = { count: 1, timeMs: Float64Array.of(1_000), flags: Uint8Array.of(4) };
      const { timeMs, left } = state.stamps.correct(values, run, 1e6);
      return [timeMs[0], left];
    };
    expect([1, 2, 3, 5, 6].map(stamps)).toEqual([
      [1_000, 1],
      // The wall clock was 90 ahead when it began.
      [1_000 + 1e6 - 90, 0],
      [1_000, 1],
      [1_000 + 1e6 - 360, 0],
      [1_000 + 1e6 - (77 - 5_000), 0],
    ]);
    expect(found.run.id).toBe(6);
    // By what later runs lasted: 10 of its own, 4,990, 4,991 and 10 of the others, 7 of this one.
    expect(state.times.ageMs(1, 10, 5_007)).toBe(10 + 4_990 + 4_991 + 10 + 7);
  });
});

describe('a row that is read', () => {
  it('is none where it is damaged, and a mistake of ours stays one', () => {
    expect(readable(() => 5)).toBe(5);
    expect(readable(() => readLogRow(new Uint8Array(9)))).toBeUndefined();
    expect(() =>
      readable(() => {
        throw new TypeError('ours');
      }),
    ).toThrow('ours');
  });
});

describe('a store that may not load all series', () => {
  const fill = () =>
    buffer
      .series(1, 2, 3, 4, 5)
      .span(1, 1, [
        { series: 1, times: [1] },
        { series: 2, times: [2, 3] },
      ])
      .span(2, 2, [{ series: 1, times: [1], isGone: true }])
      .span(3, 3, [
        { series: 2, times: [4, 5, 6], settled: [0, 1] },
        { series: 3, times: [5], isGone: true },
      ])
      .row(1, 1, [1, 2])
      .row(2, 3, [3, 3])
      .row(3, 5, [1])
      .quarantine(5, [1]);

  it.each([
    [5, [1, 3], [true, true, true], { log: 5, segments: 5, notLoaded: 0 }, [1, 2, 3, 5]],
    [3, [1, 3], [true, true, true], { log: 5, segments: 5, notLoaded: 0 }, [1, 2, 3, 5]],
    // What stands behind the first that finds no room stays on disk too.
    [2, [1, 3], [true, false, false], { log: 2, segments: 5, notLoaded: 3 }, [1, 2]],
    [1, [1], [false, false, false], { log: 0, segments: 3, notLoaded: 8 }, [1, 2]],
  ])('and has room for %d loads those whose values are posted first', (max, spans, rows, values, read) => {
    fill();
    const found = picture(max);
    expect(found.spans.map(([id]) => id)).toEqual(spans);
    expect(found.rows.map((row) => row[4])).toEqual(rows);
    expect([found.values, found.read]).toEqual([values, read]);
    expect(found.next).toEqual({ row: 4, seq: 6, span: 4, place: 4 });
  });

  it('leaves spans on disk too, and counts what of them is not settled', () => {
    buffer
      .series(1, 2, 3)
      .span(1, 1, [{ series: 1, times: [1] }])
      .span(2, 2, [
        { series: 2, times: [4, 5, 6] },
        { series: 3, times: [7, 8], isGone: true },
      ])
      .span(3, 3, [{ series: 1, times: [9] }])
      .row(1, 1, [1]);
    const found = picture(1);
    expect([found.spans.map(([id]) => id), found.values, found.read]).toEqual([
      [1],
      { log: 0, segments: 1, notLoaded: 3 + 1 + 1 },
      [1],
    ]);
  });
});
