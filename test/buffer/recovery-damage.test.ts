/** What a store knows once it has opened where rows of it do not read, contradict one another or name what nobody knows. */
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readLogRow } from '../../src/buffer/format/log-row.ts';
import { readable } from '../../src/buffer/recovery/readable.ts';
import { SeriesCopy } from '../../src/buffer/recovery/series-copy.ts';
import { unpackDirectory } from '../../src/buffer/span.ts';
import { originSum } from '../../src/buffer/tables.ts';
import { freshBuffer, HandMadeBuffer, seriesOf } from './hand-made-buffer.ts';
import { NOTHING, picture } from './recovery-picture.ts';

const buffer = freshBuffer('tagferry-recovery-', new HandMadeBuffer());

describe('a store that opens', () => {
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
      expect(picture(buffer)).toEqual({
        ...NOTHING,
        run: { ...NOTHING.run, id: 2 },
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
    const { spans, damaged, pending } = picture(buffer);
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
    const { spans, damaged, values, pending } = picture(buffer);
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

  it('makes a directory anew from its segments, as its neighbours have it, and what was settled of the span is posted again', () => {
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
    const found = picture(buffer);
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
      // Its place is what its segments say; by whose clock it was accepted nobody does, between two of other runs.
      [2, 9, 0, 0],
      [3, 30, 8, 3_000],
    ]);
    expect(buffer.rows('SELECT what, place, at_ms FROM set_aside')).toEqual([['span', 2, 77]]);
    const [directory] = buffer.database.prepare<[], Buffer>('SELECT directory FROM span WHERE id = 2').pluck().all();
    // The first is gone with the last: each stands there as its neighbour, with nothing.
    expect(unpackDirectory(directory!)).toEqual([
      { series: 2, count: 0, lastTimeMs: 0, leadSeconds: 0 },
      { series: 2, count: 2, lastTimeMs: 4, leadSeconds: 0 },
    ]);
    expect(picture(buffer)).toEqual({ ...found, damaged: [] });
  });

  it.each([
    ['behind', [7, 7], [7, 1_000]],
    ['behind', [7, 8], [0, 0]],
    ['behind', [7], [0, 0]],
    ['before', [7], [0, 0]],
    ['behind', [], [0, 0]],
  ])('says by whose clock it was accepted where those before and %s it are of one run: %j', (where, runs, wanted) => {
    buffer.series(1);
    const places = where === 'before' ? [9] : [5, 30];
    for (const [i, run] of runs.entries()) buffer.span([1, 3][i]!, places[i]!, [{ series: 1, times: [1] }], run);
    buffer.span(2, 6, [{ series: 1, times: [4] }], 7).sql('UPDATE span SET sum = 0 WHERE id = 2');
    picture(buffer);
    expect(buffer.rows('SELECT run, accepted_ms FROM span WHERE id = 2')).toEqual([wanted]);
  });

  it('makes nothing of segments without a span where no directory is damaged', () => {
    buffer
      .series(1)
      .span(4, 1, [{ series: 1, times: [1] }])
      .sql('DELETE FROM span');
    expect(picture(buffer)).toEqual(NOTHING);
    expect(buffer.rows('SELECT id FROM span')).toEqual([]);
  });

  it('takes at once what of a span with a damaged directory stands in a file that was set aside, and of no other', () => {
    const old = new HandMadeBuffer(join(dirname(buffer.path), 'aside'));
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
    const { spans, values, isCarrying } = picture(buffer);
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

  it('names nothing of a span of which no segment reads, and makes one of a span without neighbours', () => {
    buffer
      .series(1)
      .span(1, 5, [
        { series: 1, times: [1] },
        { series: 1, times: [2], isGone: true },
      ])
      .span(2, 6, [{ series: 1, times: [6, 2] }])
      .sql("UPDATE span SET sum = 0; UPDATE segment SET packed = x'00' WHERE id = 1048576");
    const found = picture(buffer);
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
    new SeriesCopy(buffer.path).append([seriesOf(1, 4), seriesOf(2, 5), seriesOf(3, 6)], () => []);
    buffer
      .series(seriesOf(1, 4), seriesOf(3, 6))
      .row(1, 1, [1, 2, 3])
      .sql("UPDATE series SET key = 'other' WHERE id = 1");
    const { series, pending, damaged, read, values } = picture(buffer);
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
    const found = picture(buffer);
    expect(found).toEqual({
      ...NOTHING,
      run: { ...NOTHING.run, id: 2 },
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
