/** What people look at: of a running daemon's inbox, or of a stopped one's file. */
import type { ListedEvent, ListQuery, ShownEvent } from './inbox-event.ts';
import { type EventRow, type Statements, sumFits, toAttempt, toEvent, toListed } from './inbox-tables.ts';

const MAX_LISTED = 1_000;
/** Payloads of one page that goes to another thread; a single event may be larger. */
const PAGE_BYTES = 256 * 1024;

/** Newest first, 50 unless told. Throws the driver's error. */
export function listEvents(statements: Statements, query: ListQuery = {}): ListedEvent[] {
  const { limit = 50, beforeId = Number.MAX_SAFE_INTEGER, state, eventType } = query;
  const pageSize = Math.max(1, Math.min(MAX_LISTED, limit));
  return statements.list.all(beforeId, state ?? null, eventType ?? null, pageSize).map(toListed);
}

/** One event with its journal. Throws the driver's error. */
export function showEvent(statements: Statements, id: number): ShownEvent | undefined {
  const row = statements.get.get(id);
  if (!row) return undefined;
  return { ...toEvent(row), journal: statements.attempts.all(id).map(toAttempt), damaged: !sumFits(row) };
}

/** Rows with ids above a number, oldest first. */
export type RowsAfter = (id: number) => Iterable<EventRow>;

/** The next rows that `whole` does not set aside: as many as fit into a page, at least one; none at the end. */
export function readPage(afterId: number, rowsAfter: RowsAfter, whole: (rows: EventRow[]) => EventRow[]): EventRow[] {
  for (let after = afterId; ; ) {
    const rows: EventRow[] = [];
    let bytes = 0;
    for (const row of rowsAfter(after)) {
      rows.push(row);
      bytes += row.payload.length;
      if (bytes >= PAGE_BYTES) break;
    }
    const page = whole(rows);
    if (rows.length === 0 || page.length > 0) return page;
    after = rows.at(-1)!.id;
  }
}
