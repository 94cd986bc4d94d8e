import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { brokerTooLarge, retryable } from '../../../src/broker/broker-error.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { readEvent } from '../../../src/webhook/received-event.ts';
import { Relay } from '../../../src/webhook/relay.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { anEvent, asyncInbox, Listening, SECRET, until } from './parts/listening.ts';

/** A listener that stores signatures, and the relay that reads its inbox. test/old/webhook/relay.test.ts uses real brokers. */
const NEW_SECRET = 'the secret that comes after it';
const SHA256 = 'x-hub-signature-sha256';

let listening: Listening;
let relay: Relay;
let secrets: string[];
/** Error of the broker for a body. */
let refusal: (body: string) => Error | undefined;
/** Number of relayed events. */
let counted: number;
let published: { body: string; headers: Readonly<Record<string, string>> }[];

beforeEach(async () => {
  secrets = [NEW_SECRET, SECRET];
  published = [];
  counted = 0;
  refusal = () => undefined;
  listening = new Listening();
  listening.secrets = secrets;
  await listening.start({ keepsSignatures: true, acceptSha1: true });
  const { inbox } = listening;
  relay = new Relay({
    inbox: {
      ...asyncInbox(inbox),
      toRelay: async (limit, afterId) => inbox.toRelay(limit, afterId),
      highestId: async () => inbox.highestId(),
    },
    publish: async (body, headers) => {
      const error = refusal(Buffer.from(body).toString());
      if (error) throw error;
      published.push({ body: Buffer.from(body).toString(), headers });
    },
    secrets: () => secrets,
    clock: systemClock,
    log: listening.logged.log,
    relayed: (count) => {
      counted += count;
    },
  });
});
afterEach(async () => {
  await relay.stop();
  await listening.stop();
});

async function relayed(count: number): Promise<void> {
  relay.wake();
  await until(() => published.length >= count);
}

describe('relay', () => {
  it('publishes the unchanged body and signatures, including signatures with the previous secret', async () => {
    await relay.start();
    const body = anEvent();
    // Upper-case digits, and an additional invalid SHA-1 signature.
    const signature = sign(Buffer.from(body), SECRET).replace(/(?<=sha256=).*/, (hex) => hex.toUpperCase());
    const wrongSha1 = `sha1=${'0'.repeat(40)}`;
    const answer = await listening.post(body, { [SHA256]: signature, 'x-hub-signature': wrongSha1 });
    expect(answer.status).toBe(204);
    await relayed(1);
    expect(published).toEqual([{ body, headers: { [SHA256]: signature } }]);
  });

  it('signs events without a valid signature with the current secret', async () => {
    await relay.start();
    const [listed, old] = [anEvent(), anEvent()];
    listening.inbox.insertMany([readEvent(new TextEncoder().encode(listed), 0)]);
    expect((await listening.post(old)).status).toBe(204);
    secrets = [NEW_SECRET];
    await relayed(2);
    expect(published).toEqual(
      [listed, old].map((body) => ({ body, headers: { [SHA256]: sign(Buffer.from(body), NEW_SECRET) } })),
    );
  });

  it('skips and reports an event that is too large for the broker', async () => {
    await relay.start();
    const [first, large, last] = [anEvent(), anEvent(), anEvent()];
    refusal = (body) => (body === large ? brokerTooLarge('broker') : undefined);
    for (const body of [first, large, last]) expect((await listening.post(body)).status).toBe(204);
    await relayed(2);
    expect(published.map(({ body }) => body).toSorted()).toEqual([first, last].toSorted());
    await until(() => listening.logged.text.includes('"event":"webhook.relay_too_large","id":2,'));
    const next = anEvent();
    expect((await listening.post(next)).status).toBe(204);
    await relayed(3);
    expect(published.at(-1)?.body).toBe(next);
    await until(() => counted === 3);
  });

  it('republishes only unacknowledged events', async () => {
    const bodies = Array.from({ length: 10 }, () => anEvent());
    await relay.start();
    let tries = 0;
    refusal = (body) => {
      if (body === bodies[8]) return brokerTooLarge('broker');
      return body === bodies[6] && tries++ < 3 ? retryable('broker.away', 'not connected') : undefined;
    };
    listening.inbox.insertMany(bodies.map((body) => readEvent(new TextEncoder().encode(body), 0)));
    await relayed(1);
    await until(() => counted === 9);
    const times = (at: number) => published.filter(({ body }) => body === bodies[at]).length;
    expect(bodies.map((_, at) => times(at))).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 0, 1]);
    expect(listening.logged.text.split('webhook.relay_too_large')).toHaveLength(2);
    // The stored cursor is the last event before which all events were confirmed.
    expect(listening.inbox.note('relayed')).toBe('10');
  });

  it('deletes signatures together with their events', async () => {
    await relay.start();
    expect((await listening.post('{"event_type":"of no kind"}')).status).toBe(204);
    await relayed(1);
    const kept = () => listening.database.prepare('SELECT count(*) FROM inbox_signature').pluck().get();
    expect(kept()).toBe(1);
    await relay.stop();
    Inbox.open(listening.database, systemClock, 'boot', { keepBytes: 0 }).prune();
    expect(kept()).toBe(0);
  });
});
