/** Tables of the buffer: creation, migration, rows. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import type { Series } from '../../../src/buffer/series.ts';
import {
  FORMAT,
  needsOrigin,
  originSum,
  prepareStatements,
  prepareTables,
  readNotes,
  seriesFields,
  seriesOfFields,
  seriesReader,
  sumOf,
  writeNotes,
  writeSeries,
} from '../../../src/buffer/tables.ts';
import { newFolder } from '../../fresh-folder.ts';

let folder: string;
let database: Database;
beforeEach(() => {
  folder = newFolder('tagferry-tables-');
  database = openDatabase(join(folder, 'buffer.db'));
});
afterEach(() => {
  database.close();
  rmSync(folder, { recursive: true, force: true });
});

const format = () => database.pragma('user_version', { simple: true });
const schema = () =>
  database
    .prepare<[], [string, string]>("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%' ORDER BY name")
    .raw()
    .all();

describe('buffer tables', () => {
  it('are created in a new database, and left unchanged in an up-to-date database', () => {
    expect(format()).toBe(0);
    prepareTables(database);
    expect(format()).toBe(FORMAT);
    const made = schema();
    expect(made.map(([name]) => name)).toEqual([
      'log',
      'note',
      'origin',
      'quarantine',
      'run',
      'segment',
      'segment_progress',
      'series',
      'set_aside',
      'span',
      'span_gone',
    ]);
    database.exec("INSERT INTO log VALUES (1, x'00')");
    prepareTables(database);
    expect([schema(), database.prepare('SELECT count(*) FROM log').pluck().get()]).toEqual([made, 1]);
  });

  // Rows of runs had no checksum before format 4.
  const WITHOUT_SUMS = `DROP TABLE run;
    CREATE TABLE run (id INTEGER PRIMARY KEY, boot TEXT NOT NULL, wall_ms REAL NOT NULL, monotonic_ms REAL NOT NULL, last_ms REAL NOT NULL);
    INSERT INTO run VALUES (3, 'one', 1.5, 2, 9.25), (4, '', -7, 0, 0);`;
  const RUNS = [
    [3, 'one', 1.5, 2, 9.25],
    [4, '', -7, 0, 0],
  ].map((fields) => [...fields, sumOf(...fields)]);
  const runs = () => database.prepare('SELECT * FROM run').raw().all();

  it('are migrated from format 2 with their notes and runs', () => {
    prepareTables(database);
    const wanted = schema();
    database.exec(`${WITHOUT_SUMS} DROP TABLE note; DROP TABLE origin;
      CREATE TABLE note (name TEXT PRIMARY KEY, text TEXT NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
      INSERT INTO note VALUES ('one', 'text', 7), ('two', '', 8)`);
    database.pragma('user_version = 2');
    prepareTables(database);
    expect([format(), schema(), runs()]).toEqual([FORMAT, wanted, RUNS]);
    expect(database.prepare('SELECT name, text, sum FROM note ORDER BY id').raw().all()).toEqual([
      ['one', 'text', 7],
      ['two', '', 8],
    ]);
  });

  it.each([1, 3, 5])('with unknown format %i are rejected and left unchanged', (other) => {
    database.pragma(`user_version = ${other}`);
    expect(() => prepareTables(database)).toThrow(expect.objectContaining({ code: 'store.format' }));
    expect([format(), schema()]).toEqual([other, []]);
  });

  it('record the set-aside files', () => {
    prepareTables(database);
    const { addOrigin, dropOrigins } = prepareStatements(database);
    expect(needsOrigin(database)).toBe(false);
    addOrigin.run('old.db', 1, originSum('old.db', 1));
    expect(needsOrigin(database)).toBe(true);
    dropOrigins.run();
    expect(needsOrigin(database)).toBe(false);
  });
});

describe('series row', () => {
  const series = (more: Partial<Series> = {}): Series => {
    const plain = { group: undefined, unit: undefined, instrumentation: undefined, since: 4 };
    return { id: 3, asset: 12, key: 'flow', ...plain, ...more };
  };
  const CASES: [Series, unknown[]][] = [
    [series(), [3, 12, 'flow', null, null, null, null, 4]],
    [series({ group: 'process' }), [3, 12, 'flow', 'process', null, null, null, 4]],
    [series({ unit: { id: 0 } }), [3, 12, 'flow', null, 0, null, null, 4]],
    [series({ unit: { id: 7 } }), [3, 12, 'flow', null, 7, null, null, 4]],
    [series({ unit: { code: 'bar' } }), [3, 12, 'flow', null, null, 'bar', null, 4]],
    [series({ instrumentation: 9 }), [3, 12, 'flow', null, null, null, 9, 4]],
  ];

  it.each(CASES)('restores the series: %j', (one, fields) => {
    expect(seriesFields(one)).toEqual([...fields, sumOf(...(fields as (number | string | null)[]))]);
    expect(seriesOfFields(seriesFields(one))).toEqual(one);
    prepareTables(database);
    writeSeries(prepareStatements(database), one);
    expect(seriesReader(database)(3)).toEqual(one);
    expect(seriesReader(database)(4)).toBeUndefined();
  });

  it('is rejected if any field differs', () => {
    const fields = seriesFields(series({ group: 'g', unit: { id: 5 }, instrumentation: 6 }));
    for (const at of fields.keys()) {
      const garbled = fields.map((field, i) =>
        i === at ? (typeof field === 'number' ? field + 1 : `${field}x`) : field,
      );
      expect(seriesOfFields(garbled as never), `field ${at}`).toBeUndefined();
    }
    prepareTables(database);
    writeSeries(prepareStatements(database), series());
    database.exec('UPDATE series SET asset = 13');
    expect(seriesReader(database)(3)).toBe('damaged');
  });
});

describe('notes', () => {
  it('are written, replaced, deleted and found by prefix', () => {
    prepareTables(database);
    const statements = prepareStatements(database);
    const note = (name: string, text?: string) => ({ name, text });
    writeNotes(statements, [note('a.1', 'x'), note('a.2', ''), note('a.3', 'z'), note('b', 'y'), note('a', 'w')]);
    writeNotes(statements, [note('a.1', 'other'), note('a.3'), note('none')]);
    expect(readNotes(statements, 'a.')).toEqual([note('a.1', 'other'), note('a.2', '')]);
    expect(readNotes(statements, '').map(({ name }) => name)).toEqual(['a', 'a.1', 'a.2', 'b']);
    database.exec("UPDATE note SET text = 'garbled' WHERE name = 'a.1'");
    expect(readNotes(statements, 'a.')).toEqual([note('a.2', '')]);
  });
});
