/** What `inbox.db` contains: the inbox of events, the table of holds, and known objects. Opened at startup, recreated where it is corrupt. */
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

/** What of it the main thread asks. */
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
 * Carries what reads of a corrupt one into a new one, before it opens. That events were seen is most of it: none of them
 * runs again. What is missing the platform still has, so everything that it lists is read again. Gives the rows.
 */
function carryOver(from: string, into: Database): number {
  prepareTables(into);
  const { holds } = openAccess(into);
  const rows = copyReadableRows(from, into);
  // Numbers of lost events may be given again.
  holds.forgetCursor();
  into.prepare('DELETE FROM inbox_note WHERE name = ?').run(WATERMARK_NOTE);
  return rows;
}

/** For the store thread. */
export const eventStore: EventStoreKind<EventServices> = {
  path: (stateDir) => join(stateDir, 'inbox.db'),
  open(database, boot, { hasLostCommits, before }) {
    const opened = open(database, boot);
    // The platform has them still, and those that are here are known.
    if (hasLostCommits) opened.services.inbox.setNote(WATERMARK_NOTE, '');
    // Numbers of events that are under way are not given again.
    if (before) opened.services.inbox.startAfter(before.inbox.highestId());
    return opened;
  },
  carryOver,
};
