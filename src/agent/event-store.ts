/** Content of `inbox.db`: event inbox, and objects with their holds. Opened at startup and recreated if corrupt. */
import { join } from 'node:path';
import { AccessTable } from '../access/access-table.ts';
import { systemClock } from '../base/clock.ts';
import type { Database } from '../base/database.ts';
import type { EventStoreKind, OpenedEvents } from '../store/store-api.ts';
import { Inbox } from '../webhook/inbox.ts';
import { copyReadableRows } from '../webhook/inbox-salvage.ts';
import { prepareTables } from '../webhook/inbox-tables.ts';
import { WATERMARK_NOTE } from '../webhook/watermark.ts';

/** Services used by the main thread. */
export interface EventServices {
  inbox: Inbox;
  access: AccessTable;
}

type EventStore = OpenedEvents<EventServices>;

function open(database: Database, boot: string): EventStore {
  const inbox = Inbox.open(database, systemClock, boot);
  return { database, services: { inbox, access: openAccess(database) } };
}

function openAccess(database: Database): AccessTable {
  const access = new AccessTable(database);
  access.open();
  return access;
}

/**
 * Copies readable rows from a corrupt database to a new one before it is opened. Copied events do not run again.
 * Missing data is fetched from the platform. Returns the number of rows.
 */
function carryOver(from: string, into: Database): number {
  prepareTables(into);
  const access = openAccess(into);
  const rows = copyReadableRows(from, into);
  // Ids of lost events may be reused.
  access.forgetCursor();
  into.prepare('DELETE FROM inbox_note WHERE name = ?').run(WATERMARK_NOTE);
  return rows;
}

/** Used by the store thread. */
export const eventStore: EventStoreKind<EventServices> = {
  path: (stateDir) => join(stateDir, 'inbox.db'),
  open(database, boot, { hasLostCommits, before }) {
    const opened = open(database, boot);
    // The platform still has the lost events, and the remaining events are recognized as duplicates.
    if (hasLostCommits) opened.services.inbox.setNote(WATERMARK_NOTE, '');
    // Ids of events in progress must not be reused.
    if (before) opened.services.inbox.startAfter(before.inbox.highestId());
    return opened;
  },
  carryOver,
};
