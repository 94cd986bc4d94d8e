import type { Inbox } from '../../../../src/webhook/inbox.ts';
import type { ListQuery, RunnableEvent, ShownEvent } from '../../../../src/webhook/inbox-event.ts';

/** New and due events, oldest first. */
export function runnable(inbox: Pick<Inbox, 'fresh' | 'due'>, limit: number, afterId = 0): RunnableEvent[] {
  const all = [...inbox.fresh(limit, afterId), ...inbox.due(limit, afterId)];
  return all.sort((a, b) => a.id - b.id).slice(0, limit);
}

/** Listed events with their payloads. */
export function shown(inbox: Pick<Inbox, 'list' | 'show'>, query?: ListQuery): ShownEvent[] {
  return inbox.list(query).map(({ id }) => inbox.show(id)!);
}
