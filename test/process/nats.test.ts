import { join } from 'node:path';
import { type JetStreamManager, jetstream } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { NatsServers } from '../broker/nats-servers.ts';
import { AgentProcess } from './agent-process.ts';
import { NOTHING_WRONG, Published, TOPICS } from './mqtt-values.ts';

/** Debian's nats-server, the daemon as a process, a plant that publishes into a stream: counted at the platform, by series and number. */
const ENV = { COMMIT_INTERVAL: '500ms', POST_INTERVAL: '100ms' };
const START_MS = 1_795_219_200_000;
const ASSET = 881;
/** Messages that one agent has unacknowledged at most. */
const WINDOW = 2_000;

let sandbox: Sandbox;
let servers: NatsServers;
let agents: AgentProcess[];
let published: Published;
let plant: NatsConnection | undefined;
/** Publishing that is under way: none outlives its test. */
let works: Promise<unknown>[];

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agents = [];
  works = [];
  plant = undefined;
  published = new Published();
});
afterEach(async () => {
  await Promise.allSettled(agents.map((agent) => agent.dispose()));
  await servers.dispose();
  await Promise.allSettled(works);
  await sandbox.stop();
});

function tagsOf(source: string, { subject = (topic: number) => `site.t${topic}`, time = ', time: /t' } = {}): string {
  const values = Array.from(
    { length: TOPICS },
    (_, topic) => `      k${topic}: { from: line, subject: ${subject(topic)}, at: /v${time} }\n`,
  );
  return (
    `sources:\n  line: { nats: "${servers.url}", ${source} }\n` +
    `tags:\n  T:\n    asset: ${ASSET}\n    values:\n${values.join('')}`
  );
}

/** Starts again and again: what Node makes of the sources is kept from start to start, which takes most of one. */
class OftenStarted extends AgentProcess {
  protected override variables(): Record<string, string> {
    return { NODE_COMPILE_CACHE: join(import.meta.dirname, '../../node_modules/.cache/compiled') };
  }
}

async function agentOf(tags: string, environment: NodeJS.ProcessEnv = {}): Promise<AgentProcess> {
  const agent = new OftenStarted(sandbox.url, { tags, env: ENV });
  agents.push(agent);
  await agent.start(environment);
  await agent.until(() => agent.logged('broker.connected').length > 0, 'the server is connected');
  return agent;
}

/** So many numbers, each to the next subject, each confirmed by the stream; a node that goes is waited out. */
function publish(count: number): Promise<void> {
  const work = (async () => {
    plant ??= await servers.connection();
    const stream = jetstream(plant, { timeout: 2_000 });
    for (let n = 0; n < count; n++) {
      const topic = published.count % TOPICS;
      const number = published.next(topic);
      const text = `{"v":${number},"t":${START_MS + Number(number)}}`;
      // The same id: what the stream took without its answer coming through, it keeps once.
      for (let tries = 0; ; tries++) {
        try {
          await stream.publish(`site.t${topic}`, text, { msgID: number });
          break;
        } catch (error) {
          if (tries > 200) throw error;
          await new Promise((resolve) => setTimeout(resolve, 100));
        }
      }
    }
  })();
  work.catch(() => {});
  works.push(work);
  return work;
}

const stored = (agent: AgentProcess) => agent.metric('tagferry_values_ingested_total');

/** Nothing waits in the consumer, and nothing waits for its acknowledgement. */
async function untilTaken(agent: AgentProcess, manager: JetStreamManager, durable: string): Promise<void> {
  await agent.until(
    async () => {
      const info = await manager.consumers.info('PLANT', durable).catch(() => undefined);
      return info !== undefined && info.num_pending === 0 && info.num_ack_pending === 0;
    },
    'all are acknowledged',
    120_000,
  );
}

/** The node that leads the consumer: after a blow one has to be found first. */
async function leaderOf(agent: AgentProcess, manager: JetStreamManager): Promise<number> {
  let leader: string | undefined;
  await agent.until(
    async () => {
      leader = (await manager.consumers.info('PLANT', 'gateways').catch(() => undefined))?.cluster?.leader;
      return leader !== undefined && leader !== '';
    },
    'the consumer is led',
    120_000,
  );
  return Number(leader!.slice(1));
}

/**
 * The platform comes back, and with it what all agents have on disk: each value is there, and no more of them twice than the consumer
 * had given and not seen acknowledged. The platform was away all the while, so that no post was made twice. Gives how many came twice.
 */
async function expectBounded(taking: readonly AgentProcess[]): Promise<number> {
  await sandbox.goOnline();
  const [first] = taking as [AgentProcess];
  await first.until(() => published.compare(sandbox).missing.length === 0, 'all of them', 120_000);
  for (const agent of taking) {
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty', 120_000);
  }
  expect(published.compare(sandbox)).toEqual(NOTHING_WRONG);
  const { received, stored: kept } = sandbox.values.counts(ASSET);
  expect(received - kept).toBeLessThanOrEqual(WINDOW);
  return received - kept;
}

/** What the server marked as given before, where an agent took it. */
async function counted(agents: readonly AgentProcess[]): Promise<number> {
  const each = agents.map((agent) => agent.metric('tagferry_source_redeliveries_taken_total'));
  return (await Promise.all(each)).reduce((sum, one) => sum + one, 0);
}

describe('values of a stream of NATS', () => {
  it('outlive kill -9 and restarts of the agent, each once, in a consumer that it makes itself', async () => {
    servers = await NatsServers.make();
    await servers.start();
    const manager = await servers.manager();
    await manager.streams.add({ name: 'PLANT', subjects: ['site.>'] });
    // Stamped on arrival: one that is stored twice is seen twice.
    const agent = await agentOf(tagsOf('durable: gateways, ack_wait: 1s', { time: '' }));
    for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL'] as const) {
      const before = await stored(agent);
      const publishing = publish(200);
      await agent.until(async () => (await stored(agent)) > before, 'some are on disk');
      await agent.end(signal);
      await publishing;
      await agent.start();
    }
    await agent.until(() => published.compare(sandbox).missing.length === 0, 'all of them', 120_000);
    await untilTaken(agent, manager, 'gateways');
    expect(published.compare(sandbox)).toEqual(NOTHING_WRONG);
    expect((await manager.consumers.info('PLANT', 'gateways')).config).toMatchObject({
      ack_policy: 'explicit',
      filter_subject: 'site.*',
    });
  });

  it('are shared by agents; one is killed, another joins: none is lost, and what is twice is counted', async () => {
    servers = await NatsServers.make();
    await servers.start();
    const manager = await servers.manager();
    await manager.streams.add({ name: 'PLANT', subjects: ['site.>'] });
    await sandbox.goOffline();
    const tags = tagsOf('stream: PLANT, durable: gateways, ack_wait: 2s');
    const killed = await agentOf(tags);
    const stays = await agentOf(tags);
    await publish(100);
    await stays.until(async () => {
      await publish(20);
      return (await stored(stays)) > 0 && (await stored(killed)) > 0;
    }, 'both take their part');
    const publishing = publish(300);
    const before = await stored(killed);
    await stays.until(async () => (await stored(killed)) > before, 'the stream flows');
    await killed.end('SIGKILL');
    const joins = await agentOf(tags);
    await publishing;
    await publish(100);
    await untilTaken(stays, manager, 'gateways');
    expect(await stored(joins)).toBeGreaterThan(0);
    // What it had acknowledged stands on its disk, and nowhere else.
    await killed.start();
    expect(await expectBounded([stays, joins, killed])).toBeLessThanOrEqual(await counted([stays, joins, killed]));
  });

  it('outlive a node of three that is killed, and one that is cut off, while two agents take them', async () => {
    servers = await NatsServers.make(3);
    await servers.start();
    const manager = await servers.manager();
    await manager.streams.add({ name: 'PLANT', subjects: ['site.>'], num_replicas: 3 });
    await sandbox.goOffline();
    const tags = tagsOf('stream: PLANT, durable: gateways, ack_wait: 3s');
    const pair = [await agentOf(tags), await agentOf(tags)];
    const [one] = pair as [AgentProcess];
    await one.until(async () => {
      await publish(10);
      return (await stored(one)) > 0;
    }, 'values flow');
    for (const blow of ['SIGKILL', 'SIGSTOP'] as const) {
      const leader = await leaderOf(one, manager);
      const before = published.count;
      const publishing = publish(200);
      await one.until(() => published.count > before + 20, 'some were published');
      if (blow === 'SIGKILL') await servers.stop(leader, blow);
      else servers.signal(leader, blow);
      await publishing;
      if (blow === 'SIGKILL') servers.startOne(leader);
      else servers.signal(leader, 'SIGCONT');
    }
    await untilTaken(one, manager, 'gateways');
    // Not by what is counted: a node that becomes the leader may not know of the last deliveries, and gives them as new.
    await expectBounded(pair);
  }, 300_000);

  it('keep their order where each agent has its part, by the partitions of NATS, over kill -9', async () => {
    servers = await NatsServers.make();
    await servers.start('mappings: { "site.*": "part.{{partition(2,1)}}.{{wildcard(1)}}" }');
    const manager = await servers.manager();
    await manager.streams.add({ name: 'PLANT', subjects: ['part.>'] });
    // One file for both: the part is a word of each one's environment.
    const tags = tagsOf(`stream: PLANT, durable: "part-\${PART}", ack_wait: 1s, ordered: true`, {
      subject: (topic) => `"part.\${PART}.t${topic}"`,
      time: '',
    });
    const zero = await agentOf(tags, { PART: '0' });
    const one = await agentOf(tags, { PART: '1' });
    await one.until(async () => {
      await publish(20);
      return (await stored(zero)) > 0 && (await stored(one)) > 0;
    }, 'both have their part');
    const publishing = publish(200);
    const before = await stored(zero);
    await one.until(async () => (await stored(zero)) > before, 'the stream flows');
    await zero.end('SIGKILL');
    await publishing;
    await zero.start({ PART: '0' });
    await publish(50);
    await one.until(() => published.compare(sandbox).missing.length === 0, 'all of them', 120_000);
    expect(published.compare(sandbox)).toEqual(NOTHING_WRONG);
    for (let topic = 0; topic < TOPICS; topic++) {
      const values = sandbox.values.list(ASSET, `k${topic}`).map(({ value }) => value);
      expect(values).toEqual(values.toSorted((a, b) => a - b));
    }
  });
});
