import Database from 'better-sqlite3';
import { codeOf } from '../base/errors.ts';

/**
 * Carries the rows of a damaged database that SQLite still reads into a new one that has the same tables, empty. Of a table
 * with a broken page the rows before it come, and by the other end those behind it. The old files stay as they are.
 * Never throws for what it reads; throws the driver's error where the new one cannot be written. Gives how many rows came.
 */
export function copyReadableRows(from: string, into: Database.Database): number {
  let old: Database.Database;
  try {
    old = new Database(from, { readonly: true, fileMustExist: true });
  } catch {
    return 0;
  }
  let rows = 0;
  try {
    const tables = into
      .prepare<[], string>("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
      .pluck()
      .all();
    for (const table of tables) rows += into.transaction(() => copyTable(old, into, table))();
  } finally {
    old.close();
  }
  return rows;
}

function copyTable(old: Database.Database, into: Database.Database, table: string): number {
  const columns = into
    .prepare<[string], { name: string; pk: number }>('SELECT name, pk FROM pragma_table_info(?)')
    .all(table);
  const names = columns.map(({ name }) => name);
  const key = columns.filter(({ pk }) => pk > 0).sort((a, b) => a.pk - b.pk);
  const add = into.prepare(`INSERT OR IGNORE INTO ${table} (${names.join()}) VALUES (${names.map(() => '?').join()})`);
  let rows = 0;
  for (const direction of ['ASC', 'DESC']) {
    const order = key.map(({ name }) => `${name} ${direction}`).join();
    // By the table alone: an index may be what is broken.
    const from = `${table} NOT INDEXED`;
    const all = attempt(() =>
      old.prepare<[], unknown[]>(`SELECT ${names.join()} FROM ${from} ORDER BY ${order}`).raw().iterate(),
    );
    let next: IteratorResult<unknown[]> | undefined;
    while (all) {
      next = attempt(() => all.next());
      if (!next || next.done) break;
      const values = next.value;
      rows += attemptRow(() => add.run(...values).changes);
    }
    attempt(() => all?.return?.());
    // Read to its end: the other way brings nothing more.
    if (next?.done) break;
  }
  return rows;
}

function attempt<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch (error) {
    if (!String(codeOf(error)).startsWith('SQLITE_')) throw error;
    return undefined;
  }
}

/** A garbled row may not fit the table: it is left out. */
function attemptRow(write: () => number): number {
  try {
    return write();
  } catch (error) {
    const code = String(codeOf(error));
    if (code.startsWith('SQLITE_CONSTRAINT') || code === 'SQLITE_MISMATCH') return 0;
    throw error;
  }
}
