import { describe, expect, it } from 'vitest';
import { EventFeed, type FeedInbox } from '../../src/webhook/event-feed.ts';
import { describeEvent, type InboxEvent, type RunnableEvent } from '../../src/webhook/inbox-event.ts';

const MAX_KEPT = 512;

function event(id: number, payload = `{"content":{"n":${id}}}`): RunnableEvent {
  const at = { occurredAtMs: undefined, receivedAtMs: 0 };
  const progress: RunnableEvent['progress'] = [];
  const rest = { state: 'received', attempts: 0, unrecognised: false, replayed: false } as const;
  return { id, digest: 'd', eventType: 't', payload, ...at, ...rest, progress };
}

/** An inbox that gives these events to everyone who asks. */
function feedOf(events: readonly RunnableEvent[]): EventFeed {
  const from = async (_limit: number, afterId: number) => events.filter(({ id }) => id > afterId);
  const inbox: FeedInbox = {
    runnable: from,
    retried: from,
    ofAccess: from as (...args: never[]) => Promise<InboxEvent[]>,
  };
  return new EventFeed(inbox);
}

describe('what the inbox gives to those who follow it', () => {
  it('is parsed once for all of them', async () => {
    const feed = feedOf([event(1)]);
    const [first] = await feed.runnable(9);
    expect(first!.envelope).toEqual({ content: { n: 1 } });
    expect((await feed.retried(9, 0))[0]!.envelope).toBe(first!.envelope);
    expect((await feed.ofAccess(9, 0))[0]!.envelope).toBe(first!.envelope);
  });

  it('is kept parsed for several at once', async () => {
    const feed = feedOf([event(1), event(2), event(3)]);
    const before = await feed.runnable(9);
    const after = await feed.retried(9, 0);
    for (const [at, { envelope }] of before.entries()) expect(after[at]!.envelope).toBe(envelope);
  });

  it('is kept parsed for the last of many only, and not where it is large', async () => {
    const feed = feedOf(Array.from({ length: MAX_KEPT + 1 }, (_, at) => event(at + 1)));
    const [first, second] = await feed.runnable(9);
    const [again] = await feed.ofAccess(9, 0);
    expect(again!.envelope).toEqual(first!.envelope);
    expect(again!.envelope).not.toBe(first!.envelope);
    const small = feedOf([event(1)]);
    const [framed, bound] = [JSON.stringify({ text: '' }).length, 4_096];
    const atBound = feedOf([event(1, JSON.stringify({ text: 'x'.repeat(bound - framed) }))]);
    const large = feedOf([event(1, JSON.stringify({ text: 'x'.repeat(bound - framed + 1) }))]);
    const isKept = async (from: EventFeed) => {
      const [[once], [twice]] = [await from.runnable(9), await from.runnable(9)];
      return once!.envelope === twice!.envelope;
    };
    expect([await isKept(small), await isKept(atBound), await isKept(large)]).toEqual([true, true, false]);
    expect(second!.envelope).toEqual({ content: { n: 2 } });
  });

  it.each(['', 'x', '[]', 'null', '1'])('is an empty object where the payload is %j', async (payload) => {
    expect((await feedOf([event(1, payload)]).runnable(9))[0]!.envelope).toEqual({});
  });

  it('is shown without a time where it says none that can be read', () => {
    const shown = describeEvent({ ...event(1), occurredAtMs: Number.NaN, receivedAtMs: 8.65e15 });
    expect(shown).toMatchObject({ occurred_at: null, received_at: '' });
    expect(describeEvent({ ...event(1), receivedAtMs: 0 }).received_at).toBe('1970-01-01T00:00:00.000Z');
  });
});
