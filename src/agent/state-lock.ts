import { accessSync, chmodSync, constants, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import Database from 'better-sqlite3';
import { saysCorrupt } from '../database.ts';
import { codeOf, StoreError } from '../errors.ts';

/**
 * One instance owns a state folder. The lock is SQLite's own file lock on an empty database: the kernel lets go of it
 * whatever way the process ends, so there is no stale lock to remove by hand. Who holds it stands in a file beside it.
 */
export interface StateLock {
  release(): void;
}

/**
 * Makes the folder (0700) and takes it. Throws `store.locked`, naming the process that has it, `store.unwritable` where the
 * folder cannot be written, `store.lock_garbled` where something else stands in the lock's place.
 */
export function lockState(stateDir: string): StateLock {
  const holderFile = join(stateDir, 'tagferry.pid');
  const lockFile = join(stateDir, 'tagferry.lock');
  let database: Database.Database | undefined;
  try {
    mkdirSync(stateDir, { recursive: true, mode: 0o700 });
    database = new Database(lockFile, { timeout: 0 });
    chmodSync(lockFile, 0o600);
    database.pragma('locking_mode = EXCLUSIVE');
    database.pragma('journal_mode = MEMORY');
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database?.close();
    if (codeOf(error) === 'SQLITE_BUSY') {
      throw new StoreError(`${stateDir} is in use by process ${holder(holderFile)}`, {
        code: 'store.locked',
        hint: 'Stop that process first, or give this one a STATE_DIR of its own.',
      });
    }
    throw unwritable(stateDir, error) ?? garbled(lockFile, error) ?? error;
  }
  try {
    writeFileSync(holderFile, `${process.pid}\n`, { mode: 0o600 });
  } catch {
    // On a full disk: it only tells others whom to ask.
  }
  return { release: () => database.close() };
}

function garbled(lockFile: string, cause: unknown): StoreError | undefined {
  const isFile = statSync(lockFile, { throwIfNoEntry: false })?.isFile() ?? true;
  if (isFile && !saysCorrupt(cause)) return undefined;
  const what = isFile ? 'is no lock of tagferry: its content is garbled' : 'is no file';
  return new StoreError(`${lockFile} ${what}`, {
    code: 'store.lock_garbled',
    hint: `Nothing of worth stands in it: see that no tagferry runs on this folder, then move it away: mv ${lockFile} ${lockFile}.old`,
    cause,
  });
}

const WHY: Readonly<Record<string, { words: string; hint: string }>> = {
  EROFS: { words: 'its file system is read-only', hint: 'Look with `dmesg` why it is, and mount it to be written.' },
  EACCES: { words: 'this user may not write there', hint: 'Use sudo, or give the folder to the user of the service.' },
  EPERM: { words: 'this user may not write there', hint: 'Use sudo, or give the folder to the user of the service.' },
  ENOTDIR: { words: 'it is no folder', hint: 'Name a folder in STATE_DIR.' },
  EEXIST: { words: 'it is no folder', hint: 'Name a folder in STATE_DIR.' },
};

/** What waiting can mend, so it is no mistake of the configuration: the service manager tries again. */
function unwritable(stateDir: string, cause: unknown): StoreError | undefined {
  const said = codeOf(cause) ?? '';
  // On a read-only file system Node says ENOENT of a folder that cannot be made, and SQLite that it cannot open.
  const code = said.startsWith('SQLITE_') || said === 'ENOENT' ? whyNot(stateDir) : said;
  if (code === undefined) return undefined;
  const why = WHY[code];
  if (!why) return undefined;
  return new StoreError(`the state folder ${stateDir} cannot be written: ${why.words}`, {
    code: 'store.unwritable',
    retryable: true,
    hint: why.hint,
    cause,
  });
}

/** The code that says why nothing can be written there, by the nearest folder that exists. */
export function whyNot(folder: string): string | undefined {
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
    return undefined;
  } catch (error) {
    const above = dirname(folder);
    return codeOf(error) === 'ENOENT' && above !== folder ? whyNot(above) : codeOf(error);
  }
}

function holder(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim() || 'unknown';
  } catch {
    return 'unknown';
  }
}
