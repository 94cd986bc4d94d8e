import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { NOTHING_WRONG, Published, TOPICS, tagsOf } from '../../e2e/harness/mqtt-values.ts';
import { StrictBroker } from '../../unit/broker/strict-broker.ts';

/**
 * A broker with an in-flight window of 20, and the agent as a process. Values are counted on the platform by series and
 * number.
 */
const ALL = Array.from({ length: TOPICS }, (_, topic) => topic);
const ENV = { COMMIT_INTERVAL: '1s', POST_INTERVAL: '100ms' };

let sandbox: Sandbox;
let broker: StrictBroker;
let port: number;
let agents: AgentProcess[];
let published: Published;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  broker = new StrictBroker();
  port = await broker.start();
  agents = [];
  published = new Published();
});
afterEach(async () => {
  for (const agent of agents) await agent.dispose();
  await broker.stop();
  await sandbox.stop();
});

function agentOf(tags: string, env: Record<string, string> = ENV): AgentProcess {
  const agent = new AgentProcess(sandbox.url, { tags, env });
  agents.push(agent);
  return agent;
}

async function settled(agent: AgentProcess): Promise<void> {
  await agent.until(() => broker.pending === 0, 'every message is confirmed');
  await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty');
}

describe('values from a broker with a limited in-flight window', () => {
  it('are committed early if the window is full, and early commits are counted', async () => {
    const agent = agentOf(tagsOf(port, ALL), { ...ENV, COMMIT_INTERVAL: '5s' });
    await agent.start();
    await agent.until(() => broker.filters.length === TOPICS, 'the subscriptions are active');
    // On a busy machine, the window is detected later, for which there are enough messages.
    await agent.until(async () => {
      for (let message = 0; message < 100 && broker.pending < 100; message++) {
        const topic = message % TOPICS;
        broker.publish(`site/t${topic}`, published.next(topic));
      }
      return (await agent.metric('tagferry_commits_early_total')) > 5;
    }, 'early commits are requested');
    expect(broker.mostUnconfirmed).toBe(20);
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    await settled(agent);
    // Unacknowledged values without times are stored again.
    const { missing, invented } = published.compare(sandbox);
    expect({ missing, invented }).toEqual({ missing: [], invented: [] });
  });

  it('get distinct timestamps if they arrive in the same millisecond', async () => {
    const agent = agentOf(tagsOf(port, [0]));
    await agent.start();
    await agent.until(() => broker.filters.length === 1, 'the subscription is active');
    for (let message = 0; message < 300; message++) broker.publish('site/t0', published.next(0));
    await settled(agent);
    expect(published.compare(sandbox)).toEqual(NOTHING_WRONG);
    expect(sandbox.values.list(881, 'k0').map(({ value }) => value)).toEqual(Array.from({ length: 300 }, (_, n) => n));
  });

  it('are rejected if their timestamp is in seconds and time_unit is not set', async () => {
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

  it('are distributed among the agents in a group, with each message going to one agent', async () => {
    const pair = ['a', 'b'].map(() => agentOf(tagsOf(port, ALL, 'share: gateways', ', at: /v, time: /t')));
    for (const agent of pair) await agent.start();
    await pair[0]!.until(() => broker.filters.length === 2 * TOPICS, 'both have subscribed');
    expect(broker.filters[0]).toBe('$share/gateways/site/t0');
    for (let message = 0; message < 200; message++) {
      const topic = message % TOPICS;
      // Two gateways assign times independently: two values in one millisecond would be one value on the platform.
      broker.publish(`site/t${topic}`, `{"v":${published.next(topic)},"t":${1_795_219_200_000 + message}}`);
    }
    for (const agent of pair) await settled(agent);
    expect(published.compare(sandbox)).toEqual(NOTHING_WRONG);
    for (const agent of pair) expect(await agent.metric('tagferry_values_ingested_total')).toBeGreaterThan(50);
  });
});
