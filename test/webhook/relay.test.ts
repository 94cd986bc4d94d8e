import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { Inbox } from '../../src/webhook/inbox.ts';
import { readEvent } from '../../src/webhook/received-event.ts';
import { Relay } from '../../src/webhook/relay.ts';
import { sign } from '../../src/webhook/signature.ts';
import { anEvent, asyncInbox, Listening, SECRET, until } from './parts/listening.ts';

/** A listener that keeps signatures, and the relay that reads its inbox. test/process/relay.test.ts has brokers and gateways. */
const NEW_SECRET = 'the secret that comes after it';
const SHA256 = 'x-hub-signature-sha256';

let listening: Listening;
let relay: Relay;
let secrets: string[];
let published: { body: string; headers: Readonly<Record<string, string>> }[];

beforeEach(async () => {
  secrets = [NEW_SECRET, SECRET];
  published = [];
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
      published.push({ body: Buffer.from(body).toString(), headers });
    },
    secrets: () => secrets,
    clock: systemClock,
    log: listening.logged.log,
    relayed: () => {},
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

describe('the relay', () => {
  it('publishes body and signatures as they came, also by the old secret while it is changed', async () => {
    await relay.start();
    const body = anEvent();
    // As only the platform would write it: capitals, and the deprecated one beside it.
    const signature = sign(Buffer.from(body), SECRET).replace(/(?<=sha256=).*/, (hex) => hex.toUpperCase());
    const wrongSha1 = `sha1=${'0'.repeat(40)}`;
    const answer = await listening.post(body, { [SHA256]: signature, 'x-hub-signature': wrongSha1 });
    expect(answer.status).toBe(204);
    await relayed(1);
    expect(published).toEqual([{ body, headers: { [SHA256]: signature } }]);
  });

  it('signs with the secret in force what has no signature, or one that is not good any more', async () => {
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

  it('leaves no signature behind when its event falls away', async () => {
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
