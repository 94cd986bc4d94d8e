import type { ListedEvent, ListQuery, ShownEvent } from './inbox-event.ts';
import { type EventRow, type Statements, sumFits, toAttempt, toEvent, toListed } from './inbox-tables.ts';

const MAX_LISTED = 1_000;
/** Maximum payload size of a page, in bytes. A single event may be larger. */
const PAGE_BYTES = 256 * 1024;

/** Returns events, newest first. Throws SQLite errors. */
export function listEvents(statements: Statements, query: ListQuery = {}): ListedEvent[] {
  const { limit = 50, beforeId = Number.MAX_SAFE_INTEGER, state, eventType } = query;
  const pageSize = Math.max(1, Math.min(MAX_LISTED, limit));
  return statements.list.all(beforeId, state ?? null, eventType ?? null, pageSize).map(toListed);
}

/** Returns an event with its journal. Throws SQLite errors. */
export function showEvent(statements: Statements, id: number): ShownEvent | undefined {
  const row = statements.get.get(id);
  if (!row) return undefined;
  return { ...toEvent(row), journal: statements.attempts.all(id).map(toAttempt), damaged: !sumFits(row) };
}

/** Returns rows with IDs above a given ID, oldest first. */
export type RowsAfter = (id: number) => Iterable<EventRow>;

/**
 * Returns the next page of rows that `whole` accepts. The page contains at least one row unless the end has been
 * reached.
 */
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
