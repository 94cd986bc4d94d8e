import type Database from 'better-sqlite3';
import { openForReading } from '../base/database.ts';
import { codeOf } from '../base/errors.ts';

/**
 * Carries the rows of a damaged database that SQLite still reads into a new one that has the same tables, empty. Of a table
 * with a broken page the rows before it come, and by the other end those behind it; where rows have numbers so do those between
 * two broken pages. The old files stay as they are.
 * Never throws for what it reads; throws the driver's error where the new one cannot be written. Gives how many rows came.
 */
export function copyReadableRows(from: string, into: Database.Database): number {
  let old: Database.Database;
  try {
    old = openForReading(from);
  } catch {
    return 0;
  }
  let rows = 0;
  try {
    const tables = into
      .prepare<[], string>("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
      .pluck()
      .all();
    for (const table of tables) rows += into.transaction(() => new TableCopy(old, into, table).copy())();
  } finally {
    old.close();
  }
  return rows;
}

interface Range {
  above: number;
  below: number;
}

const ALL: Range = { above: Number.MIN_SAFE_INTEGER, below: Number.MAX_SAFE_INTEGER };
/** Broken places of a table that are passed by: each may cost a disk seconds. */
const MAX_GAPS = 200;

class TableCopy {
  readonly #old: Database.Database;
  readonly #add: Database.Statement<unknown[]>;
  readonly #names: string;
  readonly #key: string[];
  /** The table's only key, a whole number. */
  readonly #number: string | undefined;
  /** By the table alone: an index may be what is broken. */
  readonly #from: string;
  #rows = 0;

  constructor(old: Database.Database, into: Database.Database, table: string) {
    const columns = into
      .prepare<[string], { name: string; pk: number; type: string }>('SELECT name, pk, type FROM pragma_table_info(?)')
      .all(table);
    const key = columns.filter(({ pk }) => pk > 0).sort((a, b) => a.pk - b.pk);
    this.#old = old;
    this.#names = columns.map(({ name }) => name).join();
    this.#key = key.map(({ name }) => name);
    this.#number = key.length === 1 && key[0]!.type === 'INTEGER' ? key[0]!.name : undefined;
    this.#from = `${table} NOT INDEXED`;
    const values = columns.map(() => '?').join();
    this.#add = into.prepare(`INSERT OR IGNORE INTO ${table} (${this.#names}) VALUES (${values})`);
  }

  /** Gives the rows that came. */
  copy(): number {
    if (this.#number === undefined) {
      // Read to its end: the other way brings nothing more.
      if (!this.#readAll('ASC')) this.#readAll('DESC');
      return this.#rows;
    }
    let range = ALL;
    for (let gaps = 0; gaps < MAX_GAPS; gaps++) {
      const last = this.#readRange('ASC', range);
      if (last === 'end') break;
      const next = this.#nextReadable(last);
      // Up to what reads again behind the gap, from behind.
      this.#readRange('DESC', { above: last, below: next ?? range.below });
      if (next === undefined) break;
      range = { above: next - 1, below: range.below };
    }
    return this.#rows;
  }

  /** The number of the first row behind a broken place, as far as steps that grow find one. */
  #nextReadable(last: number): number | undefined {
    const find = attempt(() =>
      this.#old
        .prepare<[number], number>(
          `SELECT ${this.#number} FROM ${this.#from} WHERE ${this.#number} > ? ORDER BY ${this.#number} LIMIT 1`,
        )
        .pluck(),
    );
    for (let step = 1; find && step < 2 ** 40; step *= 2) {
      const found = attempt(() => find.get(last + step) ?? 'none');
      if (typeof found === 'number') return found;
      if (found === 'none') return undefined;
    }
    return undefined;
  }

  #readAll(direction: 'ASC' | 'DESC'): boolean {
    const order = this.#key.map((name) => `${name} ${direction}`).join();
    const sql = `SELECT ${this.#names} FROM ${this.#from} ORDER BY ${order}`;
    return this.#read(sql, [], () => {});
  }

  /** Gives the number after which it broke off. */
  #readRange(direction: 'ASC' | 'DESC', { above, below }: Range): number | 'end' {
    let last = above;
    const sql = `SELECT ${this.#names}, ${this.#number} FROM ${this.#from}
      WHERE ${this.#number} > ? AND ${this.#number} < ? ORDER BY ${this.#number} ${direction}`;
    const isWhole = this.#read(sql, [above, below], (number) => {
      last = number;
    });
    return isWhole ? 'end' : last;
  }

  /** Whether all of it read. */
  #read(sql: string, range: number[], tell: (number: number) => void): boolean {
    const all = attempt(() =>
      this.#old
        .prepare<unknown[], unknown[]>(sql)
        .raw()
        .iterate(...range),
    );
    if (!all) return false;
    const columns = this.#names.split(',').length;
    try {
      for (;;) {
        const next = attempt(() => all.next());
        if (!next) return false;
        if (next.done) return true;
        this.#rows += attemptRow(() => this.#add.run(...next.value.slice(0, columns)).changes);
        tell(Number(next.value[columns]));
      }
    } finally {
      attempt(() => all.return?.());
    }
  }
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
