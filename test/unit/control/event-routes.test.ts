import { describe, expect, it } from 'vitest';
import { listEvents, type ReadableInbox, replayEvent, showEvent } from '../../../src/control/event-routes.ts';
import type { InboxEvent } from '../../../src/webhook/inbox-event.ts';

const EVENTS: InboxEvent[] = Array.from({ length: 2500 }, (_, i) => ({
  id: i + 1,
  digest: `digest ${i + 1}`,
  eventType: 'threshold_reached',
  occurredAtMs: 0,
  receivedAtMs: 0,
  payload: '{',
  state: 'done' as const,
  attempts: 1,
  unrecognised: false,
  replayed: false,
})).reverse();

const inbox: ReadableInbox = {
  list: ({ limit = 50, beforeId = Number.MAX_SAFE_INTEGER } = {}) =>
    EVENTS.filter((event) => event.id < beforeId).slice(0, Math.min(limit, 1000)),
  show: (id) => {
    const event = EVENTS.find((one) => one.id === id);
    return event && { ...event, journal: [], damaged: false };
  },
};

describe('event routes', () => {
  it('list each event once across pages, newest first', async () => {
    const ids = async (limit?: number) => (await listEvents(inbox, { limit })).events.map((event) => event.id);
    expect(await ids()).toEqual(EVENTS.slice(0, 50).map((event) => event.id));
    expect(await ids(1001)).toEqual(EVENTS.slice(0, 1001).map((event) => event.id));
    expect(await ids(9000)).toEqual(EVENTS.map((event) => event.id));
  });

  it('reject invalid parameters', async () => {
    await expect(listEvents(inbox, { limit: 0 })).rejects.toMatchObject({ code: 'usage' });
    await expect(listEvents(inbox, { limit: 2.5 })).rejects.toMatchObject({ code: 'usage' });
    await expect(listEvents(inbox, { state: 'gone' })).rejects.toMatchObject({ code: 'usage' });
    await expect(showEvent(inbox, {})).rejects.toMatchObject({ code: 'usage' });
    await expect(showEvent(inbox, { id: 9999 })).rejects.toMatchObject({ code: 'event.unknown' });
    await expect(replayEvent(() => 'refused', { id: 1 })).rejects.toMatchObject({ code: 'event.not_replayed' });
  });

  it('show a payload that is not JSON unchanged', async () => {
    expect(await showEvent(inbox, { id: 7 })).toMatchObject({
      id: 7,
      payload: '{',
      occurred_at: '1970-01-01T00:00:00.000Z',
    });
  });
});
