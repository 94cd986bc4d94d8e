/**
 * The inbox and known objects of a daemon that does not run, for `tagferry events` and `assets`. Looking opens the file read-only and
 * takes no lock; what changes it holds the state folder's lock, so that a daemon that starts meanwhile waits its turn.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { KnownObjects } from '../access/known-objects.ts';
import { systemClock } from '../base/clock.ts';
import { type Database, openDatabase } from '../base/database.ts';
import { codeOf, StoreError } from '../base/errors.ts';
import { lockState } from '../store/state-lock.ts';
import { Inbox } from '../webhook/inbox.ts';
import { listEvents, showEvent } from '../webhook/inbox-listing.ts';
import { prepareStatements } from '../webhook/inbox-tables.ts';
import type { ReadableObjects } from './asset-routes.ts';
import type { ReadableInbox } from './event-routes.ts';

/** Reads; the caller's `work` gets an inbox that is closed afterwards. Throws `inbox.absent`. */
export async function readStoppedInbox<Result>(
  stateDir: string,
  work: (inbox: ReadableInbox) => Promise<Result>,
): Promise<Result> {
  return reading(stateDir, (database) => {
    const statements = prepareStatements(database);
    return work({
      list: (query) => listEvents(statements, query),
      show: (id) => showEvent(statements, id),
    });
  });
}

/** Reads known objects in the same way. Throws `inbox.absent`. */
export async function readStoppedObjects<Result>(
  stateDir: string,
  work: (objects: ReadableObjects) => Promise<Result>,
): Promise<Result> {
  return reading(stateDir, (database) => work(new KnownObjects(database)));
}

async function reading<Result>(stateDir: string, work: (database: Database) => Promise<Result>): Promise<Result> {
  const database = openDatabase(pathIn(stateDir), { readonly: true });
  try {
    return await work(database);
  } catch (error) {
    throw codeOf(error)?.startsWith('SQLITE_') ? unreadable(stateDir, error) : error;
  } finally {
    database.close();
  }
}

/** Marks an event to run again when the daemon starts. Throws `store.locked` where one has the folder. */
export async function replayInStoppedInbox<Result>(
  stateDir: string,
  work: (replay: Inbox['replay']) => Promise<Result>,
): Promise<Result> {
  const path = pathIn(stateDir);
  const lock = lockState(stateDir, 'verb');
  try {
    const database = openDatabase(path);
    try {
      const inbox = Inbox.open(database, systemClock, '');
      return await work((id) => inbox.replay(id));
    } finally {
      database.close();
    }
  } finally {
    lock.release();
  }
}

function pathIn(stateDir: string): string {
  const path = join(stateDir, 'inbox.db');
  if (existsSync(path)) return path;
  throw new StoreError(`there is no inbox in ${stateDir}, and no daemon answers`, {
    code: 'inbox.absent',
    hint: 'Name the configuration of the daemon with --config, start it, or use sudo where this user may not look there.',
  });
}

function unreadable(stateDir: string, cause: unknown): StoreError {
  return new StoreError(`the inbox in ${stateDir} cannot be read (${codeOf(cause)})`, {
    code: 'inbox.unavailable',
    hint: 'Use sudo; a corrupt inbox is set aside when the daemon starts.',
    cause,
  });
}
