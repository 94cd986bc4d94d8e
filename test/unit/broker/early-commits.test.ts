import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { Broker } from '../../../src/broker/broker.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { StrictBroker } from './strict-broker.ts';

let server: StrictBroker;
let broker: Broker;
let clock: ManualClock;
let arrived: number;
let requested: number;
let store: (() => void)[];

beforeEach(async () => {
  server = new StrictBroker({ window: 100 });
  const url = `mqtt://127.0.0.1:${await server.start()}`;
  clock = new ManualClock();
  arrived = 0;
  requested = 0;
  store = [];
  const spec = { url, version: 5, qos: 1, sessionExpiryMs: 60_000 } as const;
  broker = new Broker({ name: 'plant', spec, clientId: 'gw', clock, logger: silentLogger() });
  const handler = () => {
    arrived++;
    return new Promise<void>((resolve) => store.push(resolve));
  };
  broker.subscribe(['t'], handler, { stalled: () => requested++ });
  broker.start();
  await vi.waitUntil(() => server.filters.length === 1);
});
afterEach(async () => {
  await broker.stop(0);
  await server.stop();
});

/** Receives a burst of messages, then nothing for `quietMs`. */
async function burst(messages: number, quietMs: number): Promise<void> {
  const before = arrived;
  for (let n = 0; n < messages; n++) server.publish('t', '1');
  await vi.waitUntil(() => arrived === before + messages);
  await clock.advance(quietMs);
}

describe('early commit for a broker', () => {
  it('is requested if ten messages are unacknowledged and none arrives for a moment', async () => {
    await burst(9, 1_000);
    expect(requested).toBe(0);
    await burst(1, 1_000);
    expect(requested).toBe(1);
    for (const resolve of store.splice(0)) resolve();
    await vi.waitUntil(() => server.pending === 0);
    await burst(9, 1_000);
    expect(requested).toBe(1);
  });

  it('is requested at most ten times per second', async () => {
    for (let n = 0; n < 25; n++) await burst(n === 0 ? 10 : 1, 40);
    expect(requested).toBeGreaterThan(5);
    expect(requested).toBeLessThanOrEqual(11);
  });
});
