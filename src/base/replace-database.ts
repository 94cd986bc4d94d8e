/**
 * Puts a new database in the place of one that does not read.
 *
 *   built beside the old one ──► whole, and on disk ──► the old one is set aside ──► the new one has its name
 *
 * A crash leaves the old one where it was, with a part of another beside it, which `finishReplacing` takes away; or, once the old
 * one has gone aside, a whole new one, which it gives the name. So nothing stands under the name but what is whole.
 */
import { closeSync, existsSync, fsyncSync, openSync, readdirSync, renameSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { asidePath, DATABASE_FILES, type Database, openDatabase, removeDatabase } from './database.ts';

const NEW_END = '.new';

/**
 * `path` is closed. `build` fills the new database; `aside` is where the old one will stand, byte for byte. What throws leaves the
 * old one in its place.
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
      // What is left in a WAL would stay behind under the other name.
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

/** What a crash left of a replacement; nothing to do where there was none. Whoever calls has the folder's lock. */
export function finishReplacing(path: string): void {
  const fresh = `${path}${NEW_END}`;
  if (!existsSync(fresh)) return;
  if (existsSync(path)) {
    removeDatabase(fresh);
    return;
  }
  // A WAL that has stayed behind belongs to what was set aside last, and would be taken for that of the new one.
  const [aside] = namesAside(path);
  if (aside !== undefined) setAside(path, `${dirname(path)}/${aside}`);
  renameSync(fresh, path);
  syncFolder(path);
}

/** Names of the databases that were set aside, the last one first. */
function namesAside(path: string): string[] {
  const beginning = `${basename(path)}.corrupt-`;
  const isOne = (name: string) => name.startsWith(beginning) && !/-(wal|shm)$/.test(name);
  return readdirSync(dirname(path)).filter(isOne).sort().reverse();
}

/** The database itself first: whoever finds it gone knows that another is to take its place. It is never deleted. */
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
