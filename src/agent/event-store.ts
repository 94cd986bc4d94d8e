/** Content of `inbox.db`: event inbox, hold table and known objects. Opened at startup and recreated if corrupt. */
import { join } from 'node:path';
import { HoldTable } from '../access/hold-table.ts';
import { KnownObjects } from '../access/known-objects.ts';
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
  holds: HoldTable;
  objects: KnownObjects;
}

type EventStore = OpenedEvents<EventServices>;

function open(database: Database, boot: string): EventStore {
  const inbox = Inbox.open(database, systemClock, boot);
  return { database, services: { inbox, ...openAccess(database) } };
}

function openAccess(database: Database): Omit<EventServices, 'inbox'> {
  const objects = new KnownObjects(database);
  const holds = new HoldTable(database, objects);
  objects.open();
  holds.open();
  return { holds, objects };
}

/**
 * Copies readable rows from a corrupt database to a new one before it is opened. Copied events do not run again.
 * Missing data is fetched from the platform. Returns the number of rows.
 */
function carryOver(from: string, into: Database): number {
  prepareTables(into);
  const { holds } = openAccess(into);
  const rows = copyReadableRows(from, into);
  // Ids of lost events may be reused.
  holds.forgetCursor();
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
