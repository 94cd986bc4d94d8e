/** What people look at: of a running daemon's inbox, or of a stopped one's file. */
import type { InboxEvent, ListQuery, ShownEvent } from './inbox-event.ts';
import { type Statements, sumFits, toAttempt, toEvent } from './inbox-tables.ts';

const MAX_LISTED = 1_000;

/** Newest first, 50 unless told. Throws the driver's error. */
export function listEvents(statements: Statements, query: ListQuery = {}): InboxEvent[] {
  const { limit = 50, beforeId = Number.MAX_SAFE_INTEGER, state, eventType } = query;
  const pageSize = Math.max(1, Math.min(MAX_LISTED, limit));
  return statements.list.all(beforeId, state ?? null, eventType ?? null, pageSize).map(toEvent);
}

/** One event with its journal. Throws the driver's error. */
export function showEvent(statements: Statements, id: number): ShownEvent | undefined {
  const row = statements.get.get(id);
  if (!row) return undefined;
  return { ...toEvent(row), journal: statements.attempts.all(id).map(toAttempt), damaged: !sumFits(row) };
}
