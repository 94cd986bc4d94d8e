import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { StrictBroker } from '../broker/strict-broker.ts';
import { AgentProcess } from './agent-process.ts';
import { NOTHING_WRONG, Published, TOPICS, tagsOf } from './mqtt-values.ts';

/** A broker that keeps to its window of 20, and the daemon as a process. Counted at the platform, by series and number. */
const ALL = Array.from({ length: TOPICS }, (_, topic) => topic);
const ENV = { COMMIT_INTERVAL: '1s', POST_INTERVAL: '100ms' };

let sandbox: Sandbox;
let broker: StrictBroker;
let port: number;
let agents: AgentProcess[];
let published: Published;
let publishing: NodeJS.Timeout | undefined;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  broker = new StrictBroker();
  port = await broker.start();
  agents = [];
  published = new Published();
});
afterEach(async () => {
  clearInterval(publishing);
  for (const agent of agents) await agent.dispose();
  await broker.stop();
  await sandbox.stop();
});

function agentOf(tags: string, env: Record<string, string> = ENV): AgentProcess {
  const agent = new AgentProcess(sandbox.url, { tags, env });
  agents.push(agent);
  return agent;
}

/** So many messages a second, over the topics, until `stop`. */
function publish(everyMs: number, options: { qos?: 1 | 2 } = {}): () => void {
  publishing = setInterval(() => {
    const topic = published.count % TOPICS;
    broker.publish(`site/t${topic}`, published.next(topic), options);
  }, everyMs);
  return () => clearInterval(publishing);
}

async function settled(agent: AgentProcess): Promise<void> {
  await agent.until(() => broker.pending === 0, 'every message is confirmed');
  await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty');
}

describe('values of a broker that keeps to its window', () => {
  it.each([1, 2] as const)(
    'of QoS %i outlive kill -9, restarts and reloads, each once',
    async (qos) => {
      const agent = agentOf(tagsOf(port, ALL, `qos: ${qos}`));
      await agent.start();
      await agent.until(() => broker.filters.length === TOPICS, 'the subscriptions stand');
      const stop = publish(20, { qos });
      for (let blow = 0; blow < 2; blow++) {
        const before = published.count;
        await agent.until(() => published.count > before + 30, 'some were published');
        expect(await agent.end('SIGKILL')).toBe('SIGKILL');
        await agent.start();
      }
      await agent.until(() => broker.connected === 1, 'the agent is back');
      expect(await agent.end('SIGTERM')).toBe(0);
      const before = published.count;
      while (published.count < before + 30) await new Promise((resolve) => setTimeout(resolve, 20));
      await agent.start();
      agent.write(sandbox.url, { tags: tagsOf(port, [...ALL, 77], `qos: ${qos}`), env: ENV });
      agent.signal('SIGHUP');
      await agent.until(() => broker.filters.includes('site/t77'), 'one topic more');
      agent.write(sandbox.url, { tags: tagsOf(port, ALL, `qos: ${qos}`), env: ENV });
      agent.signal('SIGHUP');
      await agent.until(() => !broker.filters.includes('site/t77'), 'one topic less');
      stop();
      await settled(agent);
      expect(published.compare(sandbox)).toEqual(NOTHING_WRONG);
      expect(broker.wrong).toEqual([]);
      expect(broker.redelivered).toBeGreaterThan(0);
      // Each filter was asked for once, and only what the configuration gave up was taken leave of.
      expect(broker.asked.toSorted()).toEqual(
        [...ALL.map((topic) => `+site/t${topic}`), '+site/t77', '-site/t77'].toSorted(),
      );
    },
    120_000,
  );

  it('come before their commit interval where the window is full, and are counted', async () => {
    const agent = agentOf(tagsOf(port, ALL), { ...ENV, COMMIT_INTERVAL: '5s' });
    await agent.start();
    await agent.until(() => broker.filters.length === TOPICS, 'the subscriptions stand');
    // A machine that is busy learns the window later: there is more than enough of it.
    await agent.until(async () => {
      for (let message = 0; message < 100 && broker.pending < 100; message++) {
        const topic = message % TOPICS;
        broker.publish(`site/t${topic}`, published.next(topic));
      }
      return (await agent.metric('tagferry_commits_early_total')) > 5;
    }, 'commits come early');
    expect(broker.mostUnconfirmed).toBe(20);
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    await settled(agent);
    expect(published.compare(sandbox)).toEqual(NOTHING_WRONG);
  });

  it('that come in one millisecond get a time each', async () => {
    const agent = agentOf(tagsOf(port, [0]));
    await agent.start();
    await agent.until(() => broker.filters.length === 1, 'the subscription stands');
    for (let message = 0; message < 300; message++) broker.publish('site/t0', published.next(0));
    await settled(agent);
    expect(published.compare(sandbox)).toEqual(NOTHING_WRONG);
    expect(sandbox.values.list(881, 'k0').map(({ value }) => value)).toEqual(Array.from({ length: 300 }, (_, n) => n));
  });

  it('are rejected if their time is in seconds and time_unit is not set', async () => {
    const agent = agentOf(tagsOf(port, [0], 'qos: 1', ', at: /v, time: /t'));
    await agent.start();
    await agent.until(() => broker.filters.length === 1, 'the subscription exists');
    broker.publish('site/t0', '{"v":1,"t":1795219200}');
    await agent.until(() => agent.logged('mqtt.unreadable').length === 1, 'the message is reported');
    expect(agent.logged('mqtt.unreadable')[0]).toMatchObject({ error: expect.stringContaining('time_unit') });
    broker.publish('site/t0', '{"v":2,"t":1795219200000}');
    await agent.until(() => sandbox.values.list(881, 'k0').length > 0, 'a time in milliseconds is accepted');
    expect(sandbox.values.list(881, 'k0').map(({ value }) => value)).toEqual([2]);
  });

  it('that are retained are taken once, however often the broker forgets the session and the agent starts', async () => {
    for (const topic of ALL) broker.publish(`site/t${topic}`, published.next(topic), { retain: true });
    const agent = agentOf(tagsOf(port, ALL));
    for (const end of ['SIGTERM', 'SIGKILL'] as const) {
      await agent.start();
      await agent.until(() => broker.filters.length === TOPICS, 'the subscriptions stand');
      await agent.until(() => broker.pending === 0, 'every message is confirmed');
      await agent.end(end);
      broker.forget();
    }
    await agent.start();
    await agent.until(() => broker.filters.length === TOPICS, 'the subscriptions stand');
    await settled(agent);
    expect(published.compare(sandbox)).toEqual(NOTHING_WRONG);
  });

  it('are shared by the agents of a group, each message by one of them', async () => {
    const pair = ['a', 'b'].map(() => agentOf(tagsOf(port, ALL, 'share: gateways', ', at: /v, time: /t')));
    for (const agent of pair) await agent.start();
    await pair[0]!.until(() => broker.filters.length === 2 * TOPICS, 'both have subscribed');
    expect(broker.filters[0]).toBe('$share/gateways/site/t0');
    for (let message = 0; message < 200; message++) {
      const topic = message % TOPICS;
      // Two gateways give times of their own: what falls on one millisecond would be one value to the platform.
      broker.publish(`site/t${topic}`, `{"v":${published.next(topic)},"t":${1_795_219_200_000 + message}}`);
    }
    for (const agent of pair) await settled(agent);
    expect(published.compare(sandbox)).toEqual(NOTHING_WRONG);
    for (const agent of pair) expect(await agent.metric('tagferry_values_ingested_total')).toBeGreaterThan(50);
  });
});
