import { beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Connection } from '../../../src/broker/connection.ts';
import { Incoming } from '../../../src/broker/incoming.ts';
import type { Subscriptions } from '../../../src/broker/subscriptions.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

let clock: ManualClock;
let incoming: Incoming;
let notified: number;
const connection = { unconfirmed: 0, isClosed: false };

beforeEach(() => {
  clock = new ManualClock();
  notified = 0;
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
  });
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
    };
    void incoming.receive(message as never, connection as Connection);
  }
  await clock.advance(50);
  return notified > before;
}

describe('early commit for a broker', () => {
  it('is requested if ten messages are unacknowledged and none arrives for a moment', async () => {
    expect(await burst(9)).toBe(false);
    expect(await burst(1)).toBe(true);
  });

  it('is requested again as long as messages are unacknowledged', async () => {
    expect(await burst(20)).toBe(true);
    expect(await burst(1)).toBe(true);
    connection.unconfirmed = 0;
    expect(await burst(9)).toBe(false);
  });
});
