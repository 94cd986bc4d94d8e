import type { Clock } from '../../../../src/base/clock.ts';
import { openDatabase } from '../../../../src/base/database.ts';
import type { Journal } from '../../../../src/reactions/journal.ts';
import { Inbox } from '../../../../src/webhook/inbox.ts';
import { parsed, readEvent } from '../../../../src/webhook/received-event.ts';

/** An inbox on disk with the asynchronous interface of the store thread. */
export function openJournal(file: string, clock: Clock): { inbox: Inbox; journal: Journal; close: () => void } {
  const database = openDatabase(file);
  const inbox = Inbox.open(database, clock, 'boot');
  const journal = new Proxy({} as Journal, {
    get:
      (_, method: keyof Journal) =>
      async (...args: unknown[]) => {
        const result = (inbox[method] as (...args: unknown[]) => unknown).apply(inbox, args);
        return Array.isArray(result) ? result.map(parsed) : result;
      },
  });
  return { inbox, journal, close: () => database.close() };
}

/** Threshold event with a distinct value. */
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
