import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Broker } from '../../../src/broker/broker.ts';
import type { BrokerSpec } from '../../../src/broker/broker-spec.ts';
import { StrictBroker } from '../../unit/broker/strict-broker.ts';

let server: StrictBroker;
let port: number;
let brokers: Broker[];

beforeEach(async () => {
  server = new StrictBroker();
  port = await server.start();
  brokers = [];
});
afterEach(async () => {
  await Promise.all(brokers.map((one) => one.stop(0)));
  await server.stop();
});

function brokerOf(spec: Partial<BrokerSpec> = {}, at = port): Broker {
  const made = new Broker({
    name: 'plant',
    spec: { url: `mqtt://127.0.0.1:${at}`, version: 5, qos: 1, sessionExpiryMs: 60_000, ...spec },
    clientId: 'gw',
    clock: systemClock,
    logger: silentLogger(),
  });
  brokers.push(made);
  return made;
}

/** Subscribes, and acknowledges messages only when `confirm` is called. */
function taker(broker: Broker, filter: string) {
  const got: string[] = [];
  const waiting: (() => void)[] = [];
  const leave = broker.subscribe(filter, ({ payload }) => {
    got.push(Buffer.from(payload).toString());
    return new Promise((resolve) => waiting.push(resolve));
  });
  const confirm = () => {
    for (const resolve of waiting.splice(0)) resolve();
  };
  return { got, confirm, leave };
}

describe('MQTT client of a broker that does not respond', () => {
  it.each(['isMute', 'hangsUp'] as const)(
    'keeps using version 5 after an attempt without a response (%s)',
    async (fault) => {
      server[fault] = true;
      const one = brokerOf();
      one.start();
      // Each attempt times out after 15 s.
      await vi.waitUntil(() => server.versions.length === 2, { timeout: 40_000 });
      server[fault] = false;
      server.cut();
      await vi.waitUntil(() => one.state().connected, { timeout: 40_000 });
      expect(new Set(server.versions)).toEqual(new Set([5]));
    },
    90_000,
  );

  it('closes the connection if it is a subscription, and is repeated on the next connection', async () => {
    server.unanswered.add('subscribe');
    const one = brokerOf();
    const { got, confirm } = taker(one, 'a');
    one.start();
    await vi.waitUntil(() => one.state().problem === 'broker.silent', { timeout: 30_000 });
    server.unanswered.clear();
    await vi.waitUntil(() => server.filters.length === 1, { timeout: 20_000 });
    server.publish('a', '1');
    await vi.waitUntil(() => got.length === 1);
    confirm();
  }, 60_000);
});
