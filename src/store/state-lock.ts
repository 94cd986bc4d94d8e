import { accessSync, chmodSync, constants, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import Database from 'better-sqlite3';
import { saysCorrupt } from '../base/database.ts';
import { codeOf, StoreError } from '../base/errors.ts';
import { writeOwnFile } from '../base/own-file.ts';
import { guardStateFolder } from './state-folder.ts';

/**
 * One instance owns a state folder. The lock is SQLite's own file lock on an empty database: the kernel lets go of it
 * whatever way the process ends, so there is no stale lock to remove by hand. Who holds it stands in a file beside it.
 *
 * A daemon takes a lock of daemons before: so one that finds the folder in use knows by what. Another daemon stays, and this one
 * must not run; a verb ends, and is waited for.
 */
export interface StateLock {
  /** The mode that the folder had, where others could write in it: it is now its owner's alone. */
  narrowedFrom: string | undefined;
  release(): void;
}

/** Who takes a state folder: the daemon, or a verb that works on a stopped one's. */
export type Holder = 'daemon' | 'verb';

const HOLDER_FILE = 'tagferry.pid';
const FOLDER_LOCK = 'tagferry.lock';
const DAEMON_LOCK = 'tagferry.daemon.lock';

/**
 * Makes the folder (0700) and takes it. Throws `store.locked` where a daemon (or, for a verb, anybody) has it, `store.held` where
 * it is a verb that a daemon may wait for, both naming the process; `store.unwritable` where the folder cannot be written,
 * `store.lock_garbled` where something else stands in the lock's place.
 */
export function lockState(stateDir: string, who: Holder): StateLock {
  let narrowedFrom: string | undefined;
  try {
    narrowedFrom = guardStateFolder(stateDir);
  } catch (error) {
    throw unwritable(stateDir, error) ?? error;
  }
  const locks: Database.Database[] = [];
  const release = () => {
    for (const lock of locks.splice(0).reverse()) lock.close();
  };
  try {
    if (who === 'daemon') locks.push(takeLock(stateDir, DAEMON_LOCK) ?? fail(inUse(stateDir)));
    locks.push(takeLock(stateDir, FOLDER_LOCK) ?? fail(who === 'daemon' ? held(stateDir) : inUse(stateDir)));
  } catch (error) {
    release();
    throw error;
  }
  try {
    writeOwnFile(join(stateDir, HOLDER_FILE), `${process.pid}\n`);
  } catch {
    // On a full disk: it only tells others whom to ask.
  }
  return { narrowedFrom, release };
}

function fail(error: StoreError): never {
  throw error;
}

function inUse(stateDir: string): StoreError {
  return new StoreError(`${stateDir} is in use by process ${holder(stateDir)}`, {
    code: 'store.locked',
    hint: 'Stop that process first, or give this one a STATE_DIR of its own.',
  });
}

function held(stateDir: string): StoreError {
  return new StoreError(`${stateDir} is held by process ${holder(stateDir)}, a verb of tagferry that works on it`, {
    code: 'store.held',
    retryable: true,
    hint: 'The start goes on when the verb ends.',
  });
}

/** `undefined` where somebody has it. */
function takeLock(stateDir: string, name: string): Database.Database | undefined {
  const lockFile = join(stateDir, name);
  let database: Database.Database | undefined;
  try {
    database = new Database(lockFile, { timeout: 0 });
    chmodSync(lockFile, 0o600);
    database.pragma('locking_mode = EXCLUSIVE');
    database.pragma('journal_mode = MEMORY');
    database.exec('BEGIN EXCLUSIVE');
    return database;
  } catch (error) {
    database?.close();
    if (codeOf(error) === 'SQLITE_BUSY') return undefined;
    throw unwritable(stateDir, error) ?? garbled(lockFile, error) ?? error;
  }
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

function holder(stateDir: string): string {
  try {
    return readFileSync(join(stateDir, HOLDER_FILE), 'utf8').trim() || 'unknown';
  } catch {
    return 'unknown';
  }
}
