import { connect, type MqttClient } from 'mqtt';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { TagferryError } from '../../../src/base/errors.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Broker } from '../../../src/broker/broker.ts';
import type { BrokerSpec } from '../../../src/broker/broker-spec.ts';
import { Brokers } from '../../../src/broker/brokers.ts';
import { createPerformer } from '../../../src/reactions/actions.ts';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';
import { factsOf } from '../../unit/reactions/parts/facts.ts';

const SPEC = { version: 5, qos: 1, sessionExpiryMs: 60_000 } as const;

/** Mosquitto from Debian's package, which these tests require. */
let server: Mosquitto;
let brokers: Broker[];
let clients: MqttClient[];

const startMosquitto = () => server.start(`persistence true\npersistence_location ${server.folder}/`);

function broker(more: { clientId?: string; url?: string; spec?: Partial<BrokerSpec> } = {}): Broker {
  const made = new Broker({
    name: 'plant',
    spec: { ...SPEC, url: more.url ?? `mqtt://127.0.0.1:${server.port}`, ...more.spec },
    clientId: more.clientId ?? 'tagferry-test',
    clock: systemClock,
    logger: silentLogger(),
  });
  brokers.push(made);
  return made;
}

/** Another client of the broker. */
async function stranger(): Promise<MqttClient> {
  const client = connect(`mqtt://127.0.0.1:${server.port}`, { reconnectPeriod: 200 });
  clients.push(client);
  await new Promise<void>((resolve) => client.once('connect', () => resolve()));
  return client;
}

function nextMessage(client: MqttClient): Promise<{ topic: string; payload: string; retain: boolean }> {
  return new Promise((resolve) =>
    client.once('message', (topic, payload, packet) =>
      resolve({ topic, payload: String(payload), retain: packet.retain }),
    ),
  );
}

const connected = (one: Broker) => vi.waitUntil(() => one.state().connected, { timeout: 20_000, interval: 10 });
const texts = (messages: { payload: Uint8Array }[]) => messages.map((one) => Buffer.from(one.payload).toString());

beforeEach(async () => {
  server = await Mosquitto.make();
  brokers = [];
  clients = [];
  await startMosquitto();
});

afterEach(async () => {
  for (const client of clients) client.end(true);
  await Promise.all(brokers.map((one) => one.stop(0)));
  await server.dispose();
});

describe('broker subscription', () => {
  it('acknowledges a message only after its handler resolves', async () => {
    const got: { payload: Uint8Array; topic: string }[] = [];
    const release: (() => void)[] = [];
    const one = broker();
    one.subscribe('site/+/temp', (message) => {
      got.push(message);
      return new Promise((resolve) => release.push(resolve));
    });
    one.start();
    await connected(one);
    const other = await stranger();
    await vi.waitUntil(async () => {
      await other.publishAsync('site/a/temp', 'ready', { qos: 1 });
      return got.length > 0;
    });
    await other.publishAsync('site/a/temp', '1', { qos: 1 });
    await other.publishAsync('site/b/temp', '2', { qos: 1 });
    await other.publishAsync('site/b/pressure', '3', { qos: 1 });
    // Handlers run concurrently.
    await vi.waitUntil(() => texts(got).includes('2'));
    expect(texts(got)).not.toContain('3');
    // Nothing was acknowledged, so everything is redelivered.
    await one.stop(0);
    const again: { payload: Uint8Array; redelivered: boolean }[] = [];
    const next = broker();
    next.subscribe('site/+/temp', async (message) => {
      again.push(message);
    });
    next.start();
    await vi.waitUntil(() => texts(again).includes('2'));
    expect(texts(again)).toContain('1');
    await next.stop();
    // Everything is acknowledged, so a third connection receives only new messages.
    const last: { payload: Uint8Array }[] = [];
    const third = broker();
    third.subscribe('site/+/temp', async (message) => {
      last.push(message);
    });
    third.start();
    await connected(third);
    await other.publishAsync('site/a/temp', 'new', { qos: 1 });
    await vi.waitUntil(() => last.length > 0);
    expect(texts(last)).toEqual(['new']);
  });

  it('acknowledges messages in arrival order, even if handlers for later messages are faster', async () => {
    const got: string[] = [];
    let finishFirst = () => {};
    const one = broker();
    one.subscribe('t', (message) => {
      const text = Buffer.from(message.payload).toString();
      got.push(text);
      return text === '1' ? new Promise<void>((resolve) => (finishFirst = resolve)) : Promise.resolve();
    });
    one.start();
    await connected(one);
    const other = await stranger();
    await vi.waitUntil(async () => {
      await other.publishAsync('t', 'ready', { qos: 1 });
      return got.length > 0;
    });
    for (const text of ['1', '2', '3']) await other.publishAsync('t', text, { qos: 1 });
    await vi.waitUntil(() => got.includes('3'));
    await one.stop(0);
    finishFirst();
    const again: string[] = [];
    const next = broker();
    next.subscribe('t', async (message) => {
      again.push(Buffer.from(message.payload).toString());
    });
    next.start();
    await vi.waitUntil(() => again.includes('3'));
    expect(again).toEqual(['1', '2', '3']);
  });

  it('resumes after a broker crash, and receives messages published in the meantime', async () => {
    const got: string[] = [];
    const one = broker();
    one.subscribe('t', async (message) => {
      got.push(Buffer.from(message.payload).toString());
    });
    one.start();
    await connected(one);
    const other = await stranger();
    await vi.waitUntil(async () => {
      await other.publishAsync('t', 'before', { qos: 1 });
      return got.length > 0;
    });
    await server.stop();
    await vi.waitUntil(() => !one.state().connected);
    expect(one.state().problem).toBeDefined();
    await startMosquitto();
    await connected(one);
    await vi.waitUntil(async () => {
      await other.publishAsync('t', 'after', { qos: 1 }).catch(() => {});
      return got.includes('after');
    });
  });

  it('ignores repeated retained messages after a reconnect, and unsubscribes from unused filters', async () => {
    const other = await stranger();
    await other.publishAsync('t', 'retained', { qos: 1, retain: true });
    const got: string[] = [];
    const one = broker();
    const leave = one.subscribe('t', async (message) => {
      got.push(Buffer.from(message.payload).toString());
    });
    one.start();
    await vi.waitUntil(() => got.length === 1);
    leave();
    const kept: string[] = [];
    one.subscribe('u', async (message) => {
      kept.push(Buffer.from(message.payload).toString());
    });
    await vi.waitUntil(async () => {
      await other.publishAsync('u', 'u', { qos: 1 });
      return kept.length > 0;
    });
    await other.publishAsync('t', 'unwanted', { qos: 1 });
    expect(got).toEqual(['retained']);
  });
});

describe('broker publishing', () => {
  it('resolves once the broker has received the message, and sets the retain flag on request', async () => {
    const one = broker();
    one.start();
    // Waits for the connection.
    await one.publish('site/alarms', '{"a":1}', { retain: true });
    const other = await stranger();
    const arrived = nextMessage(other);
    await other.subscribeAsync('site/alarms', { qos: 1 });
    const { topic, payload, retain } = await arrived;
    expect([topic, payload, retain]).toEqual(['site/alarms', '{"a":1}', true]);
    expect(one.state()).toMatchObject({ connected: true, published: 1 });
  });

  it('fails with a retryable error if the broker does not respond or disconnects', async () => {
    await server.stop();
    const one = broker();
    one.start();
    await expect(one.publish('t', 'x')).rejects.toMatchObject({ code: 'broker.away', retryable: true });
    await startMosquitto();
    await connected(one);
    server.signal('SIGSTOP');
    const sending = one.publish('t', 'x');
    sending.catch(() => {});
    server.signal('SIGKILL');
    await expect(sending).rejects.toMatchObject({ code: 'broker.publish', retryable: true });
    await expect(one.publish('a/#', 'x')).rejects.toMatchObject({ code: 'broker.topic', retryable: false });
  });

  it('sends nothing if `beforeSend` throws once the broker is connected', async () => {
    const one = broker();
    let isConnected: boolean | undefined;
    const sending = one.publish('t', 'x', {
      beforeSend: () => {
        isConnected = one.state().connected;
        throw new TagferryError('too late', { code: 'late' });
      },
    });
    one.start();
    await expect(sending).rejects.toMatchObject({ code: 'late' });
    expect([isConnected, one.state().published]).toEqual([true, 0]);
  });

  it("rejects a message that exceeds the broker's packet limit, and keeps the connection open", async () => {
    await server.stop();
    await server.start('max_packet_size 2000');
    const one = broker();
    one.start();
    await connected(one);
    await one.publish('t', Buffer.alloc(1_900));
    await expect(one.publish('t', Buffer.alloc(2_000))).rejects.toMatchObject({
      code: 'broker.too_large',
      retryable: false,
    });
    await one.publish('t', Buffer.alloc(1_900));
    expect(one.state()).toMatchObject({ connected: true, failures: 0, published: 2 });
  });

  it('sends reaction events to the expanded topic', async () => {
    const all = new Brokers({
      clientId: (name) => `tagferry-${name}`,
      clock: systemClock,
      logger: silentLogger(),
    });
    expect(
      await all.set([
        {
          name: 'plant',
          spec: { url: `mqtt://127.0.0.1:${server.port}`, version: 5, qos: 1, sessionExpiryMs: 60_000 },
        },
      ]),
    ).toEqual(['plant']);
    brokers.push(all.get('plant')!);
    all.start();
    const other = await stranger();
    await other.subscribeAsync('site/#', { qos: 1 });
    const arrived = nextMessage(other);
    const perform = createPerformer({
      clock: systemClock,
      logger: silentLogger(),
      instance: 'test',
      publish: (name, topic, payload, options) => all.publish(name, topic, payload, options),
      write: async () => ({ outcome: 'failed', detail: '' }),
    });
    const context = {
      reaction: 'r',
      event: factsOf('threshold_reached'),
      position: [0, 0] as const,
      reasonAgainstWrite: () => undefined,
      signal: new AbortController().signal,
    };
    const topic = 'site/{{content.instrumentation.tag}}/alarm';
    const publish = { kind: 'publish', broker: 'plant', topic, retain: false } as const;
    expect(await perform(publish, context)).toEqual({ outcome: 'done', detail: 'site/FT-101/alarm' });
    const { topic: on, payload } = await arrived;
    expect([on, payload]).toEqual(['site/FT-101/alarm', context.event.payload]);
    expect(await perform({ ...publish, broker: 'none' }, context)).toMatchObject({ outcome: 'failed' });
    // A reload keeps an unchanged broker.
    expect(
      await all.set([
        {
          name: 'plant',
          spec: { url: `mqtt://127.0.0.1:${server.port}`, version: 5, qos: 1, sessionExpiryMs: 60_000 },
        },
      ]),
    ).toEqual([]);
    await all.set([]);
    expect(all.get('plant')).toBeUndefined();
  });
});

describe('broker address', () => {
  it('never exposes its password in errors or status', async () => {
    expect(() => broker({ url: 'http://user:geheim@127.0.0.1' })).toThrow('invalid address');
    try {
      broker({ url: 'http://user:geheim@127.0.0.1' });
    } catch (error) {
      expect(JSON.stringify(error) + String(error)).not.toContain('geheim');
    }
    const one = broker({ url: `mqtt://user:ge%20heim@127.0.0.1:${server.port}` });
    one.start();
    await connected(one);
    expect(JSON.stringify(one.state())).not.toContain('heim');
  });
});
