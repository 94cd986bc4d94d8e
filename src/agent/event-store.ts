/** What lives in `inbox.db`: the inbox of events and the table of holds. Opened at the start, and begun anew where it is corrupt. */
import { join } from 'node:path';
import { HoldTable } from '../access/hold-table.ts';
import { systemClock } from '../clock.ts';
import { type Database, openDatabase } from '../database.ts';

import { Inbox } from '../webhook/inbox.ts';
import { copyReadableRows } from '../webhook/inbox-salvage.ts';
import { prepareTables } from '../webhook/inbox-tables.ts';
import { WATERMARK_NOTE } from '../webhook/watermark.ts';

export interface EventStore {
  database: Database;
  inbox: Inbox;
  holds: HoldTable;
}

export function eventStorePath(stateDir: string): string {
  return join(stateDir, 'inbox.db');
}

export function openEventStore(database: Database, boot: string): EventStore {
  const inbox = new Inbox(database, systemClock);
  inbox.open(boot);
  const holds = new HoldTable(database);
  holds.open();
  return { database, inbox, holds };
}

/**
 * Carries what reads of a corrupt one into a new one, before it opens. That events were seen is most of it: none of them
 * runs again. What is missing the platform still has, so everything that it lists is read again. Gives the rows.
 */
export function carryEvents(from: string, into: Database): number {
  prepareTables(into);
  new HoldTable(into).open();
  const rows = copyReadableRows(from, into);
  into.prepare('DELETE FROM inbox_note WHERE name = ?').run(WATERMARK_NOTE);
  return rows;
}

/** A new one in place of one that was corrupt while the agent ran: numbers of events that are under way are not given again. */
export function beginEventStore(
  path: string,
  from: string,
  boot: string,
  before: Inbox,
): { store: EventStore; rows: number } {
  const database = openDatabase(path);
  try {
    const rows = carryEvents(from, database);
    const store = openEventStore(database, boot);
    store.inbox.startAfter(before.lastId);
    return { store, rows };
  } catch (error) {
    database.close();
    throw error;
  }
}
