// Requires: nats-server
import { setTimeout as pause } from 'node:timers/promises';
import { type JetStreamClient, type JetStreamManager, type JsMsg, jetstream } from '@nats-io/jetstream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { TagferryError } from '../../../src/base/errors.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { NatsBroker } from '../../../src/broker/nats/nats-broker.ts';
import { AgentProcess } from '../harness/agent-process.ts';
import { Published } from '../harness/mqtt-values.ts';
import { NatsServers } from '../harness/nats-servers.ts';
import { Platform } from '../harness/platform.ts';
import { runVerb } from '../harness/verb.ts';

const START_MS = 1_700_000_000_000;
const ASSET = 881;
const TOPICS = [0, 1];
const DURABLE = 'gateway';

let platform: Platform;
let servers: NatsServers;
let manager: JetStreamManager;
let stream: JetStreamClient;
let agent: AgentProcess;
const published = new Published();
/** Latest number without a time. */
let untimed = 0;

beforeAll(async () => {
  platform = await Platform.start();
  servers = await NatsServers.make();
  // Allows messages over the agent's limit.
  await servers.start('max_payload: 8MB');
  manager = await servers.manager();
  await manager.streams.add({ name: 'PLANT', subjects: ['site.>'] });
  stream = jetstream(await servers.connection(), { timeout: 2_000 });
  agent = new AgentProcess(platform.url, files());
  await agent.start();
});
afterAll(async () => {
  await agent?.dispose();
  await servers?.dispose();
  await platform?.stop();
});

// Long enough for a kill between a premature acknowledgement and its commit.
const ENV = { COMMIT_INTERVAL: '300ms', POST_INTERVAL: '100ms' };

function files(more = ''): { tags: string; env: Record<string, string> } {
  const values = TOPICS.map((topic) => `      k${topic}: { from: line, subject: site.t${topic}, at: /v, time: /t }\n`);
  const tags =
    `sources:\n  line: { nats: "${servers.url}", durable: ${DURABLE}, ack_wait: 1s }\n` +
    `tags:\n  T:\n    asset: ${ASSET}\n    values:\n${values.join('')}` +
    `      untimed: { from: line, subject: site.untimed }\n` +
    `      odd: { from: line, subject: site.odd, map: { ON: 1, "OFF": 0 }, no_value: -9999, range: [0, 900] }\n` +
    `      unset: { from: line, subject: site.unset, at: /v, time: /t }\n${more}`;
  return { tags, env: ENV };
}

/** Publishes the next number of a topic until the stream has it, once. */
async function say(topic: number): Promise<void> {
  const number = published.next(topic);
  const text = `{"v":${number},"t":${START_MS + Number(number)}}`;
  // With the same ID, the stream stores a message once, even if its confirmation was lost.
  const isStored = () =>
    stream.publish(`site.t${topic}`, text, { msgID: number }).then(
      () => true,
      () => false,
    );
  while (!(await isStored())) await pause(50);
}

/** Publishes to the topics until `stop`. */
function flow(): { stop(): Promise<unknown> } {
  let isRunning = true;
  const publish = async (topic: number) => {
    for (; isRunning; await pause(10)) await say(topic);
  };
  const done = Promise.all(TOPICS.map(publish));
  return {
    stop() {
      isRunning = false;
      return done;
    },
  };
}

const acknowledged = async () => (await manager.consumers.info('PLANT', DURABLE)).ack_floor.stream_seq;

/** Every published number arrives with its time, none with two times, and the consumer has nothing left. */
async function expectAll(): Promise<void> {
  await agent.until(() => published.compare(platform).missing.length === 0, 'all values arrive');
  expect(published.compare(platform)).toEqual({ missing: [], doubled: [], invented: [] });
  await agent.until(async () => {
    const { num_pending, num_ack_pending } = await manager.consumers.info('PLANT', DURABLE);
    return num_pending === 0 && num_ack_pending === 0;
  }, 'all messages are acknowledged');
}

describe('NATS source', () => {
  it('acknowledges no message before it is on disk, and delivers each value once across kill -9', async () => {
    const flowing = flow();
    await agent.until(() => published.compare(platform).missing.length < published.count, 'values arrive');
    for (let kill = 0; kill < 2; kill++) {
      const before = await acknowledged();
      await agent.until(async () => (await acknowledged()) > before, 'messages are acknowledged');
      await agent.end('SIGKILL');
      await agent.start();
    }
    await flowing.stop();
    await expectAll();
  });

  it('assigns the time at which the stream stored the message to a value without a time', async () => {
    const sent = new Map<number, number>();
    while (sent.size < 3) {
      const { seq } = await stream.publish('site.untimed', String(++untimed));
      const timeMs = (await manager.streams.getMessage('PLANT', { seq }))!.time.getTime();
      sent.set(untimed, timeMs);
      // Two messages of one millisecond would be one value on the platform.
      while (Date.now() <= timeMs) await pause(1);
    }
    const arrived = () => platform.stored(ASSET, 'untimed').filter(({ value }) => sent.has(value));
    await agent.until(() => arrived().length >= sent.size, 'the values arrive');
    expect(arrived().map(({ value, timestampMs }) => [value, timestampMs])).toEqual([...sent]);
  });

  it('reads padded numbers and mapped words, and rejects other text, codes and out-of-range values', async () => {
    const sent = ['\ufeff7\0\0', 'ON', '-9999', '21,5 kg', '0x1F', '1.234.567', '1e400', '901', 'OFF\0', '12.5'];
    for (const text of sent) await stream.publish('site.odd', text);
    const values = () => platform.stored(ASSET, 'odd').map(({ value }) => value);
    await agent.until(() => values().includes(12.5), 'the final value arrives');
    expect(values()).toEqual([7, 1, 0, 12.5]);
    expect((await runVerb(agent, 'sources', 'ls')).stdout).toMatch(/^line: \d+ rejected, latest: /m);
    expect(agent.logged('source.no_value')).toMatchObject([
      { value: 'T odd', error: '-9999 means "no value" (no_value)' },
    ]);
    expect(agent.logged('source.out_of_range')).toMatchObject([{ error: '901 is outside range [0, 900]' }]);
  });

  it('replaces an implausible timestamp with the stream timestamp of the message', async () => {
    const { seq } = await stream.publish('site.unset', '{"v":1,"t":8}');
    const timeMs = (await manager.streams.getMessage('PLANT', { seq }))!.time.getTime();
    await agent.until(() => platform.stored(ASSET, 'unset').length > 0, 'the value arrives');
    expect(platform.stored(ASSET, 'unset').map(({ timestampMs }) => timestampMs)).toEqual([timeMs]);
    const [{ error }] = agent.logged('source.time_replaced') as [{ error: string }];
    expect(error).toContain('T unset: timestamp 1970-01-01T00:00:00.008Z is before 2000-01-01');
  });

  it('acknowledges and reports a message without a number, and continues with the next one', async () => {
    const reports = agent.logged('nats.unreadable').length;
    await stream.publish('site.t0', 'garbage');
    await say(0);
    await expectAll();
    await agent.until(() => agent.logged('nats.unreadable').length > reports, 'the message is reported');
  });

  it('resumes after the server is killed, and loses no message of the stream', async () => {
    const flowing = flow();
    const before = await acknowledged();
    await agent.until(async () => (await acknowledged()) > before, 'messages are acknowledged');
    await servers.stop(0, 'SIGKILL');
    await agent.until(() => agent.logged('broker.away').length > 0, 'the agent reports the loss');
    servers.startOne(0, 'max_payload: 8MB');
    await servers.untilReady();
    await flowing.stop();
    await expectAll();
  });

  it('is tested with the latest and new messages, beside the running source and without a trace', async () => {
    await stream.publish('site.untimed', String(++untimed));
    const before = await agent.metric('tagferry_values_ingested_total');
    await agent.until(async () => (await agent.metric('tagferry_values_ingested_total')) >= before, 'it is stored');
    for (const topic of TOPICS) await say(topic);
    await expectAll();
    const info = async () => {
      const { delivered, num_redelivered } = await manager.consumers.info('PLANT', DURABLE);
      return [delivered, num_redelivered, (await manager.streams.info('PLANT')).state.consumer_count];
    };
    const unchanged = await info();
    const { stdout } = await runVerb(agent, 'sources', 'test', '--json', '--wait', '20s');
    const tested = JSON.parse(stdout) as {
      key: string;
      raw: number | null;
      timestamp: string;
      problem: string | null;
    }[];
    const latest = TOPICS.map((topic) => platform.stored(ASSET, `k${topic}`).at(-1)!.value);
    expect(tested.map(({ key, raw, problem }) => [key, raw, problem])).toEqual([
      ['k0', latest[0], null],
      ['k1', latest[1], null],
      ['untimed', untimed, null],
      ['odd', '12.5', null],
      ['unset', 1, null],
    ]);
    expect(Date.parse(tested[0]!.timestamp)).toBe(START_MS + latest[0]!);
    await agent.until(async () => (await info())[2] === unchanged[2], 'the consumer of the test is deleted');
    expect(await info()).toEqual(unchanged);
  });

  it('discards and reports a message over the size limit, and receives the messages around it', async () => {
    await say(0);
    await stream.publish('site.t0', new Uint8Array(4 * 1024 * 1024 + 1));
    await say(0);
    await expectAll();
    await agent.until(() => agent.logged('broker.discarded').length > 0, 'the message is reported');
    expect(agent.logged('broker.discarded')).toMatchObject([{ broker: 'line', topic: 'site.t0', bound: 'packet' }]);
  });

  it('widens the filter of its consumer when a reload adds a subject', async () => {
    agent.write(platform.url, files('      more: { from: line, subject: site.deep.more }\n'));
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length > 0, 'the reload is accepted');
    await stream.publish('site.deep.more', '7');
    await agent.until(() => platform.stored(ASSET, 'more').some(({ value }) => value === 7), 'the value arrives');
    expect((await manager.consumers.info('PLANT', DURABLE)).config.filter_subject).toBe('site.>');
  });

  it('shares messages with another agent of its consumer, and loses none when one of them is killed', async () => {
    const other = new AgentProcess(platform.url, files());
    try {
      await other.start();
      const flowing = flow();
      await agent.until(async () => (await other.metric('tagferry_values_ingested_total')) > 20, 'it receives values');
      await other.end('SIGKILL');
      await flowing.stop();
      await other.start();
      await expectAll();
    } finally {
      await other.dispose();
    }
  });
});

describe('NATS source with `ordered`', () => {
  it('stores unacknowledged messages before new ones after kill -9', async () => {
    const tags =
      `sources:\n  line: { nats: "${servers.url}", durable: sorted, ack_wait: 5s, ordered: true, time_from: arrival }\n` +
      `tags:\n  T:\n    asset: ${ASSET}\n    values:\n      sorted: { from: line, subject: site.sorted }\n`;
    const sorted = new AgentProcess(platform.url, { tags, env: ENV });
    let count = 0;
    const publish = async (messages: number) => {
      for (const end = count + messages; count < end; ) await stream.publish('site.sorted', String(++count));
    };
    const info = () => manager.consumers.info('PLANT', 'sorted');
    const firstArrivals = () => [...new Set(platform.stored(ASSET, 'sorted').map(({ value }) => value))];
    try {
      await sorted.start();
      await sorted.until(() => info().then(Boolean, () => false), 'the agent creates its consumer');
      await publish(10);
      await sorted.until(async () => (await info()).ack_floor.stream_seq > 0, 'messages are acknowledged');
      await publish(10);
      await sorted.until(async () => (await info()).num_ack_pending > 0, 'messages are delivered, not acknowledged');
      await sorted.end('SIGKILL');
      expect((await info()).num_ack_pending).toBeGreaterThan(0);
      await publish(10);
      await sorted.start();
      await sorted.until(() => firstArrivals().length === count, 'all values arrive');
      expect(firstArrivals()).toEqual(Array.from({ length: count }, (_, at) => at + 1));
    } finally {
      await sorted.dispose();
    }
  });
});

describe('NATS consumer with a full handler', () => {
  it('requests no more messages, and continues in order without redelivery', async () => {
    const spec = { servers: [servers.url], ackWaitMs: 60_000, ordered: false };
    const options = { name: 'line', spec, clientId: 'limited', clock: systemClock, logger: silentLogger() };
    const limited = new NatsBroker(options);
    const got: number[] = [];
    let isFull = true;
    limited.pull({
      stream: 'PLANT',
      durable: 'limited',
      ordered: false,
      subjects: ['site.limited'],
      isFull: () => isFull && got.length > 0,
      handler: async (message) => void got.push(Number(message.string())),
    });
    const info = () => manager.consumers.info('PLANT', 'limited');
    const sent = Array.from({ length: 1_000 }, (_, at) => at);
    for (const number of sent) await stream.publish('site.limited', String(number));
    try {
      limited.start();
      await expect.poll(() => got.length, { timeout: 20_000 }).toBe(1);
      // The requests are complete or have expired.
      await expect.poll(async () => (await info()).num_waiting, { timeout: 20_000 }).toBe(0);
      expect((await info()).num_pending).toBeGreaterThan(0);
      isFull = false;
      await expect.poll(() => got.length, { timeout: 60_000 }).toBe(sent.length);
      expect([got, limited.state().redelivered]).toEqual([sent, 0]);
    } finally {
      await limited.stop(0);
    }
  });
});

describe('NATS consumer that rejects requests', () => {
  it('is a problem until it accepts them, and its messages then arrive', async () => {
    const settings = { filter_subject: 'site.strict', ack_policy: 'explicit' } as const;
    await manager.consumers.add('PLANT', { ...settings, durable_name: 'strict', max_expires: 1_000_000_000 });
    const spec = { servers: [servers.url], ackWaitMs: 60_000, ordered: false };
    const strict = new NatsBroker({
      name: 'line',
      spec,
      clientId: 'strict',
      clock: systemClock,
      logger: silentLogger(),
    });
    const got: string[] = [];
    const handler = async (message: { string(): string }) => void got.push(message.string());
    strict.pull({ stream: 'PLANT', durable: 'strict', ordered: false, subjects: ['site.strict'], handler });
    await stream.publish('site.strict', '1');
    try {
      strict.start();
      await expect.poll(() => strict.state().problem, { timeout: 20_000 }).toContain('maxrequestexpires');
      await manager.consumers.update('PLANT', 'strict', { max_expires: 0 });
      await expect.poll(() => got, { timeout: 20_000 }).toEqual(['1']);
      expect(strict.state().problem).toBeUndefined();
    } finally {
      await strict.stop(0);
    }
  });
});

describe('NATS consumer without a stream', () => {
  it.each([
    ['the stream by name', 'LATER', 'the stream LATER does not exist'],
    ['the subject', undefined, 'no stream stores later.a'],
  ])('names %s in its state, and logs its recovery when the stream exists', async (_, name, problem) => {
    const lines: { event: string }[] = [];
    const logger = silentLogger();
    logger.info = logger.warn = ((fields: { event: string }) => lines.push(fields)) as typeof logger.info;
    const spec = { servers: [servers.url], ackWaitMs: 60_000, ordered: false };
    const broker = new NatsBroker({ name: 'line', spec, clientId: 'late', clock: systemClock, logger });
    const got: string[] = [];
    const handler = async (message: JsMsg) => void got.push(message.string());
    broker.pull({ stream: name, durable: undefined, ordered: false, subjects: ['later.a'], handler });
    try {
      broker.start();
      await expect.poll(() => broker.state().problem, { timeout: 20_000 }).toBe(problem);
      await manager.streams.add({ name: 'LATER', subjects: ['later.>'] });
      await stream.publish('later.a', '1');
      await expect.poll(() => got, { timeout: 20_000 }).toEqual(['1']);
      expect(broker.state().problem).toBeUndefined();
      const about = { broker: 'line', durable: 'late' };
      const ofConsumer = lines.filter((line) => 'durable' in line);
      expect(ofConsumer.at(0)).toMatchObject({ event: 'broker.consumer_away', ...about, error: problem });
      expect(ofConsumer.at(-1)).toMatchObject({ event: 'broker.connected', ...about, lastedMs: expect.any(Number) });
    } finally {
      await broker.stop(0);
      await manager.streams.delete('LATER');
    }
  });
});

describe('NATS stream', () => {
  it('that deleted messages before their delivery is reported with their number', async () => {
    await manager.streams.add({ name: 'FEW', subjects: ['few.*'], max_msgs: 10 });
    const spec = { servers: [servers.url], ackWaitMs: 60_000, ordered: false };
    const lines: { event: string }[] = [];
    const logger = silentLogger();
    logger.warn = ((fields: { event: string }) => lines.push(fields)) as typeof logger.warn;
    const got: string[] = [];
    const missed: [messages: number, stream: string][] = [];
    const receiveUntil = async (last: string) => {
      const broker = new NatsBroker({ name: 'line', spec, clientId: 'few', clock: systemClock, logger });
      broker.pull({
        stream: undefined,
        durable: undefined,
        ordered: false,
        subjects: ['few.a', 'few.b'],
        handler: async (message) => void got.push(message.string()),
        missed: (...one) => void missed.push(one),
      });
      broker.start();
      await expect.poll(() => got.at(-1), { timeout: 20_000 }).toBe(last);
      await broker.stop();
    };
    await stream.publish('few.a', '0');
    await receiveUntil('0');
    for (let number = 1; number <= 30; number++) await stream.publish('few.b', String(number));
    await receiveUntil('30');
    expect([got.length, missed]).toEqual([11, [[20, 'FEW']]]);
    expect(lines).toMatchObject([{ event: 'broker.missed', stream: 'FEW', messages: 20 }]);
    await manager.streams.delete('FEW');
  });

  it('that does not store a subject is the problem of its source', async () => {
    await manager.streams.add({ name: 'HALF', subjects: ['half.a'] });
    const spec = { servers: [servers.url], ackWaitMs: 60_000, ordered: false };
    const broker = new NatsBroker({ name: 'line', spec, clientId: 'half', clock: systemClock, logger: silentLogger() });
    const handler = async () => {};
    broker.pull({ stream: 'HALF', durable: undefined, ordered: false, subjects: ['half.a', 'half.b'], handler });
    broker.start();
    await expect.poll(() => broker.state().problem, { timeout: 20_000 }).toBe('the stream HALF does not store half.b');
    await broker.stop(0);
    await manager.streams.delete('HALF');
  });
});

describe('message published to a NATS server', () => {
  let broker: NatsBroker;
  beforeAll(() => {
    const spec = { servers: [servers.url], ackWaitMs: 1_000, ordered: false };
    const options = { name: 'line', spec, clientId: 'publisher', clock: systemClock, logger: silentLogger() };
    broker = new NatsBroker(options);
    broker.start();
  });
  afterAll(() => broker.stop(0));

  const messages = async () => (await manager.streams.info('PLANT')).state.messages;

  it('is stored once per message ID', async () => {
    const before = await messages();
    for (let times = 0; times < 2; times++) await broker.publish('site.other', '1', { id: 'same' });
    expect(await messages()).toBe(before + 1);
  });

  it('reaches subscribers if no stream stores it, unless it must be stored', async () => {
    const connection = await servers.connection();
    const heard: string[] = [];
    connection.subscribe('alarms.>', { callback: (_, message) => void heard.push(message.string()) });
    await connection.flush();
    await broker.publish('alarms.a', 'x');
    await expect.poll(() => heard).toEqual(['x']);
    const unkept = broker.publish('other.a', '{}', { mustKeep: true });
    await expect(unkept).rejects.toMatchObject({ code: 'broker.stream', retryable: true });
  });

  it('is rejected if it is too large, its subject is invalid, or `beforeSend` throws', async () => {
    const before = await messages();
    const larger = broker.publish('site.other', Buffer.alloc(8 * 1024 * 1024 + 1));
    await expect(larger).rejects.toMatchObject({ code: 'broker.too_large', retryable: false });
    for (const subject of ['', 'a..b', 'a.*', 'a b', 'a.>']) {
      await expect(broker.publish(subject, '')).rejects.toMatchObject({ code: 'broker.topic' });
    }
    const beforeSend = () => {
      throw new TagferryError('too late', { code: 'late' });
    };
    await expect(broker.publish('site.other', 'x', { beforeSend })).rejects.toMatchObject({ code: 'late' });
    expect(await messages()).toBe(before);
  });
});
