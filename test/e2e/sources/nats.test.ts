// Requires: nats-server
import { setTimeout as pause } from 'node:timers/promises';
import { type JetStreamClient, type JetStreamManager, jetstream } from '@nats-io/jetstream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { Published } from '../harness/mqtt-values.ts';
import { NatsServers } from '../harness/nats-servers.ts';
import { Platform } from '../harness/platform.ts';

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
  await servers.start();
  manager = await servers.manager();
  await manager.streams.add({ name: 'PLANT', subjects: ['site.>'] });
  stream = jetstream(await servers.connection(), { timeout: 2_000 });
  const values = TOPICS.map((topic) => `      k${topic}: { from: line, subject: site.t${topic}, at: /v, time: /t }\n`);
  agent = new AgentProcess(platform.url, {
    tags:
      `sources:\n  line: { nats: "${servers.url}", durable: ${DURABLE}, ack_wait: 1s }\n` +
      `tags:\n  T:\n    asset: ${ASSET}\n    values:\n${values.join('')}` +
      '      untimed: { from: line, subject: site.untimed }\n',
    // Long enough for a kill between a premature acknowledgement and its commit.
    env: { COMMIT_INTERVAL: '300ms', POST_INTERVAL: '100ms' },
  });
  await agent.start();
});
afterAll(async () => {
  await agent?.dispose();
  await servers?.dispose();
  await platform?.stop();
});

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
    servers.startOne(0);
    await servers.untilReady();
    await flowing.stop();
    await expectAll();
  });
});
