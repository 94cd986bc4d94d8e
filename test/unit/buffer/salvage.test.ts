/** Recovery of a damaged buffer, with SQLite and page by page. */
import { copyFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { type Salvage, salvage } from '../../../src/buffer/recovery/salvage.ts';
import { SeriesCopy } from '../../../src/buffer/recovery/series-copy.ts';
import { unpackDirectory } from '../../../src/buffer/span.ts';
import { newFolder } from '../../fresh-folder.ts';
import { World } from '../model/store-world.ts';

/** Compared columns of each table. */
const TABLES = {
  series: '*',
  run: '*',
  log: '*',
  span: '*',
  span_gone: '*',
  segment_progress: '*',
  quarantine: '*',
  note: 'name, text, sum',
  origin: 'name, below, sum',
};
type Rows = Record<keyof typeof TABLES, unknown[][]>;

/** A buffer with rows in every table; created once. */
let origin: string;
let folder: string;
let path: string;
let made = 0;
beforeAll(async () => {
  origin = newFolder('tagferry-salvage-origin-');
  const world = new World(origin, 2);
  for (let turn = 0; turn < 400; turn++) {
    world.step();
    await world.clock.advance(world.random(20));
  }
  const refusal = { status: 400, message: 'no such unit', atMs: 5 };
  for (let asset = 1, kept = 0; kept < 3; asset = 1 + (asset % 4)) {
    const lane = kept % 2 === 0 ? 'live' : 'backlog';
    const { batch } = world.store.take({ asset, lane, maxValues: 1, maxBytes: 5_000 });
    if (!batch) world.append();
    else if (++kept) world.store.quarantine(batch.id, refusal);
  }
  const notes = ['one', 'two'].map((text) => ({ name: text, text }));
  world.store.commit({ columns: undefined, notes, newSeries: [], monotonicMs: 9e6 });
  for (const end of ['', '-wal', '.series']) copyFileSync(`${world.path}${end}`, join(origin, `old.db${end}`));
});
afterAll(() => rmSync(origin, { recursive: true, force: true }));
beforeEach(() => {
  folder = newFolder('tagferry-salvage-');
  path = join(folder, 'old.db');
  for (const end of ['', '-wal', '.series']) copyFileSync(join(origin, `old.db${end}`), `${path}${end}`);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function rowsOf(file: string | Database.Database): Rows {
  const database = typeof file === 'string' ? new Database(file) : file;
  const rows = Object.entries(TABLES).map(([table, columns]) => [
    table,
    database.prepare<[], unknown[]>(`SELECT ${columns} FROM ${table} ORDER BY 1`).raw().all(),
  ]);
  if (typeof file === 'string') database.close();
  return Object.fromEntries(rows) as Rows;
}

function change(sql: string): void {
  const database = new Database(path);
  expect(database.exec(sql).prepare('SELECT total_changes()').pluck().get()).toBeGreaterThan(0);
  database.close();
}

/** Copies the buffer, by default without the series copy. */
function carry(way: 'by SQLite' | 'page by page', withCopy = false): { result: Salvage; rows: Rows } {
  const into = openDatabase(join(folder, `new-${++made}.db`));
  try {
    const copy = new SeriesCopy(withCopy ? path : join(folder, 'none'));
    const result = salvage(path, into, {
      aside: `/elsewhere/aside-${made}`,
      copy,
      isWalDamaged: way === 'page by page',
    });
    return { result, rows: rowsOf(into) };
  } finally {
    into.close();
  }
}

const WAYS = ['by SQLite', 'page by page'] as const;

describe('buffer with a corrupt header', () => {
  it.each([
    ['another format version', 60, 4],
    ['that the file is not a database', 0, 100],
  ])('is read page by page when SQLite reports %s', (_, at, bytes) => {
    const database = new Database(path);
    database.pragma('wal_checkpoint(TRUNCATE)');
    database.close();
    const old = rowsOf(path);
    const file = readFileSync(path);
    writeFileSync(path, file.fill(0, at, at + bytes));
    const { result, rows } = carry('by SQLite');
    expect({ ...rows, origin: [] }).toEqual({ ...old, origin: [] });
    expect(result.lostRows).toBe(0);
  });
});

describe.each(WAYS)('buffer copied %s', (way) => {
  it('is identical to the original, except that segments remain in the old file', () => {
    const old = rowsOf(path);
    for (const table of [
      'series',
      'run',
      'log',
      'span',
      'span_gone',
      'segment_progress',
      'quarantine',
      'note',
    ] as const)
      expect(old[table].length, table).toBeGreaterThan(0);
    const { result, rows } = carry(way);
    const [[name, below] = []] = rows.origin;
    expect(name).toBe(`aside-${made}`);
    expect(below).toBe(1 + Math.max(...old.span.map(([id]) => Number(id))));
    expect({ ...rows, origin: [] }).toEqual({ ...old, origin: [] });
    const quarantined = old.quarantine.reduce((sum, row) => sum + Number(row[2]), 0);
    expect(result).toEqual({ values: 0, lostRows: 0, quarantined });
  });

  it.each([
    ['series', 'sum = sum + 1'],
    ['series', 'key = 7'],
    ['series', "asset = 'x'"],
    ['series', "unit_id = 'x'"],
    ['series', 'grp = 5'],
    ['log', 'row = substr(row, 1, length(row) - 1)'],
    ['log', "row = 'a text'"],
    ['span', 'sum = sum + 1'],
    ['span', 'place = place + 1000'],
    ['span_gone', "gone = x'00'"],
    ['segment_progress', "ranges = x'ff'"],
    ['quarantine', 'sum = sum + 1'],
    ['quarantine', 'count = count + 1'],
    ['quarantine', "packed = x'0102'"],
    ['quarantine', 'message = 3'],
    ['note', "text = text || 'x'"],
    ['note', 'sum = sum + 1'],
  ])('lacks only the corrupt row of %s (%s)', (table, sql) => {
    const old = rowsOf(path);
    const column = new Database(path, { readonly: true });
    const [key] = column.prepare<[], string>(`SELECT name FROM pragma_table_info('${table}')`).pluck().all();
    column.close();
    change(`UPDATE ${table} SET ${sql} WHERE ${key} = (SELECT min(${key}) FROM ${table})`);
    const { result, rows } = carry(way);
    const [first, ...rest] = old[table as keyof Rows];
    if (table === 'span') {
      // The directory is rebuilt from the remaining segments, which do not contain acceptance times.
      const entriesOf = (from: unknown[][]) => from.map((row) => unpackDirectory(row[4] as Buffer));
      const [before = [], ...others] = entriesOf(old.span);
      const [after = [], ...same] = entriesOf(rows.span);
      expect(same).toEqual(others);
      expect(after.length).toBeGreaterThan(0);
      expect(before.slice(0, after.length).map((entry) => ({ ...entry, leadSeconds: 0 }))).toEqual(after);
      expect(result.lostRows).toBe(1);
      return;
    }
    expect(first).toBeDefined();
    expect(rows[table as keyof Rows]).toEqual(rest);
    expect(result.lostRows).toBe(1);
  });

  it('restores a series from its copy', () => {
    const old = rowsOf(path);
    change('UPDATE series SET sum = sum + 1 WHERE id = (SELECT min(id) FROM series)');
    expect(carry(way, true).rows.series).toEqual(old.series);
  });

  it('drops a span without a readable directory and segments', () => {
    const [span] = rowsOf(path).segment_progress.map(([segment]) => Math.floor(Number(segment) / 2 ** 20));
    change(`DELETE FROM span WHERE id = ${span}; DELETE FROM segment WHERE id >> 20 = ${span}`);
    const { rows } = carry(way);
    expect(rows.segment_progress.some(([segment]) => Math.floor(Number(segment) / 2 ** 20) === span)).toBe(false);
    expect(rows.span_gone.some(([id]) => id === span)).toBe(false);
    expect(rows.span.some(([id]) => id === span)).toBe(false);
  });

  it('retains the names of set-aside files and continues their numbering', () => {
    const [[name, below] = []] = carry(way).rows.origin;
    rmSync(`${path}-wal`);
    copyFileSync(join(folder, `new-${made}.db`), path);
    expect(carry(way).rows.origin.map(([one, above]) => [one, above])).toEqual([
      [name, below],
      [`aside-${made}`, below],
    ]);
    change('UPDATE origin SET below = below + 7');
    const { rows, result } = carry(way);
    expect(rows.origin.map(([one]) => one)).toEqual([`aside-${made}`]);
    expect(result.lostRows).toBe(1);
  });
});
