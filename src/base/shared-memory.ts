import { closeSync, openSync, readSync, statfsSync, statSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Database } from 'better-sqlite3';

/**
 * SQLite maps the index of a WAL (`-shm`) into memory. It writes one byte of each 4 KiB of the file, so that later accesses need no
 * room on disk. On file systems with smaller blocks the rest of each 4 KiB are holes, and an access to a hole on a full disk ends the
 * process (SIGBUS). So a database is opened only where there is room for the index, and then every block of it is written.
 */

/** The smallest block that file systems allocate. */
const BLOCK_BYTES = 1024;
/** A part of the index, and how many pages of the WAL it covers. */
const PART_BYTES = 32_768;
const PART_PAGES = 4_062;
/** What the file system itself needs for new files. */
const METADATA_BYTES = 4_096;

/** Throws `ENOSPC` where the index of the database at `path` would not fit. */
export function demandRoomForSharedMemory(path: string, pageBytes: number): void {
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
 * Writes every block of the index that reads as zeros: a block in use never reads so. For a database that this process has just
 * opened and alone writes to. Throws the file system's error (`ENOSPC`).
 *
 * The file stays open until the database is closed: closing any descriptor of a file releases all locks of the process on
 * it, and without SQLite's locks the next process to open the database would truncate the index.
 */
export function allocateSharedMemory(database: Database, path: string): void {
  // A new database has no index before its first read.
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
