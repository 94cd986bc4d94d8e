/** What is made of a body on its way into the inbox, and the line of the log that says so: whole, and at each bound. */
import { describe, expect, it } from 'vitest';
import { parsedEvent } from '../../src/webhook/event-feed.ts';
import { identityOf } from '../../src/webhook/identity.ts';
import { describeEvent } from '../../src/webhook/inbox-event.ts';
import { type ArrivedEvent, arrivalLine, readEvent } from '../../src/webhook/received-event.ts';

const bytes = (text: string) => new TextEncoder().encode(text);
const KNOWN = {
  event_type: 'asset_updated',
  occurred_at: '2026-11-21T00:00:00.5Z',
  content: { asset: { id: 1, href: '/assets/1' }, unit: { id: 1, href: '/units/1' } },
};

describe('a body', () => {
  it('of an event that is known becomes what the inbox keeps', () => {
    const payload = bytes(JSON.stringify(KNOWN));
    expect(readEvent(payload, 7)).toStrictEqual({
      identity: identityOf(payload),
      receivedAtMs: 7,
      payload,
      eventType: 'asset_updated',
      occurredAtMs: Date.UTC(2026, 10, 21, 0, 0, 0, 500),
      unrecognised: false,
    });
  });

  it.each([
    ['', ''],
    ['no JSON', ''],
    ['null', ''],
    ['7', ''],
    ['"event_type"', ''],
    ['[{"event_type":"brand_new"}]', ''],
    ['{}', ''],
    ['{"event_type":null}', ''],
    ['{"event_type":["brand_new"]}', ''],
    ['{"event_type":""}', ''],
    ['{"event_type":"brand_new","occurred_at":"2026-11-21T00:00:00Z"}', 'brand_new'],
    ['{"event_type":"asset_updated","content":7}', 'asset_updated'],
    [`{"event_type":"${'x'.repeat(99)}"}`, 'x'.repeat(99)],
    [`{"event_type":"${'x'.repeat(100)}"}`, 'x'.repeat(100)],
    [`{"event_type":"${'x'.repeat(101)}"}`, 'x'.repeat(100)],
  ])('of anything else is kept as it came, under the name that it gives itself: %s', (text, eventType) => {
    const payload = bytes(text);
    const rest = { receivedAtMs: 0, payload, occurredAtMs: undefined, unrecognised: true };
    expect(readEvent(payload, 0)).toStrictEqual({ identity: identityOf(payload), eventType, ...rest });
  });

  it('that is no text says nothing', () => {
    const payload = Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d);
    expect(readEvent(payload, 0)).toMatchObject({ eventType: '', unrecognised: true, payload });
  });
});

describe('an event that has come', () => {
  const event: ArrivedEvent = {
    identity: new Uint8Array(Buffer.from('00abcdef0123456789abcdef', 'hex')).subarray(1),
    eventType: 'asset_updated',
    occurredAtMs: 5,
    receivedAtMs: 7,
    payload: bytes('{"content":{"n":1}}'),
    unrecognised: false,
  };

  it.each(['push', 'list', 'broker'] as const)('is one line of the log, by its %s', (via) => {
    const line = { event: 'webhook.received', digest: 'abcdef012345', eventType: 'asset_updated', via };
    expect(arrivalLine(event, via)).toStrictEqual({ ...line, occurredAt: '1970-01-01T00:00:00.005Z' });
    expect(arrivalLine({ ...event, unrecognised: true, occurredAtMs: undefined }, via)).toStrictEqual({
      ...line,
      occurredAt: undefined,
      unrecognised: true,
    });
  });

  it.each([
    [0, '1970-01-01T00:00:00.000Z'],
    [-1, '1969-12-31T23:59:59.999Z'],
    [8.64e15, '+275760-09-13T00:00:00.000Z'],
    [8.64e15 + 1, undefined],
    [-8.64e15, '-271821-04-20T00:00:00.000Z'],
    [-8.64e15 - 1, undefined],
  ])('at %i is told by its time, as far as there are dates', (occurredAtMs, occurredAt) => {
    expect(arrivalLine({ ...event, occurredAtMs }, 'push').occurredAt).toBe(occurredAt);
    const listed = describeEvent({ ...parsedEvent(event), occurredAtMs, receivedAtMs: occurredAtMs });
    expect([listed.occurred_at, listed.received_at]).toEqual([occurredAt ?? null, occurredAt ?? '']);
  });

  it('is given to subscribers as the inbox will give it', () => {
    const given = {
      id: 0,
      digest: 'abcdef012345',
      eventType: 'asset_updated',
      occurredAtMs: 5,
      receivedAtMs: 7,
      payload: '{"content":{"n":1}}',
      state: 'received',
      attempts: 0,
      unrecognised: false,
      replayed: false,
      envelope: { content: { n: 1 } },
    };
    expect(parsedEvent(event)).toStrictEqual(given);
    for (const text of ['', 'x', '[]', '[{}]', 'null', '1', '"{}"']) {
      const other = { ...event, payload: bytes(text), unrecognised: true };
      expect(parsedEvent(other)).toStrictEqual({ ...given, payload: text, unrecognised: true, envelope: {} });
    }
  });
});
