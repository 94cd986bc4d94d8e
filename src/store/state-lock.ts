import { accessSync, chmodSync, constants, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import Database from 'better-sqlite3';
import { saysCorrupt } from '../base/database.ts';
import { codeOf, StoreError } from '../base/errors.ts';
import { writeOwnFile } from '../base/own-file.ts';
import { guardStateFolder } from './state-folder.ts';

/**
 * Only one agent at a time can own a state folder. The lock is SQLite's file lock on an empty database: the kernel
 * releases it when the process exits, so there are no stale locks. A file next to it contains the process ID of the
 * owner.
 *
 * An agent first locks a second file that only agents lock. If the folder is in use, an agent can therefore determine
 * whether another agent (startup fails) or a command (startup waits) has locked it.
 */
export interface StateLock {
  /** Previous mode of the folder if other users could write to it. */
  narrowedFrom: string | undefined;
  release(): void;
}

/** Owner of a state folder lock: the agent, or a command that uses the folder of a stopped agent. */
export type Holder = 'daemon' | 'verb';

const HOLDER_FILE = 'tagferry.pid';
const FOLDER_LOCK = 'tagferry.lock';
const DAEMON_LOCK = 'tagferry.daemon.lock';

/**
 * Creates the folder (0700) and locks it. Throws `store.locked` if an agent (or, for a command, any process) has locked
 * it, `store.held` if an agent can wait for a command, `store.unwritable` if the folder cannot be written, and
 * `store.lock_garbled` if the lock file is invalid.
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
    // The disk is full. The file is optional, because it only informs operators.
  }
  return { narrowedFrom, release };
}

function fail(error: StoreError): never {
  throw error;
}

function inUse(stateDir: string): StoreError {
  return new StoreError(`${stateDir} is in use by process ${holder(stateDir)}`, {
    code: 'store.locked',
    hint: 'Stop that process first, or use another STATE_DIR.',
  });
}

function held(stateDir: string): StoreError {
  return new StoreError(`${stateDir} is in use by process ${holder(stateDir)}, a tagferry command`, {
    code: 'store.held',
    retryable: true,
    hint: 'Startup continues when the command finishes.',
  });
}

/** Returns `undefined` if another process holds the lock. */
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
  const what = isFile ? 'is not a tagferry lock file: its contents are corrupt' : 'is not a file';
  return new StoreError(`${lockFile} ${what}`, {
    code: 'store.lock_garbled',
    hint: `It contains no data. Make sure that no tagferry process is using this folder, then run \`mv ${lockFile} ${lockFile}.old\`.`,
    cause,
  });
}

const WHY: Readonly<Record<string, { words: string; hint: string }>> = {
  EROFS: {
    words: 'its file system is read-only',
    hint: 'Find the cause with `dmesg` and remount the file system read-write.',
  },
  EACCES: { words: 'permission denied', hint: 'Use sudo, or make the service user the owner of the folder.' },
  EPERM: { words: 'permission denied', hint: 'Use sudo, or make the service user the owner of the folder.' },
  ENOTDIR: { words: 'it is not a folder', hint: 'Set STATE_DIR to a folder.' },
  EEXIST: { words: 'it is not a folder', hint: 'Set STATE_DIR to a folder.' },
};

/** Not a configuration error, because the lock may be released later and the service manager retries. */
function unwritable(stateDir: string, cause: unknown): StoreError | undefined {
  const said = codeOf(cause) ?? '';
  // On a read-only file system, Node reports ENOENT for a new folder and SQLite a failed open.
  const code = said.startsWith('SQLITE_') || said === 'ENOENT' ? writeError(stateDir) : said;
  if (code === undefined) return undefined;
  const why = WHY[code];
  if (!why) return undefined;
  return new StoreError(`cannot write to the state folder ${stateDir}: ${why.words}`, {
    code: 'store.unwritable',
    retryable: true,
    hint: why.hint,
    cause,
  });
}

/** Returns the error code of a write to the path, determined at the nearest existing folder. */
export function writeError(folder: string): string | undefined {
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
    return undefined;
  } catch (error) {
    const above = dirname(folder);
    return codeOf(error) === 'ENOENT' && above !== folder ? writeError(above) : codeOf(error);
  }
}

function holder(stateDir: string): string {
  try {
    return readFileSync(join(stateDir, HOLDER_FILE), 'utf8').trim() || 'unknown';
  } catch {
    return 'unknown';
  }
}
