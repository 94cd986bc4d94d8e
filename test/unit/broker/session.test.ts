import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { SourceStopped, StoreError } from '../../../src/base/errors.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Broker } from '../../../src/broker/broker.ts';
import type { BrokerSpec } from '../../../src/broker/broker-spec.ts';
import { Brokers } from '../../../src/broker/brokers.ts';
import { covers, MQTT_TOPICS } from '../../../src/broker/topic-filters.ts';
import { fasterClock } from '../doubles/faster-clock.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { StrictBroker } from './strict-broker.ts';

const FAST = fasterClock(20);

let server: StrictBroker;
let port: number;
let brokers: Broker[];

beforeEach(async () => {
  server = new StrictBroker();
  port = await server.start();
  brokers = [];
  lines = [];
  conflicts = 0;
});
afterEach(async () => {
  await Promise.all(brokers.map((one) => one.stop(0)));
  await server.stop();
});

/** Warnings and errors of `log`. */
let lines: Record<string, unknown>[];
const log = pino({ base: null, level: 'warn' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
/** Number of reports that another client uses the client ID. */
let conflicts: number;

function brokerOf(spec: Partial<BrokerSpec> = {}, at = port, clock: Clock = systemClock): Broker {
  const made = new Broker({
    name: 'plant',
    spec: { url: `mqtt://127.0.0.1:${at}`, version: 5, qos: 1, sessionExpiryMs: 60_000, ...spec },
    clientId: 'gw',
    clock,
    logger: log,
    nameTaken: () => conflicts++,
  });
  brokers.push(made);
  return made;
}

/** Subscribes, rejects messages with `errors`, and acknowledges the other messages only when `confirm` is called. */
function taker(broker: Broker, filter: string, errors: Error[] = [], stalled?: () => void) {
  const got: string[] = [];
  const waiting: (() => void)[] = [];
  const handler = async ({ topic, payload }: { topic: string; payload: Uint8Array }) => {
    if (!covers(filter, topic, MQTT_TOPICS)) return;
    const error = errors.shift();
    if (error) throw error;
    got.push(Buffer.from(payload).toString());
    await new Promise<void>((resolve) => waiting.push(resolve));
  };
  const leave = broker.subscribe([filter], handler, stalled ? { stalled } : {});
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

  it('is recorded if the broker closes connections before all filters are requested', async () => {
    server.closesOn.add('forbidden');
    const one = brokerOf({}, port, FAST);
    let held: string[] = [];
    one.resume([], (filters) => {
      held = [...filters];
    });
    one.subscribe(['a', 'forbidden'], async () => {});
    one.start();
    await vi.waitUntil(() => held.length > 0, { timeout: 20_000 });
    expect(held).toEqual(['a']);
  });

  it('ends without a response to each of its filters', async () => {
    const topics = Array.from({ length: 20 }, (_, at) => `silent/${at}`);
    for (const topic of topics) server.silentOn.add(topic);
    const one = brokerOf({}, port, FAST);
    one.subscribe(topics, async () => {});
    one.start();
    const requested = () => lines.filter(({ event }) => event === 'broker.not_allowed').length;
    await vi.waitUntil(() => requested() > 0, { timeout: 20_000 });
    await one.leave();
    expect(requested()).toBeLessThan(topics.length / 2);
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

  it('receives a retained message again when a subscriber uses retained messages for the first time', async () => {
    server.publish('a', 'retained', { qos: 1, retain: true });
    const one = brokerOf();
    const got: string[] = [];
    const take = (wantsRetained: boolean) =>
      one.subscribe(['a'], async ({ payload }) => void got.push(String(payload)), { wantsRetained });
    let leave = take(false);
    one.start();
    await vi.waitUntil(() => got.length === 1);
    for (const expected of [2, 3]) {
      const leaveBefore = leave;
      leave = take(true);
      leaveBefore();
      server.publish('a', 'new');
      await vi.waitUntil(() => got.length > expected);
    }
    expect(got.sort()).toEqual(['new', 'new', 'retained', 'retained']);
    expect(server.asked).toEqual(['+a', '+a']);
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
    await vi.waitUntil(() => one.state().problem === 'the broker does not respond', { timeout: 20_000 });
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
});

describe('WebSocket broker', () => {
  it.each([
    ['that refuses connections', 'ws', undefined, 'ECONNREFUSED'],
    ['that is not an HTTP server', 'ws', 'no HTTP\r\n\r\n', undefined],
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
    expect(one.state().problem).toEqual(
      problem ? `failed to connect to 127.0.0.1 port ${at}: ${problem}` : expect.any(String),
    );
    away.close();
  });
});

describe('two MQTT clients with one client ID', () => {
  it('report the conflict with a hint', async () => {
    const [one, other] = [brokerOf(), brokerOf()];
    one.start();
    await vi.waitUntil(() => one.state().connected, { timeout: 20_000 });
    other.start();
    await vi.waitUntil(() => conflicts > 0, { timeout: 20_000 });
    expect(lines).toMatchObject([
      { event: 'broker.away', code: 'broker.name_taken', hint: expect.stringContaining('tagferry identity new') },
    ]);
  });

  it('report the client ID if the broker gives no reason, as with MQTT 3.1.1', async () => {
    const [one, other] = [brokerOf({ version: 3 }), brokerOf({ version: 3 })];
    one.start();
    await vi.waitUntil(() => one.state().connected, { timeout: 20_000 });
    other.start();
    await vi.waitUntil(() => one.state().failures > 0, { timeout: 20_000 });
    expect(lines).toMatchObject([{ event: 'broker.away', hint: expect.stringContaining('client ID gw') }]);
  });
});

describe('MQTT log', () => {
  it('reports an unreachable broker with decreasing frequency', async () => {
    await server.stop();
    const one = brokerOf({}, port, FAST);
    one.start();
    await vi.waitUntil(() => one.state().failures >= 8, { timeout: 20_000 });
    expect(lines.slice(0, 4).map(({ event, count }) => [event, count])).toEqual(
      [1, 2, 4, 8].map((count) => ['broker.away', count]),
    );
    expect(lines[0]).toMatchObject({ code: 'ECONNREFUSED', error: expect.stringContaining('ECONNREFUSED') });
  });

  it('warns about a message that cannot be stored, unless the source has stopped', async () => {
    const one = brokerOf();
    const errors: Error[] = [new SourceStopped(), new StoreError('full', { code: 'store.full' })];
    const { got, confirm } = taker(one, 'a', errors);
    one.start();
    await vi.waitUntil(() => server.filters.length === 1);
    server.publish('a', '1');
    await vi.waitUntil(() => got.length === 1, { timeout: 20_000 });
    expect(lines).toMatchObject([{ event: 'broker.refused', code: 'store.full', count: 1 }]);
    confirm();
  });
});

describe('early commit for a broker', () => {
  let clock: ManualClock;
  let wide: StrictBroker;
  let source: ReturnType<typeof taker>;
  let requested: number;
  beforeEach(async () => {
    wide = new StrictBroker({ window: 100 });
    clock = new ManualClock();
    requested = 0;
    const one = brokerOf({}, await wide.start(), clock);
    source = taker(one, 'a', [], () => requested++);
    one.start();
    await vi.waitUntil(() => wide.filters.length === 1);
  });
  afterEach(async () => {
    await Promise.all(brokers.map((one) => one.stop(0)));
    await wide.stop();
  });

  /** Receives a burst of messages, then nothing for `quietMs`. */
  async function burst(messages: number, quietMs: number): Promise<void> {
    const before = source.got.length;
    for (let n = 0; n < messages; n++) wide.publish('a', '1');
    await vi.waitUntil(() => source.got.length === before + messages);
    await clock.advance(quietMs);
  }

  it('is requested if ten messages are unacknowledged and no message arrives for a moment', async () => {
    await burst(9, 1_000);
    expect(requested).toBe(0);
    await burst(1, 1_000);
    expect(requested).toBe(1);
    source.confirm();
    await vi.waitUntil(() => wide.pending === 0);
    await burst(9, 1_000);
    expect(requested).toBe(1);
  });

  it('is requested at most ten times per second', async () => {
    for (let n = 0; n < 25; n++) await burst(n === 0 ? 10 : 1, 40);
    expect(requested).toBeGreaterThan(5);
    expect(requested).toBeLessThanOrEqual(11);
  });
});

describe('MQTT keep-alive', () => {
  /** Silence after which a broker disconnects a client: 1.5 times the keep-alive (MQTT 5, 3.1.2.10). */
  const SILENCE_MS = 45_000;

  it.each([
    { what: 'a commit takes minutes', version: 5, count: 100, isFull: false },
    { what: 'the buffer is full', version: 5, count: 100, isFull: true },
    // A 3.1.1 broker may send more messages than the client reads.
    { what: 'reading is paused', version: 3, count: 5_000, isFull: false },
  ] as const)('continues while $what, and the connection stays open', async ({ version, count, isFull }) => {
    const wide = new StrictBroker({ window: 65_535 });
    const clock = new ManualClock();
    try {
      const one = brokerOf({ version }, await wide.start(), clock);
      const got: number[] = [];
      let isStored = false;
      const waiting: (() => void)[] = [];
      const handler = ({ payload }: { payload: Uint8Array }) => {
        got.push(Number(Buffer.from(payload).toString()));
        return isStored ? Promise.resolve() : new Promise<void>((resolve) => waiting.push(resolve));
      };
      one.subscribe(['a'], handler, { isFull: () => isFull && !isStored && waiting.length > 0 });
      one.start();
      await vi.waitUntil(() => wide.filters.length === 1, { timeout: 30_000 });
      for (let n = 0; n < count; n++) wide.publish('a', String(n));
      await vi.waitUntil(() => waiting.length > 0, { timeout: 30_000 });
      for (let passedMs = 0; passedMs < 5 * 60_000; passedMs += SILENCE_MS) {
        const before = wide.pings;
        await clock.advance(SILENCE_MS);
        await vi.waitUntil(() => wide.pings > before, { timeout: 30_000 });
      }
      expect([one.state().connected, one.state().failures, wide.confirmed]).toEqual([true, 0, 0]);
      isStored = true;
      for (const resolve of waiting) resolve();
      const isAcknowledged = async () => {
        await clock.advance(1_000);
        return wide.pending === 0;
      };
      await vi.waitUntil(isAcknowledged, { timeout: 40_000 });
      expect([got, wide.wrong]).toEqual([Array.from({ length: count }, (_, n) => n), []]);
    } finally {
      await Promise.all(brokers.map((one) => one.stop(0)));
      await wide.stop();
    }
  });
});

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
    const limited = new StrictBroker({ maximumPacketSize: 2_000 });
    const one = brokerOf({}, await limited.start());
    one.start();
    const tooLarge = one.publish('t', Buffer.alloc(2_000));
    await expect(tooLarge).rejects.toMatchObject({ code: 'broker.too_large', retryable: false });
    await expect(one.publish('a/#', 'x')).rejects.toMatchObject({ code: 'broker.topic', retryable: false });
    await one.publish('t', Buffer.alloc(1_900));
    expect(one.state()).toMatchObject({ connected: true, failures: 0 });
    await one.stop(0);
    await limited.stop();
  });

  it('is rejected if tags.yaml does not contain the broker', async () => {
    const all = new Brokers({ clientId: () => 'gw', clock: systemClock, logger: silentLogger() });
    await expect(all.publish('none', 't', 'x')).rejects.toMatchObject({ code: 'broker.unknown' });
  });

  it('without a response counts towards the receive maximum until its acknowledgement', async () => {
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
    const [one, away] = [port, 1].map((at) => brokerOf({ url: `mqtt://user:ge%20heim@127.0.0.1:${at}` }));
    one!.start();
    away!.start();
    await vi.waitUntil(() => one!.state().connected && away!.state().failures > 0, { timeout: 20_000 });
    expect(lines[0]).toMatchObject({ event: 'broker.away' });
    expect(JSON.stringify([one!.state(), away!.state(), lines])).not.toContain('heim');
  });
});
