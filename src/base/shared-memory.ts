import { closeSync, existsSync, openSync, readSync, writeSync } from 'node:fs';
import type { Database } from 'better-sqlite3';

/** The smallest block that file systems allocate. */
const BLOCK_BYTES = 1024;

/**
 * Allocates what SQLite maps as the index beside a WAL (`-shm`). SQLite writes one byte of each 4 KiB of it, so that touching the
 * mapping later needs no room; but where the file system has smaller blocks, as small ones have, the rest are holes, and touching
 * one on a full disk ends the process (SIGBUS). So what reads as zeros is written as zeros: a block that is in use never reads so.
 * For a database that this process has just opened and alone writes to. Throws what the disk says (`ENOSPC`).
 *
 * The file stays open until the database is closed: closing any descriptor of a file lets go of all locks that the process has on
 * it, and without SQLite's own the next process to open the database would cut the index off under this one.
 */
export function allocateSharedMemory(database: Database, path: string): void {
  const name = `${path}-shm`;
  if (!existsSync(name)) return;
  const file = openSync(name, 'r+');
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
