import { describe, expect, it } from 'vitest';
import { parsed } from '../../src/webhook/event-feed.ts';
import { describeEvent, type InboxEvent } from '../../src/webhook/inbox-event.ts';

function event(id: number, payload = `{"content":{"n":${id}}}`): InboxEvent {
  const at = { occurredAtMs: undefined, receivedAtMs: 0 };
  const rest = { state: 'received', attempts: 0, unrecognised: false, replayed: false } as const;
  return { id, digest: 'd', eventType: 't', payload, ...at, ...rest };
}

describe('the payload of an event', () => {
  it('is parsed once', () => {
    const { envelope } = parsed(event(1));
    expect(envelope).toEqual({ content: { n: 1 } });
    const other = parsed(event(2));
    expect(other.envelope).toBe(other.envelope);
  });

  it.each(['', 'x', '[]', 'null', '1'])('is an empty object if the text is %j', (payload) => {
    expect(parsed(event(1, payload)).envelope).toEqual({});
  });

  it('is an empty object if parsing would take many times the memory of its text', () => {
    const many = (count: number) => `{"content":[${Array.from({ length: count }, () => '{}').join()}]}`;
    expect(parsed(event(1, many(5_000))).envelope).not.toEqual({});
    expect(parsed(event(1, many(50_000))).envelope).toEqual({});
  });
});

describe('a listed event', () => {
  it('has no time if the event contains none that can be read', () => {
    const listed = describeEvent({ ...event(1), occurredAtMs: Number.NaN, receivedAtMs: 8.65e15 });
    expect(listed).toMatchObject({ occurred_at: null, received_at: '' });
    expect(describeEvent({ ...event(1), receivedAtMs: 0 }).received_at).toBe('1970-01-01T00:00:00.000Z');
  });
});
