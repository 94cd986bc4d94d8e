import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeSync,
} from 'node:fs';
import { basename, dirname } from 'node:path';
import Database from 'better-sqlite3';
import { codeOf, StoreError } from './errors.ts';
import { demandNoLink } from './own-file.ts';

export type { Database, Statement } from 'better-sqlite3';

export interface OpenDatabaseOptions {
  readonly?: boolean;
  /** Page size. Like auto-vacuum, it must be set before the first table is created. */
  pageBytes?: number;
  /** Size of this connection's page cache, in bytes. */
  cacheBytes?: number;
  /** Number of WAL pages that triggers a checkpoint. */
  checkpointPages?: number;
}

/**
 * Opens an agent database with WAL, `synchronous=FULL`, incremental auto-vacuum and mode 0600.
 *
 * This driver build opens an existing WAL database with `synchronous=NORMAL`, which loses the latest commits on power
 * loss. FULL is therefore set and verified on every open, and a database that does not support it is rejected. Throws
 * `StoreError` (`store.pragma`), or a driver error if the file is unreadable or corrupt.
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
      // Set only if necessary, because setting it writes to the file, and a corrupt database must stay unchanged.
      if (database.pragma('auto_vacuum', { simple: true }) !== 2) database.pragma('auto_vacuum = INCREMENTAL');
      database.pragma('journal_mode = WAL');
      database.pragma('synchronous = FULL');
      database.pragma(`wal_autocheckpoint = ${options.checkpointPages ?? 1000}`);
      // At the next complete checkpoint, truncate a WAL that grew during a burst.
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
 * Returns the error `store.format` for a database with an unsupported format, which stays unchanged. Every format
 * change has a migration, so the cause is a downgrade or an unreleased version.
 */
export function otherFormat(database: Database.Database, found: number, known: number): StoreError {
  const newer = found > known;
  const name = basename(database.name);
  return new StoreError(
    `${name} was written by ${newer ? 'a newer' : 'another'} version of tagferry (format ${found}; this version reads ${known})`,
    {
      code: 'store.format',
      hint: newer
        ? 'Install the newer version again: no data was changed. An older version requires an empty state folder.'
        : `Run the version that wrote it until the buffer is empty, or move ${name} away.`,
    },
  );
}

/** Opens a possibly damaged database without changing it. Throws a driver error. */
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

/** Whether an error means that the database file is corrupt, as opposed to a disk failure. */
export function saysCorrupt(error: unknown): boolean {
  const code = codeOf(error) ?? '';
  return (
    code.startsWith('SQLITE_CORRUPT') ||
    code.startsWith('SQLITE_NOTADB') ||
    code === 'store.corrupt' ||
    code === 'inbox.corrupt'
  );
}

/** Whether an error comes from SQLite, as opposed to a bug in the agent. */
export function saysDriver(error: unknown): boolean {
  return (codeOf(error) ?? '').startsWith('SQLITE_');
}

/** Whether reading from the disk failed because of a bad sector or a missing disk. */
export function saysUnreadable(error: unknown): boolean {
  return /^(SQLITE_IOERR_(READ|SHORT_READ|CORRUPTFS)|inbox\.unreadable$)/.test(codeOf(error) ?? '');
}

/**
 * Closes a database without changing its files. By default, the last connection checkpoints the WAL unless the file has
 * moved, so the file is moved temporarily. If a crash occurs in between, the next open moves the file back.
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
/** Suffixes of the database, its WAL and its shared-memory file. */
export const DATABASE_FILES = ['', '-wal', '-shm'];

/** Deletes an incomplete database. */
export function removeDatabase(path: string): void {
  for (const end of DATABASE_FILES) rmSync(`${path}${end}`, { force: true });
}

/**
 * Copies a WAL with lost commits for later analysis, because SQLite uses the readable part and overwrites the rest.
 * Returns the path of the copy.
 */
export function setAsideWal(path: string, wallMs: number): string {
  const target = asidePath(path, wallMs);
  copyFileSync(`${path}-wal`, `${target}-wal`);
  return `${target}-wal`;
}

/**
 * Returns the path to which a corrupt database and its WAL are moved. Corrupt databases are never deleted, because an
 * expert may be able to recover data.
 */
export function asidePath(path: string, wallMs: number): string {
  const time = new Date(wallMs).toISOString().replaceAll(/[-:]/g, '').replace('.', '');
  let target = `${path}.corrupt-${time}`;
  for (let other = 2; existsSync(target) || existsSync(`${target}-wal`); other++) {
    target = `${path}.corrupt-${time}-${other}`;
  }
  return target;
}

/**
 * SQLite maps the WAL index (`-shm`) into memory and allocates it by writing one byte per 4 KiB. On file systems with
 * smaller blocks, the rest of each 4 KiB is a hole, and accessing a hole on a full disk kills the process with
 * SIGBUS. A database is therefore opened only if there is space for the index, and all blocks of the index are then
 * written.
 */

/** Smallest file system block size. */
const BLOCK_BYTES = 1024;
/** Size of one part of the index and the number of WAL pages that it covers. */
const PART_BYTES = 32_768;
const PART_PAGES = 4_062;
/** File system overhead for new files. */
const METADATA_BYTES = 4_096;

/** Throws `ENOSPC` if there is no space for the index of the database at `path`. */
function demandRoomForSharedMemory(path: string, pageBytes: number): void {
  const walBytes = statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
  const parts = 1 + Math.floor(walBytes / (pageBytes + 24) / PART_PAGES);
  const allocated = (statSync(`${path}-shm`, { throwIfNoEntry: false })?.blocks ?? 0) * 512;
  const missing = parts * PART_BYTES - allocated;
  if (missing <= 0) return;
  const { bavail, bsize } = statfsSync(dirname(path));
  if (bavail * bsize >= missing + METADATA_BYTES) return;
  const error = new Error(`ENOSPC: no space left on device, open '${path}-shm'`);
  throw Object.assign(error, { code: 'ENOSPC', syscall: 'open', path: `${path}-shm` });
}

/**
 * Writes all blocks of the index that contain only zeros and are therefore not in use. The database must have just been
 * opened, and only by this process. Throws the file system error (`ENOSPC`).
 *
 * The file stays open until the database is closed. Closing any descriptor of a file releases all locks that the
 * process holds on it. Without the locks, the next process to open the database would truncate the index.
 */
function allocateSharedMemory(database: Database.Database, path: string): void {
  // A new database has no index until the first read.
  database.pragma('schema_version');
  const file = openSync(`${path}-shm`, 'r+');
  const close = database.close.bind(database);
  database.close = () => {
    const wasOpen = database.open;
    close();
    if (wasOpen) closeSync(file);
    return database;
  };
  const block = Buffer.alloc(BLOCK_BYTES);
  const zeros = Buffer.alloc(BLOCK_BYTES);
  for (let at = 0; readSync(file, block, 0, BLOCK_BYTES, at) === BLOCK_BYTES; at += BLOCK_BYTES) {
    if (block.equals(zeros)) writeSync(file, zeros, 0, BLOCK_BYTES, at);
  }
}
