import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Broker } from '../../../src/broker/broker.ts';
import type { BrokerSpec } from '../../../src/broker/broker-spec.ts';
import { Brokers } from '../../../src/broker/brokers.ts';
import { StrictBroker } from './strict-broker.ts';

let server: StrictBroker;
let port: number;
let brokers: Broker[];

beforeEach(async () => {
  server = new StrictBroker({ maximumPacketSize: 2_000 });
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

describe('message published to an MQTT broker', () => {
  it('is sent once the broker is connected, with its retain flag', async () => {
    const one = brokerOf();
    one.start();
    await one.publish('site/alarms', '{"a":1}', { retain: true });
    expect(server.published).toEqual([{ topic: 'site/alarms', payload: '{"a":1}', retain: true }]);
  });

  it('fails with a retryable error if the broker is not connected or the connection ends', async () => {
    await server.stop();
    const away = brokerOf();
    away.start();
    await expect(away.publish('t', 'x')).rejects.toMatchObject({ code: 'broker.away', retryable: true });
    server = new StrictBroker();
    server.unanswered.add('publish');
    const one = brokerOf({}, await server.start());
    one.start();
    const sending = one.publish('t', 'x');
    sending.catch(() => {});
    await vi.waitUntil(() => server.heldPublishes.length === 1, { timeout: 20_000 });
    server.cut();
    await expect(sending).rejects.toMatchObject({ code: 'broker.publish', retryable: true });
  });

  it('is not sent if `beforeSend` throws', async () => {
    const one = brokerOf();
    one.start();
    const beforeSend = () => {
      throw new Error(`connected: ${one.state().connected}`);
    };
    await expect(one.publish('t', 'x', { beforeSend })).rejects.toThrow('connected: true');
    await one.publish('t', 'y');
    expect(server.published.map(({ payload }) => payload)).toEqual(['y']);
  });

  it("is rejected if it exceeds the broker's packet limit or has an invalid topic, and the connection stays open", async () => {
    const one = brokerOf();
    one.start();
    const tooLarge = one.publish('t', Buffer.alloc(2_000));
    await expect(tooLarge).rejects.toMatchObject({ code: 'broker.too_large', retryable: false });
    await expect(one.publish('a/#', 'x')).rejects.toMatchObject({ code: 'broker.topic', retryable: false });
    await one.publish('t', Buffer.alloc(1_900));
    expect(one.state()).toMatchObject({ connected: true, failures: 0 });
  });

  it('is rejected if tags.yaml does not contain the broker', async () => {
    const all = new Brokers({ clientId: () => 'gw', clock: systemClock, logger: silentLogger() });
    await expect(all.publish('none', 't', 'x')).rejects.toMatchObject({ code: 'broker.unknown' });
  });

  it('without a response counts towards the receive maximum until the broker acknowledges it', async () => {
    const slow = new StrictBroker({ receiveMaximum: 2 });
    slow.unanswered.add('publish');
    try {
      const one = brokerOf({}, await slow.start());
      one.start();
      await vi.waitUntil(() => one.state().connected, { timeout: 20_000 });
      const given = new AbortController();
      const left = [1, 2].map((n) => one.publish('a', `${n}`, { signal: given.signal }));
      await vi.waitUntil(() => slow.heldPublishes.length === 2);
      given.abort();
      await Promise.allSettled(left);
      // Both are still unacknowledged, although their callers are no longer waiting.
      const third = one.publish('a', '3');
      const withdrawn = new AbortController();
      const fourth = one.publish('a', '4', { signal: withdrawn.signal });
      withdrawn.abort();
      await expect(fourth).rejects.toThrow();
      expect(slow.heldPublishes.length).toBe(2);
      slow.unanswered.clear();
      slow.confirmHeld();
      await third;
      await Promise.all([5, 6, 7, 8].map((n) => one.publish('a', `${n}`)));
      expect([slow.wrong, one.state().failures]).toEqual([[], 0]);
    } finally {
      await Promise.all(brokers.map((one) => one.stop(0)));
      await slow.stop();
    }
  });
});

describe('broker address', () => {
  it('never exposes its password in errors or status', async () => {
    const url = 'http://user:geheim@127.0.0.1';
    expect(() => brokerOf({ url })).toThrow(expect.objectContaining({ code: 'broker.address' }));
    expect(() => brokerOf({ url })).not.toThrow('geheim');
    const one = brokerOf({ url: `mqtt://user:ge%20heim@127.0.0.1:${port}` });
    one.start();
    await vi.waitUntil(() => one.state().connected, { timeout: 20_000 });
    expect(JSON.stringify(one.state())).not.toContain('heim');
  });
});
