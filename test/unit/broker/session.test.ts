import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Broker } from '../../../src/broker/broker.ts';
import type { BrokerSpec } from '../../../src/broker/broker-spec.ts';
import { Brokers } from '../../../src/broker/brokers.ts';
import { UNSHAPED } from '../../../src/config/tags.ts';
import { MQTT } from '../../../src/sources/mqtt/mqtt-kind.ts';
import { Shared, type SourceKind } from '../../../src/sources/source-kind.ts';
import { testSource } from '../../../src/sources/source-test.ts';
import { StrictBroker } from './strict-broker.ts';

/** Clock that is faster than the time of the test. */
const FASTER = 20;
const FAST: Clock = {
  ...systemClock,
  monotonicMs: () => systemClock.monotonicMs() * FASTER,
  after: (ms, run) => systemClock.after(ms / FASTER, run),
  sleep: (ms, signal) => systemClock.sleep(ms / FASTER, signal),
};

let server: StrictBroker;
let port: number;
let brokers: Broker[];

beforeEach(async () => {
  server = new StrictBroker();
  port = await server.start();
  brokers = [];
  conflicts = 0;
});
afterEach(async () => {
  await Promise.all(brokers.map((one) => one.stop(0)));
  await server.stop();
});

/** Number of reports that another client uses the client ID. */
let conflicts: number;

function brokerOf(spec: Partial<BrokerSpec> = {}, at = port, clock: Clock = systemClock): Broker {
  const made = new Broker({
    name: 'plant',
    spec: { url: `mqtt://127.0.0.1:${at}`, version: 5, qos: 1, sessionExpiryMs: 60_000, ...spec },
    clientId: 'gw',
    clock,
    logger: silentLogger(),
    nameTaken: () => conflicts++,
  });
  brokers.push(made);
  return made;
}

/** Subscribes, and acknowledges messages only when `confirm` is called. */
function taker(broker: Broker, filter: string) {
  const got: string[] = [];
  const waiting: (() => void)[] = [];
  const leave = broker.subscribe([filter], ({ payload }) => {
    got.push(Buffer.from(payload).toString());
    return new Promise((resolve) => waiting.push(resolve));
  });
  const confirm = () => {
    for (const resolve of waiting.splice(0)) resolve();
  };
  return { got, confirm, leave };
}

describe('broker session', () => {
  it('keeps its subscriptions across a restart, and removes only those that are no longer wanted', async () => {
    const first = brokerOf();
    for (const topic of ['a', 'b', 'c']) first.subscribe([topic], async () => {});
    let held: string[] = [];
    first.resume([], (filters) => {
      held = [...filters];
    });
    first.start();
    await vi.waitUntil(() => held.length === 3);
    await first.stop();
    expect(server.filters).toEqual(['a', 'b', 'c']);
    const second = brokerOf();
    second.resume(held, () => {});
    for (const topic of ['b', 'c', 'd']) second.subscribe([topic], async () => {});
    second.start();
    await vi.waitUntil(() => server.filters.join('') === 'bcd');
    // The broker sends retained messages only for new subscriptions.
    expect(server.asked).toEqual(['+a', '+b', '+c', '+b', '+c', '+d', '-a']);
  });

  it('has all filters again after the broker restored an older session', async () => {
    const one = brokerOf();
    one.subscribe(['a', 'b'], async () => {});
    one.start();
    await vi.waitUntil(() => server.filters.length === 2);
    server.restore(['a']);
    await vi.waitUntil(() => server.filters.length === 2, { timeout: 20_000 });
    expect([server.filters, server.connections]).toEqual([['a', 'b'], 2]);
  });

  it('receives a retained message once per subscription, even after a reconnect', async () => {
    server.publish('a', 'retained', { qos: 1, retain: true });
    const one = brokerOf();
    const { got, confirm } = taker(one, 'a');
    one.start();
    await vi.waitUntil(() => got.length === 1);
    confirm();
    await vi.waitUntil(() => server.pending === 0);
    server.cut();
    await vi.waitUntil(() => server.asked.length === 2, { timeout: 20_000 });
    server.publish('a', 'new');
    await vi.waitUntil(() => got.length > 1);
    expect(got).toEqual(['retained', 'new']);
    confirm();
  });

  it('is unchanged if a subscription is replaced by an identical one in the same event loop turn', async () => {
    const one = brokerOf();
    const { leave } = taker(one, 'a');
    one.start();
    await vi.waitUntil(() => server.filters.length === 1);
    const next = taker(one, 'a');
    leave();
    server.publish('a', '1');
    await vi.waitUntil(() => next.got.length === 1);
    expect(server.asked).toEqual(['+a']);
    next.confirm();
    await vi.waitUntil(() => server.pending === 0);
  });

  it('delivers unacknowledged messages of a lost connection again, and acknowledges them after they are stored', async () => {
    const one = brokerOf();
    const { got, confirm } = taker(one, 'a');
    one.start();
    await vi.waitUntil(() => server.filters.length === 1);
    for (let n = 0; n < 20; n++) server.publish('a', `${n}`);
    await vi.waitUntil(() => got.length === 20);
    server.cut();
    await vi.waitUntil(() => got.length === 40, { timeout: 20_000 });
    expect([server.pending, one.state().redelivered]).toEqual([20, 20]);
    confirm();
    await vi.waitUntil(() => server.pending === 0);
    expect([got.slice(20), server.wrong]).toEqual([got.slice(0, 20), []]);
  });

  it('delivers messages again that their handler rejected, in order of arrival and before later ones', async () => {
    const one = brokerOf();
    let isStopped = true;
    const got: string[] = [];
    one.subscribe(['a', 'b'], async ({ payload }) => {
      if (isStopped) throw new Error('not yet');
      got.push(Buffer.from(payload).toString());
    });
    one.start();
    await vi.waitUntil(() => server.filters.length === 2);
    for (let n = 0; n < 5; n++) server.publish('a', `${n}`);
    await vi.waitUntil(() => one.state().received === 5);
    isStopped = false;
    server.publish('b', 'other topic');
    for (let n = 5; n < 10; n++) server.publish('a', `${n}`);
    await vi.waitUntil(() => server.pending === 0, { timeout: 20_000 });
    expect([got, server.wrong]).toEqual([['other topic', ...Array.from({ length: 10 }, (_, n) => `${n}`)], []]);
  });

  it('acknowledges messages that are stored immediately before it ends', async () => {
    const one = brokerOf();
    const { got, confirm } = taker(one, 'a');
    one.start();
    await vi.waitUntil(() => server.filters.length === 1);
    for (let n = 0; n < 3; n++) server.publish('a', `${n}`);
    await vi.waitUntil(() => got.length === 3);
    confirm();
    await new Promise((resolve) => process.nextTick(resolve));
    await one.stop(0);
    await vi.waitUntil(() => server.connected === 0);
    expect([server.pending, server.wrong]).toEqual([0, []]);
  });

  it('reads no further messages while a subscriber is full', async () => {
    const one = brokerOf();
    let isFull = false;
    const got: number[] = [];
    const handler = async () => {
      isFull = got.push(got.length) >= 10;
    };
    one.subscribe(['a'], handler, { qos: 0, isFull: () => isFull });
    one.start();
    await vi.waitUntil(() => server.filters.length === 1);
    const text = 'x'.repeat(1_000_000);
    for (let n = 0; n < 30; n++) server.publish('a', text);
    await vi.waitUntil(() => got.length >= 10);
    // What is in the buffers of the sockets may still arrive, but not everything.
    await vi.waitUntil(() => isFull);
    expect(got.length).toBeLessThan(30);
    const before = got.length;
    isFull = false;
    await vi.waitUntil(() => got.length > before);
  });

  it('acknowledges messages without a subscriber immediately, so that later messages are not blocked', async () => {
    const one = brokerOf();
    const { got, confirm, leave } = taker(one, 'a/#');
    one.start();
    await vi.waitUntil(() => server.filters.length === 1);
    await one.stop();
    leave();
    for (let n = 0; n < 30; n++) server.publish('a/b', `${n}`);
    const second = brokerOf();
    const { got: wanted } = taker(second, 'c');
    second.start();
    await vi.waitUntil(() => server.filters.includes('c'));
    server.publish('c', 'wanted');
    await vi.waitUntil(() => wanted.length === 1 && server.confirmed >= 30);
    expect([got, server.wrong]).toEqual([[], []]);
    confirm();
  });
});

describe('MQTT client', () => {
  it('keeps using version 5 after an attempt without a response', async () => {
    server.hangsUp = true;
    const one = brokerOf();
    one.start();
    await vi.waitUntil(() => server.versions.length === 2, { timeout: 20_000 });
    server.hangsUp = false;
    await vi.waitUntil(() => one.state().connected, { timeout: 20_000 });
    expect(new Set(server.versions)).toEqual(new Set([5]));
  });

  it('closes a connection on which a subscription has no response, and subscribes on the next one', async () => {
    server.unanswered.add('subscribe');
    const one = brokerOf({}, port, FAST);
    const { got, confirm } = taker(one, 'a');
    one.start();
    await vi.waitUntil(() => one.state().problem === 'broker.silent', { timeout: 20_000 });
    server.unanswered.clear();
    await vi.waitUntil(() => server.filters.length === 1, { timeout: 20_000 });
    server.publish('a', '1');
    await vi.waitUntil(() => got.length === 1);
    confirm();
  });

  it('falls back to 3.1.1 for one connection if the broker rejects version 5', async () => {
    const old = new StrictBroker({ speaks: [4] });
    try {
      const one = brokerOf({}, await old.start());
      const { got, confirm } = taker(one, '+');
      one.start();
      await vi.waitUntil(() => old.filters.length === 1, { timeout: 20_000 });
      old.publish('a', '1', { qos: 2 });
      await vi.waitUntil(() => got.length === 1);
      confirm();
      await vi.waitUntil(() => old.pending === 0);
      old.speaks = [4, 5];
      old.cut();
      await vi.waitUntil(() => old.versions.length === 3 && old.connected === 1, { timeout: 20_000 });
      expect([old.versions, old.wrong]).toEqual([[5, 4, 5], []]);
    } finally {
      await Promise.all(brokers.map((one) => one.stop(0)));
      await old.stop();
    }
  });

  it.each([0, 1, 2] as const)('delivers QoS %i messages', async (qos) => {
    const one = brokerOf();
    const got: string[] = [];
    one.subscribe(
      ['a'],
      async ({ payload }) => {
        got.push(Buffer.from(payload).toString());
      },
      { qos },
    );
    one.start();
    await vi.waitUntil(() => server.filters.length === 1);
    for (let n = 0; n < 50; n++) server.publish('a', `${n}`, { qos: 2 });
    await vi.waitUntil(() => got.length === 50);
    await vi.waitUntil(() => server.pending === 0);
    expect([got.map(Number), server.wrong]).toEqual([Array.from({ length: 50 }, (_, n) => n), []]);
  });
});

describe('WebSocket broker', () => {
  it.each([
    ['that refuses connections', 'ws', undefined, 'ECONNREFUSED'],
    ['that is not an HTTP server', 'ws', 'no HTTP\r\n\r\n', undefined],
    ['that responds 404', 'ws', 'HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno', undefined],
    ['that does not speak TLS', 'wss', 'no TLS\r\n\r\n', undefined],
  ] as const)('%s is retried and reported', async (_, protocol, response, problem) => {
    const away = createServer((socket) => socket.on('error', () => {}).end(response ?? ''));
    away.listen(0, '127.0.0.1');
    await once(away, 'listening');
    const at = (away.address() as AddressInfo).port;
    if (response === undefined) away.close();
    const one = brokerOf({ url: `${protocol}://127.0.0.1:${at}/mqtt` });
    one.start();
    await vi.waitUntil(() => one.state().failures > 1, { timeout: 20_000 });
    expect(one.state().problem).toEqual(problem ?? expect.any(String));
    away.close();
  });
});

describe('two MQTT clients with one client ID', () => {
  it('report a conflict if the broker closes their connections without a reason', async () => {
    for (let n = 0; n < 2; n++) {
      const one = brokerOf({}, port, FAST);
      taker(one, 'a');
      one.start();
    }
    await vi.waitUntil(() => conflicts > 1, { timeout: 20_000 });
    expect(server.wrong).toEqual([]);
  });
});

describe('broker inspection by sources test', () => {
  it("shows stored and new messages without using the agent's session", async () => {
    const one = brokerOf();
    const { got, confirm } = taker(one, 'a');
    one.start();
    await vi.waitUntil(() => server.filters.length === 1);
    server.publish('a', '{"v":7,"q":"bad"}', { retain: true });
    await vi.waitUntil(() => got.length === 1);
    let series = 0;
    const pointOf = (topic: string, at: string) => ({
      name: `${topic} ${at}`,
      series: ++series,
      everyMs: 0,
      shaping: UNSHAPED,
      spec: { topic, template: topic, at, status: '/q' },
    });
    const offline = pointOf('c', '/v');
    const points = [
      pointOf('a', '/v'),
      pointOf('a', '/x'),
      pointOf('b', '/v'),
      { ...offline, spec: { ...offline.spec, availability: { topic: 'c/state' } } },
    ];
    server.publish('c/state', 'offline', { retain: true });
    const source = { kind: 'mqtt', name: 'plant', everyMs: 0, timeFrom: 'source' } as const;
    const spec: BrokerSpec = {
      url: `mqtt://127.0.0.1:${port}`,
      version: 5,
      qos: 1,
      sessionExpiryMs: 60_000,
      retained: 'take',
    };
    const shared = new Brokers({ clientId: () => 'gw', clock: systemClock, logger: silentLogger() });
    await shared.set([{ name: 'plant', spec }]);
    const context = {
      source: { ...source, spec },
      points,
      intake: { draft: () => expect.fail() },
      instance: 'test',
      stateDir: '/nowhere',
      brokers: await shared.inspection('plant'),
      shared: new Shared(),
      clock: systemClock,
    };
    const tested = await testSource(MQTT as SourceKind, context, 1_000, new AbortController().signal);
    expect(tested).toMatchObject([
      { tag: 'a', key: '/v', raw: 7, value: 7, quality: 'bad' },
      { tag: 'a', key: '/x', raw: null, problem: 'no value at /x' },
      { tag: 'b', key: '/v', raw: null, problem: 'no message within 1 s' },
      { tag: 'c', key: '/v', raw: null, problem: 'device unavailable according to c/state' },
    ]);
    expect([got.length, one.state().connected]).toEqual([1, true]);
    confirm();
  });
});
