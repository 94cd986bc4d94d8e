import type Database from 'better-sqlite3';
import { openForReading } from '../base/database.ts';
import { codeOf } from '../base/errors.ts';

/**
 * Copies the readable rows of a damaged database to a new database that contains the same tables without rows. Copies
 * the rows before the first and after the last damaged page; in tables with an integer key, also the rows in between.
 * Does not change the damaged file. Returns the number of copied rows. Throws only if the new database cannot be
 * written.
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
/** Maximum number of damaged sections per table, because each section may take several seconds. */
const MAX_GAPS = 200;

class TableCopy {
  readonly #old: Database.Database;
  readonly #add: Database.Statement<unknown[]>;
  readonly #names: string;
  readonly #key: string[];
  /** Name of the integer primary key, if the table has one. */
  readonly #number: string | undefined;
  /** Source table. It is read without indexes, because they may be damaged. */
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

  /** Returns the number of copied rows. */
  copy(): number {
    if (this.#number === undefined) {
      if (!this.#readAll('ASC')) this.#readAll('DESC');
      return this.#rows;
    }
    let range = ALL;
    for (let gaps = 0; gaps < MAX_GAPS; gaps++) {
      const last = this.#readRange('ASC', range);
      if (last === 'end') break;
      const next = this.#nextReadable(last);
      // Read backwards up to the damaged section.
      this.#readRange('DESC', { above: last, below: next ?? range.below });
      if (next === undefined) break;
      range = { above: next - 1, below: range.below };
    }
    return this.#rows;
  }

  /** Returns the key of the first readable row after a damaged section, which is searched in increasing steps. */
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

  /** Copies a range of rows. Returns the key of the last readable row, or `end` if all rows were readable. */
  #readRange(direction: 'ASC' | 'DESC', { above, below }: Range): number | 'end' {
    let last = above;
    const sql = `SELECT ${this.#names}, ${this.#number} FROM ${this.#from}
      WHERE ${this.#number} > ? AND ${this.#number} < ? ORDER BY ${this.#number} ${direction}`;
    const isWhole = this.#read(sql, [above, below], (number) => {
      last = number;
    });
    return isWhole ? 'end' : last;
  }

  /** Copies the rows that a query returns. Returns whether all rows were readable. */
  #read(sql: string, range: number[], onRow: (number: number) => void): boolean {
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
        onRow(Number(next.value[columns]));
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

/** Writes a row. Skips a row that violates a constraint. */
function attemptRow(write: () => number): number {
  try {
    return write();
  } catch (error) {
    const code = String(codeOf(error));
    if (code.startsWith('SQLITE_CONSTRAINT') || code === 'SQLITE_MISMATCH') return 0;
    throw error;
  }
}
