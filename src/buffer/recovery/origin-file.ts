/**
 * A file that was set aside, as a source of segments that stand nowhere else yet. Asked for one segment it is read by SQLite,
 * as far as the pages on the way to it read; page by page it gives whatever stands on pages that read.
 */
import { statSync } from 'node:fs';
import { type Database, openForReading, saysDriver } from '../../base/database.ts';
import { codeOf } from '../../base/errors.ts';
import { PAGE_BYTES } from './salvage.ts';
import { isPartlyReadable, type RawRow, SqlitePages } from './sqlite-pages.ts';

export class OriginFile {
  readonly #path: string;
  #open: { database: Database; get(id: number): Buffer | undefined } | undefined;
  #isRefused = false;
  #pages: SqlitePages | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** `undefined` where it is not there, or does not read this way. */
  get(id: number): Buffer | undefined {
    return this.#attempt(() => this.#opened()?.get(id));
  }

  /** The segments with numbers in a range, as far as SQLite reads them. */
  *between(first: number, last: number): Generator<{ id: number; packed: Buffer }> {
    const ask = () =>
      this.#opened()?.database.prepare<[number, number], { id: number; packed: Buffer }>(
        'SELECT id, packed FROM segment WHERE id BETWEEN ? AND ? ORDER BY id',
      );
    const rows = this.#attempt(ask)?.iterate(first, last);
    for (;;) {
      const next = this.#attempt(() => rows?.next());
      if (!next || next.done) return;
      yield next.value;
    }
  }

  #attempt<Result>(read: () => Result): Result | undefined {
    try {
      return read();
    } catch (error) {
      if (!saysDriver(error)) throw error;
      return undefined;
    }
  }

  #opened() {
    if (this.#open || this.#isRefused) return this.#open;
    // What cannot be opened once is not tried for every segment.
    this.#isRefused = true;
    const database = openForReading(this.#path);
    try {
      const get = database.prepare<[number], Buffer>('SELECT packed FROM segment WHERE id = ?').pluck();
      this.#open = { database, get: (id) => get.get(id) };
    } catch (error) {
      database.close();
      throw error;
    }
    return this.#open;
  }

  /**
   * The rows of all its pages, those of one page after those of another; none where the file is not there. Opened anew each time:
   * what did not read may read now, of a disk that came back.
   */
  *pages(): Generator<RawRow[]> {
    this.#pages?.close();
    this.#pages = undefined;
    try {
      this.#pages = new SqlitePages(this.#path, PAGE_BYTES);
    } catch {
      return;
    }
    yield* this.#pages.pages();
  }

  /** It is there and nothing of it reads: the disk may come back. A file that somebody took away does not. */
  get mayComeBack(): boolean {
    try {
      if (statSync(this.#path).size === 0) return false;
    } catch (error) {
      return codeOf(error) !== 'ENOENT';
    }
    return !isPartlyReadable(this.#path);
  }

  close(): void {
    this.#open?.database.close();
    this.#pages?.close();
    this.#open = undefined;
    this.#pages = undefined;
    this.#isRefused = false;
  }
}
