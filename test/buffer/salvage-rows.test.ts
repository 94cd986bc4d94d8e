/** What of a buffer of a few rows is carried over, all tables of it, where some of these are garbled in one way each. */
import { appendFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../src/base/database.ts';
import { type Salvage, type SalvageRequest, salvage } from '../../src/buffer/recovery/salvage.ts';
import { SeriesCopy } from '../../src/buffer/recovery/series-copy.ts';
import { originSum } from '../../src/buffer/tables.ts';
import { freshFolder } from '../fresh-folder.ts';
import { openPaths } from '../open-paths.ts';
import { HandMadeBuffer, seriesOf } from './hand-made-buffer.ts';

const M = 2 ** 20;
const PAGE = 1024;
const WAYS = ['by SQLite', 'page by page'] as const;
type Way = (typeof WAYS)[number];

const folder = freshFolder('tagferry-salvage-rows-');
let path: string;
let made = 0;
beforeEach(() => {
  path = join(folder.path, 'old.db');
});

const TABLES = [
  'series',
  'run',
  'log',
  'span',
  'span_gone',
  'segment',
  'segment_progress',
  'quarantine',
  'note',
  'origin',
  'set_aside',
];

/** Every row of every table, bytes as text; but for the numbers of notes, which are given anew. */
function rowsOf(buffer: Pick<HandMadeBuffer, 'database'>): Record<string, unknown[][]> {
  const plain = (field: unknown) => (field instanceof Uint8Array ? Buffer.from(field).toString('hex') : field);
  const rows = (table: string) => {
    const fields = table === 'note' ? 'name, text, sum' : '*';
    return buffer.database.prepare<[], unknown[]>(`SELECT ${fields} FROM ${table} ORDER BY 1`).raw().all();
  };
  return Object.fromEntries(TABLES.map((table) => [table, rows(table).map((row) => row.map(plain))]));
}

/** One row of each table, and two of some; closed, with what SQL makes of it. Gives what stood in it before. */
function make(sql = '', fill = (buffer: HandMadeBuffer) => buffer): Record<string, unknown[][]> {
  const buffer = new HandMadeBuffer(path);
  buffer.sql('BEGIN');
  fill(
    buffer
      .series(
        seriesOf(1, 4, { group: 'g', unit: { id: 7 } }),
        seriesOf(2, 5, { unit: { code: 'bar' }, instrumentation: 8 }),
      )
      .run(1, 'one', 11, 12, 13)
      .run(2, 'two', 21, 22, 23)
      .row(1, 1, [1, 2], [{ series: 1, firstSeq: 0, lastSeq: 0 }])
      .row(2, 3, [1])
      .span(1, 1, [
        { series: 1, times: [1, 2, 3], settled: [0, 2] },
        { series: 2, times: [4], isGone: true },
      ])
      .span(2, 2, [
        { series: 1, times: [5] },
        { series: 2, times: [6, 7] },
      ])
      .quarantine(1, [1, 2])
      .quarantine(2, [3])
      .note('n', 't')
      .note('o', ''),
  );
  const before = rowsOf(buffer);
  for (const statement of sql.split(';').filter((one) => one.trim() !== '')) {
    expect(buffer.database.prepare(statement).run().changes, statement).toBeGreaterThan(0);
  }
  buffer.sql('COMMIT').close();
  return before;
}

function carry(way: Way, more: Partial<SalvageRequest> = {}): { result: Salvage; rows: Record<string, unknown[][]> } {
  const into = openDatabase(join(folder.path, `new-${++made}.db`));
  try {
    const copy = new SeriesCopy(join(folder.path, 'none'));
    const result = salvage(path, into, {
      aside: '/some/where/aside',
      copy,
      isWalDamaged: way === 'page by page',
      ...more,
    });
    // Nothing of the old file is kept open.
    expect(openFiles()).toBe(0);
    return { result, rows: rowsOf({ database: into }) };
  } finally {
    into.close();
  }
}

const openFiles = () => openPaths().filter((one) => one.startsWith(path)).length;

const ORIGIN = [[1, 'aside', 3, originSum('aside', 3)]];

describe.each(WAYS)('a buffer of a few rows that is carried over %s', (way) => {
  it('is all there but for its segments', () => {
    const before = make();
    expect(carry(way)).toEqual({
      rows: { ...before, segment: [], origin: ORIGIN },
      result: { values: 0, lostRows: 0, quarantined: 3 },
    });
  });

  it.each([
    ['series', 'asset', "'x'", 1],
    ['series', 'key', "x'41'", 1],
    ['series', 'grp', "x'41'", 1],
    ['series', 'unit_id', "'x'", 1],
    ['series', 'unit_code', "x'41'", 1],
    ['series', 'instrumentation', "'x'", 1],
    ['series', 'since', "'x'", 1],
    ['series', 'sum', "'x'", 1],
    ['run', 'boot', "x'41'", 1],
    ['run', 'boot', "'x'", 1],
    ['run', 'wall_ms', "'x'", 1],
    ['run', 'wall_ms', 'wall_ms + 1', 1],
    ['run', 'monotonic_ms', "'x'", 1],
    ['run', 'monotonic_ms', 'monotonic_ms + 1', 1],
    ['run', 'last_ms', "'x'", 1],
    ['run', 'last_ms', 'last_ms + 1', 1],
    ['run', 'sum', "'x'", 1],
    ['log', 'row', "x'00'", 1],
    ['log', 'row', "'text'", 1],
    ['log', 'row', '5', 1],
    ['span_gone', 'gone', "'text'", 1],
    ['span_gone', 'gone', "x'00'", 1],
    ['segment_progress', 'ranges', "'text'", 1],
    ['segment_progress', 'ranges', "x'00'", 1],
    ['quarantine', 'series', "'x'", 1],
    ['quarantine', 'count', 'count + 1', 1],
    ['quarantine', 'packed', "'text'", 1],
    ['quarantine', 'packed', "x'00'", 1],
    ['quarantine', 'status', '500', 1],
    ['quarantine', 'message', "x'41'", 1],
    ['quarantine', 'at_ms', "'x'", 1],
    ['quarantine', 'sum', "'x'", 1],
    ['note', 'name', "x'41'", 1],
    ['note', 'text', "x'41'", 1],
    ['note', 'text', "'other'", 1],
    ['note', 'sum', "'x'", 1],
  ])('lacks the row of %s of which %s is %s, and that alone', (table, column, value, lostRows) => {
    const at = table === 'span_gone' ? 'span' : table === 'segment_progress' ? 'segment' : 'id';
    const before = make(`UPDATE ${table} SET ${column} = ${value} WHERE ${at} = (SELECT min(${at}) FROM ${table})`);
    const rows = { ...before, segment: [], origin: ORIGIN, [table]: before[table]!.slice(1) };
    expect(carry(way)).toEqual({ rows, result: { values: 0, lostRows, quarantined: table === 'quarantine' ? 1 : 3 } });
  });

  it.each([
    ['place', "'x'"],
    ['run', '9'],
    ['accepted_ms', '9'],
    ['directory', "'text'"],
    ['directory', "x'00'"],
    ['sum', "'x'"],
  ])(
    'has a directory made anew where %s of it is %s, and of that span alone the segments, as far as they read',
    (column, value) => {
      const broken = `UPDATE segment SET packed = x'00' WHERE id = ${2 * M + 1}`;
      const before = make(`UPDATE span SET ${column} = ${value} WHERE id = 2; ${broken}`);
      const { rows, result } = carry(way);
      expect(rows.segment).toEqual([before.segment![1]]);
      expect(rows.span!.map(([id, place, run, acceptedMs]) => [id, place, run, acceptedMs])).toEqual([
        [1, 1, 1, 1_000],
        [2, 2, 0, 0],
      ]);
      const gone = rows.span_gone!.map(([id]) => id);
      expect([gone, result]).toEqual([
        [1, 2],
        // The directory, and the segment that does not read.
        { values: 0, lostRows: 2, quarantined: 3 },
      ]);
      const { span, span_gone, segment, ...others } = rows;
      const { span: _, span_gone: __, segment: ___, ...same } = before;
      expect(others).toEqual({ ...same, origin: ORIGIN });
    },
  );

  it('is without what belongs to a span of which nothing reads', () => {
    const before = make(`DELETE FROM span WHERE id = 1; DELETE FROM segment WHERE id < ${2 * M}`);
    expect(carry(way).rows).toEqual({
      ...before,
      span: [before.span![1]],
      span_gone: [],
      segment: [],
      segment_progress: [],
      origin: ORIGIN,
    });
  });

  it('has each of many rows', () => {
    const many = Array.from({ length: 2_500 }, (_, i) => i + 3);
    const before = make('', (buffer) => {
      for (const id of many) buffer.run(id, 'many', id, id, id);
      return buffer;
    });
    expect(carry(way).rows.run).toEqual(before.run);
  });

  it('knows the series that somebody has, and those of the copy, of two by one number the later', () => {
    make();
    const copy = new SeriesCopy(path);
    copy.append([seriesOf(2, 50, { since: 0 }), seriesOf(3, 60), seriesOf(4, 70, { since: 3 })], () => []);
    const known = [
      seriesOf(1, 40, { since: 2 }),
      seriesOf(2, 50, { since: 0 }),
      seriesOf(4, 80, { since: 2 }),
      seriesOf(5, 9),
    ];
    const { rows, result } = carry(way, { copy, known });
    expect([rows.series!.map(([id, asset]) => [id, asset]), result.lostRows]).toEqual([
      [
        [1, 40],
        [2, 5],
        [3, 60],
        [4, 70],
        [5, 9],
      ],
      0,
    ]);
  });

  it('names older files that were set aside once, and begins its numbers above theirs', () => {
    const names: [string, number, number][] = [
      ['a', 9, originSum('a', 9)],
      ['b', 5, originSum('b', 5)],
      ['c', 70, 1],
    ];
    make('', (buffer) => {
      for (const name of names) buffer.statements.addOrigin.run(...name);
      return buffer;
    });
    const { rows, result } = carry(way);
    expect(rows.origin!.map(([, ...rest]) => rest)).toEqual([
      ...names.slice(0, 2),
      ['aside', 9, originSum('aside', 9)],
    ]);
    expect(result.lostRows).toBe(1);
  });

  it('is read by SQLite alone where that reads all of it: what no page is does not count then', () => {
    const before = make();
    // As a power cut leaves a file that was to grow.
    appendFileSync(path, new Uint8Array(100));
    expect(carry(way)).toEqual({
      rows: { ...before, segment: [], origin: ORIGIN },
      result: { values: 0, lostRows: 0, quarantined: 3, ...(way === 'page by page' && { unreadPages: 1 }) },
    });
  });

  it('has of a span without a directory the segments alone, not what is like them in tables of another', () => {
    const before = make('', (buffer) =>
      buffer.sql(`CREATE TABLE keyless (one, packed); INSERT INTO keyless SELECT 5, packed FROM segment WHERE id = 2 * ${M};
        UPDATE keyless SET rowid = 2 * ${M} + 5;
        CREATE TABLE longer (id INTEGER PRIMARY KEY, packed, more);
        INSERT INTO longer SELECT 2 * ${M} + 6, packed, 5 FROM segment WHERE id = 2 * ${M};
        CREATE TABLE texts (id INTEGER PRIMARY KEY, packed); INSERT INTO texts VALUES (2 * ${M} + 7, 'a text');
        UPDATE span SET sum = 0 WHERE id = 2`),
    );
    expect(carry(way).rows.segment).toEqual(before.segment!.slice(1));
  });

  it('takes no row that has a field more than ours', () => {
    make('', (buffer) => buffer.sql('ALTER TABLE run ADD COLUMN more INTEGER; UPDATE run SET more = 5'));
    expect([carry(way).rows.run, carry(way).result.lostRows]).toEqual([[], 2]);
  });

  it('is an empty one that names the old file where that is not there, or none of SQLite’s', () => {
    const nothing = Object.fromEntries(TABLES.map((table) => [table, []]));
    const empty = {
      rows: { ...nothing, origin: [[1, 'aside', 1, originSum('aside', 1)]] },
      result: { values: 0, lostRows: 0, quarantined: 0 },
    };
    expect(carry(way)).toEqual(empty);
    writeFileSync(path, Buffer.alloc(16 * PAGE, 'none of SQLite’s'));
    expect(carry(way)).toEqual(empty);
    rmSync(path);
    openDatabase(path).close();
    expect(carry(way)).toEqual(empty);
  });

  it('is not taken for carried over where the disk does not take what is written', () => {
    make('', (buffer) =>
      buffer.span(
        3,
        3,
        Array.from({ length: 900 }, (_, i) => ({ series: 1, times: [i], isGone: true })),
      ),
    );
    const into = new HandMadeBuffer(join(folder.path, 'narrow.db'));
    into.sql(`PRAGMA max_page_count = ${Number(into.database.pragma('page_count', { simple: true })) + 1}`);
    const request = {
      aside: 'aside',
      copy: new SeriesCopy(join(folder.path, 'none')),
      isWalDamaged: way === 'page by page',
    };
    expect(() => salvage(path, into.database, request)).toThrow(expect.objectContaining({ code: 'SQLITE_FULL' }));
    expect(openFiles()).toBe(0);
    into.close();
  });
});

describe('a log of which rows break off', () => {
  const ROWS = [
    { id: 1, firstSeq: 10, count: 500 },
    { id: 2, firstSeq: 510, count: 600 },
    { id: 3, firstSeq: 1_110, count: 700 },
  ];

  /** Where the rest of a row stands no page is any more. */
  function breakOff(ids: readonly number[]): void {
    const database = openDatabase(path);
    const overflow = database.prepare<[], { path: string; pageno: number }>(
      "SELECT path, pageno FROM dbstat WHERE name = 'log' AND path LIKE '%+000000' ORDER BY path",
    );
    const pages = overflow.all().map(({ pageno }) => pageno);
    database.close();
    expect(pages).toHaveLength(ROWS.length);
    const file = readFileSync(path);
    for (const id of ids) {
      const pointer = Buffer.alloc(4);
      pointer.writeUInt32BE(pages[id - 1]!);
      const leaves = [...Array(file.length / PAGE).keys()].filter((page) => file[page * PAGE] === 0x0d);
      const places = leaves
        .map((page) => file.indexOf(pointer, page * PAGE))
        .filter((at) => at >= 0 && leaves.includes(Math.floor(at / PAGE)));
      expect(places.length, `row ${id}`).toBeGreaterThan(0);
      file.writeUInt32BE(0xffff_ffff, places[0]!);
    }
    writeFileSync(path, file);
  }

  it.each([
    [[], undefined, [1, 2, 3], 0],
    [[1], 500, [2, 3], 1],
    // What lies between two that read their places tell.
    [[2], undefined, [1, 3], 1],
    [[3], 700, [1, 2], 1],
    [[1, 3], 1_200, [2], 2],
    [[1, 2], 1_100, [3], 2],
    [[1, 2, 3], 1_800, [], 3],
  ])('counts the values of those at its edges: of %j %s', (broken, lostAtEdges, left, lostRows) => {
    const buffer = new HandMadeBuffer(path).series(1);
    for (const { id, firstSeq, count } of ROWS) buffer.row(id, firstSeq, Array(count).fill(1));
    buffer.close();
    breakOff(broken);
    const { result, rows } = carry('page by page');
    expect([rows.log!.map(([id]) => id), result]).toEqual([
      left,
      { values: 0, lostRows, quarantined: 0, ...(lostAtEdges === undefined ? {} : { lostAtEdges }) },
    ]);
  });
});
