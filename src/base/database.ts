import { chmodSync, copyFileSync, existsSync, renameSync, rmSync } from 'node:fs';
import { basename } from 'node:path';
import Database from 'better-sqlite3';
import { codeOf, StoreError } from './errors.ts';
import { demandNoLink } from './own-file.ts';
import { allocateSharedMemory, demandRoomForSharedMemory } from './shared-memory.ts';

export type { Database, Statement } from 'better-sqlite3';

export interface OpenDatabaseOptions {
  readonly?: boolean;
  /** Set before the first table exists; SQLite takes neither this nor auto-vacuum later. */
  pageBytes?: number;
  /** Page cache of this connection. */
  cacheBytes?: number;
  /** Pages in the WAL at which SQLite moves them into the database. */
  checkpointPages?: number;
}

/**
 * Opens a database of ours: WAL, `synchronous=FULL`, incremental auto-vacuum, 0600.
 *
 * This build of the driver opens an existing WAL database with `synchronous=NORMAL`, which loses the last commits in a
 * power cut. So FULL is set at every open and read back; a database that does not take it is not used.
 * Throws `StoreError` (`store.pragma`), or the driver's own error where the file is unreadable or corrupt.
 */
export function openDatabase(path: string, options: OpenDatabaseOptions = {}): Database.Database {
  if (!existsSync(path) && existsSync(`${path}${HELD_END}`)) renameSync(`${path}${HELD_END}`, path);
  for (const end of DATABASE_FILES) demandNoLink(`${path}${end}`);
  const pageBytes = options.pageBytes ?? 1024;
  demandRoomForSharedMemory(path, pageBytes);
  const database = new Database(path, { readonly: options.readonly ?? false, timeout: 5_000 });
  try {
    if (!options.readonly) {
      chmodSync(path, 0o600);
      database.pragma(`page_size = ${pageBytes}`);
      // Only where it is not so yet: setting it writes, and a store that turns out to be corrupt is to stay as it was.
      if (database.pragma('auto_vacuum', { simple: true }) !== 2) database.pragma('auto_vacuum = INCREMENTAL');
      database.pragma('journal_mode = WAL');
      database.pragma('synchronous = FULL');
      database.pragma(`wal_autocheckpoint = ${options.checkpointPages ?? 1000}`);
      // A WAL that grew in a burst is cut back at the next checkpoint that empties it.
      database.pragma('journal_size_limit = 2097152');
      demand(database, path, 'synchronous', 2);
      demand(database, path, 'journal_mode', 'wal');
      demand(database, path, 'auto_vacuum', 2);
    }
    database.pragma(`cache_size = -${Math.round((options.cacheBytes ?? 2_000_000) / 1024)}`);
    if (!options.readonly) allocateSharedMemory(database, path);
    return database;
  } catch (error) {
    if (saysCorrupt(error)) closeUntouched(database, path);
    else database.close();
    throw error;
  }
}

/**
 * `store.format`: a database of another format than this version reads, of which nothing is touched. No change of format is without a way
 * from the one before, so what is found here is a version that was put back, or one that was never released.
 */
export function otherFormat(database: Database.Database, found: number, known: number): StoreError {
  const newer = found > known;
  const name = basename(database.name);
  return new StoreError(
    `${name} was written by ${newer ? 'a newer' : 'another'} version of tagferry (format ${found}; this version reads ${known})`,
    {
      code: 'store.format',
      hint: newer
        ? 'Install the newer version again: nothing was changed, and it goes on where it ended. An older one needs an empty state folder.'
        : `Run the version that wrote it until the buffer is empty, or move ${name} away.`,
    },
  );
}

/** To look into one that may be damaged: nothing of it is changed. Throws the driver's error. */
export function openForReading(path: string): Database.Database {
  return new Database(path, { readonly: true, fileMustExist: true });
}

function demand(database: Database.Database, path: string, pragma: string, wanted: string | number): void {
  const found = database.pragma(pragma, { simple: true });
  if (found === wanted) return;
  throw new StoreError(`${path}: PRAGMA ${pragma} is ${String(found)}, not ${wanted}`, {
    code: 'store.pragma',
    hint: 'Put STATE_DIR on a local file system that supports shared memory and locks (not NFS).',
  });
}

/** Whether an error says that the file itself is no sound database, as opposed to a disk that refuses. */
export function saysCorrupt(error: unknown): boolean {
  const code = codeOf(error) ?? '';
  return (
    code.startsWith('SQLITE_CORRUPT') ||
    code.startsWith('SQLITE_NOTADB') ||
    code === 'store.corrupt' ||
    code === 'inbox.corrupt'
  );
}

/** Whether an error is one of SQLite's, and not a mistake in our own code. */
export function saysDriver(error: unknown): boolean {
  return (codeOf(error) ?? '').startsWith('SQLITE_');
}

/** Whether a read failed at the disk: of a bad sector, or of a disk that is not there now. */
export function saysUnreadable(error: unknown): boolean {
  return /^(SQLITE_IOERR_(READ|SHORT_READ|CORRUPTFS)|inbox\.unreadable$)/.test(codeOf(error) ?? '');
}

/**
 * Closes a database and leaves its files as they are: the last connection to close moves the WAL into the file, unless
 * the file is no longer where it was opened. A crash in between is mended by the next open.
 */
export function closeUntouched(database: Database.Database, path: string): void {
  renameSync(path, `${path}${HELD_END}`);
  try {
    database.close();
  } finally {
    renameSync(`${path}${HELD_END}`, path);
  }
}

const HELD_END = '.held';
/** A database, its WAL and what its connections share. */
export const DATABASE_FILES = ['', '-wal', '-shm'];

/** Takes away a database that was begun and is not whole. */
export function removeDatabase(path: string): void {
  for (const end of DATABASE_FILES) rmSync(`${path}${end}`, { force: true });
}

/** A copy of a WAL that has lost commits, for experts: SQLite goes on with what reads, and overwrites the rest. Gives its path. */
export function setAsideWal(path: string, wallMs: number): string {
  const target = asidePath(path, wallMs);
  copyFileSync(`${path}-wal`, `${target}-wal`);
  return `${target}-wal`;
}

/**
 * Where a corrupt database is put, with its WAL beside it. It is never deleted: what an expert can still read of it is worth
 * more than the space.
 */
export function asidePath(path: string, wallMs: number): string {
  const time = new Date(wallMs).toISOString().replaceAll(/[-:]/g, '').replace('.', '');
  let target = `${path}.corrupt-${time}`;
  for (let other = 2; existsSync(target) || existsSync(`${target}-wal`); other++) {
    target = `${path}.corrupt-${time}-${other}`;
  }
  return target;
}
