import type { Clock } from '../../../src/base/clock.ts';
import { openDatabase } from '../../../src/base/database.ts';
import type { Journal } from '../../../src/reactions/journal.ts';
import { EventFeed, type FeedInbox } from '../../../src/webhook/event-feed.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { readEvent } from '../../../src/webhook/received-event.ts';

/** The real inbox on a real file, reached as the main thread reaches it: every method answered later. */
export function openJournal(file: string, clock: Clock): { inbox: Inbox; journal: Journal; close: () => void } {
  const database = openDatabase(file);
  const inbox = Inbox.open(database, clock, 'boot');
  const answering = new Proxy({} as Journal & FeedInbox, {
    get:
      (_, method: keyof Inbox) =>
      async (...args: unknown[]) =>
        (inbox[method] as (...args: unknown[]) => unknown).apply(inbox, args),
  });
  const feed = new EventFeed(answering);
  const journal = new Proxy(answering, {
    get: (target, method: keyof Journal) =>
      method === 'runnable' || method === 'retried'
        ? (limit: number, afterId: number) => feed[method](limit, afterId)
        : target[method],
  });
  return { inbox, journal, close: () => database.close() };
}

/** A threshold event, distinct by its value. */
export function threshold(value: number, occurredAtMs: number, instrumentation = 4711, asset = 881) {
  const event = {
    event_type: 'threshold_reached',
    occurred_at: new Date(occurredAtMs).toISOString(),
    content: {
      asset: { id: asset, href: '' },
      instrumentation: { id: instrumentation, href: '', tag: 'FT-101' },
      data: { value, key: 'flow', timestamp: new Date(occurredAtMs).toISOString(), unit: { code: 'l', symbol: 'l' } },
      threshold: { type: 'high', name: 'High', value: 20, thresholdable_type: 'Instrumentation' },
    },
  };
  return readEvent(Buffer.from(JSON.stringify(event)), occurredAtMs);
}
