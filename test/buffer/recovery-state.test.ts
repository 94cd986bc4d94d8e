/** What a store knows once it has opened, all of it at once. */
import { describe, expect, it } from 'vitest';
import { originSum } from '../../src/buffer/tables.ts';
import { freshBuffer, HandMadeBuffer, seriesOf } from './hand-made-buffer.ts';
import { NOTHING, picture, recovered } from './recovery-picture.ts';

const buffer = freshBuffer('tagferry-recovery-', new HandMadeBuffer());

describe('a store that opens', () => {
  it('knows nothing of an empty buffer', () => {
    expect(picture(buffer)).toEqual(NOTHING);
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
    expect(picture(buffer)).toEqual({
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
      run: { id: 4, boot: 'this', isNew: true, began: { monotonicMs: 5_000, wallMs: 77 }, notedMs: 5_000 },
      isCarrying: false,
    });
  });

  it('lets a value wait for its series’ backlog where its time does not lie behind that', () => {
    buffer
      .series(1, 2)
      .span(1, 1, [{ series: 1, times: [30, 10] }])
      .row(1, 2, [1, 1, 1, 2]);
    const { series } = picture(buffer);
    expect(series).toEqual([
      [1, 1, 1, 30, 4, [2, 3, 4], [20, 30, 40], [2, 3, 0], [1, 2]],
      [2, 1, 0, Number.NEGATIVE_INFINITY, 5, [5], [50], [1], [1, 0]],
    ]);
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
    const { rows, series, values, inLog } = picture(buffer);
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

  it('counts spans on from those that files before this one may hold', () => {
    buffer.series(1).span(3, 1, [{ series: 1, times: [1] }]);
    buffer.statements.addOrigin.run('a', 9, originSum('a', 9));
    buffer.statements.addOrigin.run('b', 5, originSum('b', 5));
    buffer.statements.addOrigin.run('c', 50, originSum('c', 51));
    const { next, isCarrying } = picture(buffer);
    expect([next.span, isCarrying]).toEqual([9, true]);
    buffer.sql('UPDATE origin SET sum = 0');
    expect([picture(buffer).next.span, picture(buffer).isCarrying]).toEqual([4, false]);
  });

  it('knows by which clock earlier runs of this start of the machine counted', () => {
    buffer
      .run(1, 'other', 100, 10, 20)
      .run(2, 'this', 100, 10, 5_000)
      .run(3, 'this', 300, 10, 5_001)
      .run(5, 'this', 400, 40, 50);
    const { state, found } = recovered(buffer);
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

describe('a store that opens where the row of a run is lost', () => {
  const sound = () => buffer.series(1).run(1, 'this', 100, 10, 20).run(2, 'this', 300, 30, 40);

  it.each([
    ['boot', "'that'"],
    ['boot', "x'74686973'"],
    ['wall_ms', 'wall_ms + 1'],
    ['monotonic_ms', 'monotonic_ms - 1'],
    ['last_ms', 'last_ms + 1'],
    ['sum', 'sum + 1'],
    ['id', '9'],
  ])(
    'by another %s, %s, corrects nothing by its clock, says so once, and gives its number to no other',
    (column, value) => {
      sound().row(1, 1, [1], [], 2).sql(`UPDATE run SET ${column} = ${value} WHERE id = 2`);
      const { state, found } = recovered(buffer);
      const values = { count: 1, timeMs: Float64Array.of(1_000), flags: Uint8Array.of(4) };
      expect([1, 2, 3, 9].map((run) => state.stamps.correct(values, run, 1e6).left)).toEqual([0, 1, 0, 1]);
      expect([found.run.id, found.damaged]).toEqual([3, [{ what: 'run', values: 0 }]]);
      // Of what an unknown run accepted only the time since then is known; of the run before, what is known of its own.
      expect([1, 2].map((run) => state.times.ageMs(run, 15, 5_007))).toEqual([5 + 7, 7]);
      expect(buffer.rows('SELECT id FROM run')).toEqual([[1]]);
      expect(recovered(buffer).found.damaged).toEqual([]);
    },
  );

  it.each([
    ['the log', () => buffer.row(1, 1, [1], [], 6).row(2, 2, [1], [], 4), 7],
    ['a span', () => buffer.span(1, 1, [{ series: 1, times: [1] }], 8).span(2, 2, [{ series: 1, times: [2] }], 5), 9],
    ['nothing', () => {}, 3],
  ])('counts on from the last run that %s names', (_, name, next) => {
    sound();
    name();
    expect(recovered(buffer).found.run.id).toBe(next);
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
    const found = picture(buffer, max);
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
    const found = picture(buffer, 1);
    expect([found.spans.map(([id]) => id), found.values, found.read]).toEqual([
      [1],
      { log: 0, segments: 1, notLoaded: 3 + 1 + 1 },
      [1],
    ]);
  });
});
