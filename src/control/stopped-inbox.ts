/**
 * Access to a stopped agent's inbox and known objects, for `tagferry events` and `tagferry assets`. Reading opens the
 * file read-only without a lock. A change locks the state folder, so that an agent that starts in the meantime waits.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { AccessTable } from '../access/access-table.ts';
import { systemClock } from '../base/clock.ts';
import { type Database, openDatabase } from '../base/database.ts';
import { codeOf, StoreError } from '../base/errors.ts';
import { lockState } from '../store/state-lock.ts';
import { Inbox } from '../webhook/inbox.ts';
import { listEvents, showEvent } from '../webhook/inbox-listing.ts';
import { prepareStatements } from '../webhook/inbox-tables.ts';
import type { ReadableInbox, ReadableObjects } from './event-routes.ts';

/** Passes the inbox to `work` and closes it afterwards. Throws `inbox.absent` if no inbox exists. */
export async function readStoppedInbox<Result>(
  stateDir: string,
  work: (inbox: ReadableInbox) => Promise<Result>,
): Promise<Result> {
  return readDatabase(stateDir, (database) => {
    const statements = prepareStatements(database);
    return work({
      list: (query) => listEvents(statements, query),
      show: (id) => showEvent(statements, id),
    });
  });
}

/** Passes the known objects to `work`, like `readStoppedInbox`. */
export async function readStoppedObjects<Result>(
  stateDir: string,
  work: (objects: ReadableObjects) => Promise<Result>,
): Promise<Result> {
  return readDatabase(stateDir, (database) => work(new AccessTable(database)));
}

async function readDatabase<Result>(stateDir: string, work: (database: Database) => Promise<Result>): Promise<Result> {
  const database = openDatabase(pathIn(stateDir), { readonly: true });
  try {
    return await work(database);
  } catch (error) {
    throw codeOf(error)?.startsWith('SQLITE_') ? unreadable(stateDir, error) : error;
  } finally {
    database.close();
  }
}

/** Marks an event for replay at the next startup. Throws `store.locked` if an agent is using the folder. */
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
  throw new StoreError(`no inbox in ${stateDir}, and no running agent found`, {
    code: 'inbox.absent',
    hint: 'Specify the configuration with --config, start the service, or use sudo if this user cannot read the folder.',
  });
}

function unreadable(stateDir: string, cause: unknown): StoreError {
  return new StoreError(`cannot read the inbox in ${stateDir} (${codeOf(cause)})`, {
    code: 'inbox.unavailable',
    hint: 'Use sudo. If the inbox is corrupt, start the agent: it sets the file aside.',
    cause,
  });
}
