/**
 * Replaces an unreadable database.
 *
 *     build new file next to it ──► sync ──► move the old file aside ──► rename the new file
 *
 * If the old file is still in place after a crash, `finishReplacing` deletes the partial new file. If the old file was
 * moved, `finishReplacing` renames the complete new file. The path never refers to an incomplete database.
 */
import { closeSync, existsSync, fsyncSync, openSync, readdirSync, renameSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { asidePath, DATABASE_FILES, type Database, openDatabase, removeDatabase } from './database.ts';

const NEW_END = '.new';

/**
 * The database at `path` must be closed. `build` fills the new database; `aside` is the new path of the unchanged old
 * one. If it throws, the old database stays in place.
 */
export function replaceDatabase<Result>(
  path: string,
  wallMs: number,
  build: (database: Database, aside: string) => Result,
): { file: string; result: Result } {
  const fresh = `${path}${NEW_END}`;
  const file = asidePath(path, wallMs);
  removeDatabase(fresh);
  let result: Result;
  try {
    const database = openDatabase(fresh);
    try {
      result = build(database, file);
      // A WAL would keep the temporary name.
      database.pragma('wal_checkpoint(TRUNCATE)');
    } finally {
      database.close();
    }
    syncFolder(path);
  } catch (error) {
    removeDatabase(fresh);
    throw error;
  }
  setAside(path, file);
  finishReplacing(path);
  return { file, result };
}

/** Completes a replacement interrupted by a crash. The caller must hold the folder lock. */
export function finishReplacing(path: string): void {
  const fresh = `${path}${NEW_END}`;
  if (!existsSync(fresh)) return;
  if (existsSync(path)) {
    removeDatabase(fresh);
    return;
  }
  // A remaining WAL belongs to the database that was moved aside and must not be applied to the new one.
  const [aside] = namesAside(path);
  if (aside !== undefined) setAside(path, `${dirname(path)}/${aside}`);
  renameSync(fresh, path);
  syncFolder(path);
}

/** Returns the names of the databases that were moved aside, newest first. */
function namesAside(path: string): string[] {
  const beginning = `${basename(path)}.corrupt-`;
  const isOne = (name: string) => name.startsWith(beginning) && !/-(wal|shm)$/.test(name);
  return readdirSync(dirname(path)).filter(isOne).sort().reverse();
}

/** Moves the database file first, because its absence marks a replacement in progress. Never deletes the file. */
function setAside(path: string, file: string): void {
  for (const end of DATABASE_FILES) {
    if (existsSync(`${path}${end}`)) renameSync(`${path}${end}`, `${file}${end}`);
  }
}

function syncFolder(path: string): void {
  const folder = openSync(dirname(path), 'r');
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
