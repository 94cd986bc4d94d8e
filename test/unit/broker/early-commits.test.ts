import { beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Connection } from '../../../src/broker/connection.ts';
import { Incoming } from '../../../src/broker/incoming.ts';
import type { Subscriptions } from '../../../src/broker/subscriptions.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

let clock: ManualClock;
let incoming: Incoming;
let notified: number;
let id: number;
const connection = { unconfirmed: 0, isClosed: false };

beforeEach(() => {
  clock = new ManualClock();
  notified = 0;
  id = 0;
  connection.unconfirmed = 0;
  const subscriptions = {
    handlersOf: () => [async () => {}],
    notifyStalled: () => {
      notified++;
    },
  };
  incoming = new Incoming({
    name: 'broker',
    subscriptions: subscriptions as unknown as Subscriptions,
    clock,
    logger: silentLogger(),
    signal: new AbortController().signal,
  });
  incoming.greeted(true);
});

/** Receives a burst of messages, then nothing for a while. Returns whether an early commit is requested. */
async function burst(messages: number): Promise<boolean> {
  const before = notified;
  for (let n = 0; n < messages; n++) {
    connection.unconfirmed++;
    const message = {
      topic: 't',
      payload: Buffer.from('1'),
      qos: 1,
      retained: false,
      redelivered: false,
      messageId: ++id,
    };
    void incoming.receive(message as never, connection as Connection);
  }
  await clock.advance(50);
  return notified > before;
}

/** Acknowledges all messages and lets some time pass. */
async function acknowledge(thenMs: number): Promise<void> {
  connection.unconfirmed = 0;
  incoming.done([id]);
  await clock.advance(thenMs);
}

describe('early commit for a broker', () => {
  it('is requested if messages arrive immediately after acknowledgements, which indicates a full window', async () => {
    for (let round = 0; round < 5; round++) {
      expect(await burst(20)).toBe(true);
      await acknowledge(5);
    }
  });

  it('is requested only once if the broker was merely idle', async () => {
    expect(await burst(15)).toBe(true);
    for (let round = 0; round < 5; round++) {
      await acknowledge(1_000);
      expect(await burst(15)).toBe(false);
    }
  });

  it('is requested again after a regular commit shows that the window is full', async () => {
    expect(await burst(20)).toBe(true);
    await acknowledge(1_000);
    expect(await burst(20)).toBe(false);
    await acknowledge(5);
    expect(await burst(20)).toBe(true);
  });

  it('is not requested for fewer messages than the smallest common in-flight window', async () => {
    expect(await burst(9)).toBe(false);
  });

  it('is requested again on a new connection', async () => {
    await burst(15);
    await acknowledge(1_000);
    expect(await burst(15)).toBe(false);
    incoming.greeted(true);
    connection.unconfirmed = 0;
    expect(await burst(15)).toBe(true);
  });
});
