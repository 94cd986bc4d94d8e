import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { codeOf, StoreError } from '../errors.ts';

/**
 * One instance owns a state folder. The lock is SQLite's own file lock on an empty database: the kernel lets go of it
 * whatever way the process ends, so there is no stale lock to remove by hand. Who holds it stands in a file beside it.
 */
export interface StateLock {
  release(): void;
}

/** Makes the folder (0700) and takes it. Throws `store.locked`, naming the process that has it. */
export function lockState(stateDir: string): StateLock {
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  const holderFile = join(stateDir, 'tagferry.pid');
  const lockFile = join(stateDir, 'tagferry.lock');
  const database = new Database(lockFile, { timeout: 0 });
  try {
    chmodSync(lockFile, 0o600);
    database.pragma('locking_mode = EXCLUSIVE');
    database.pragma('journal_mode = MEMORY');
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if (codeOf(error) !== 'SQLITE_BUSY') throw error;
    throw new StoreError(`${stateDir} is in use by process ${holder(holderFile)}`, {
      code: 'store.locked',
      hint: 'Stop that process first, or give this one a STATE_DIR of its own.',
    });
  }
  writeFileSync(holderFile, `${process.pid}\n`, { mode: 0o600 });
  return { release: () => database.close() };
}

function holder(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim() || 'unknown';
  } catch {
    return 'unknown';
  }
}
