/**
 * Two agents share broker messages, and one of them loses its network path without a connection reset. The other agent
 * takes over, and nothing is lost. For a partitioned cluster node, see test/old/broker/nats-cluster.
 */
import { connect } from 'mqtt';
import { afterEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { InterruptibleProxy } from '../../e2e/harness/interruptible-proxy.ts';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';
import { Published, TOPICS, tagsOf } from '../../e2e/harness/mqtt-values.ts';
import { NatsPlant, redeliveries, taken } from '../../e2e/harness/nats-plant.ts';
import { RecordingProxy } from '../../e2e/harness/recording-proxy.ts';

const ENV = { COMMIT_INTERVAL: '200ms', POST_INTERVAL: '100ms' };
const START_MS = 1_795_219_200_000;
const ALL = Array.from({ length: TOPICS }, (_, topic) => topic);
/** Maximum number of unconfirmed messages per client in Mosquitto. */
const IN_FLIGHT = 20;

let ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.toReversed()) await end();
  ends = [];
});

describe('agent partitioned from its broker', () => {
  it('is replaced in an MQTT group by an agent with its client ID, which receives the unacknowledged messages', async () => {
    const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
    await sandbox.start();
    ends.push(() => sandbox.stop());
    const broker = await Mosquitto.make();
    ends.push(() => broker.dispose());
    await broker.start();
    const published = new Published();
    const plant = connect(`mqtt://127.0.0.1:${broker.port}`, { reconnectPeriod: 0 });
    ends.push(() => plant.end(true));
    await new Promise<void>((resolve) => plant.once('connect', () => resolve()));
    const publish = async (count: number) => {
      for (let n = 0; n < count; n++) {
        const topic = published.count % TOPICS;
        const number = published.next(topic);
        await plant.publishAsync(`site/t${topic}`, `{"v":${number},"t":${START_MS + Number(number)}}`, { qos: 1 });
      }
    };
    const ways = [new RecordingProxy(broker.port), new RecordingProxy(broker.port)] as const;
    for (const way of ways) ends.push(() => way.stop());
    const cut = new InterruptibleProxy(await ways[0].start());
    ends.push(() => cut.stop());
    const agentOf = async (port: number, clientId: string) => {
      const tags = tagsOf(port, ALL, `share: gateways, client_id: ${clientId}`, ', at: /v, time: /t');
      const agent = new AgentProcess(sandbox.url, { tags, env: ENV });
      ends.push(() => agent.dispose());
      await agent.start();
      return agent;
    };
    const away = await agentOf(await cut.start(), 'one');
    const stays = await agentOf(await ways[1].start(), 'other');
    await stays.until(async () => {
      await publish(10);
      return ways.every(({ confirmed }) => confirmed.size > 0);
    }, 'both agents are receiving values');
    const first = published.count;
    await publish(50);
    cut.cut();
    const since = published.count;
    await publish(100);
    const missing = (from: number) => published.compare(sandbox).missing.filter((number) => number >= from);
    // Mosquitto continues to assign messages to an absent member; other brokers may not.
    await stays.until(() => missing(since).length <= 60, 'the other agent receives its share of new values');
    const heirs = new RecordingProxy(broker.port);
    ends.push(() => heirs.stop());
    const heir = await agentOf(await heirs.start(), 'one');
    await publish(50);
    await heir.until(
      () => missing(first).length === 0,
      'all values have arrived without those of the partitioned agent',
      120_000,
    );
    const { invented, doubled } = published.compare(sandbox);
    expect({ invented, doubled }).toEqual({ invented: [], doubled: [] });
    // The replacement also receives what the first agent stored but could not confirm.
    const heirHas = [...heirs.confirmed.keys()];
    expect(heirHas.length).toBeGreaterThan(0);
    expect(heirHas.filter((text) => ways[0].confirmed.has(text)).length).toBeLessThanOrEqual(IN_FLIGHT);
    await away.end('SIGKILL');
  });

  it('loses its unacknowledged messages to other members of its NATS consumer after ack_wait, and counts duplicates', async () => {
    const plant = await NatsPlant.start({ more: 'ping_interval: "1s"\nping_max: 2' });
    ends.push(() => plant.dispose());
    await plant.sandbox.goOffline();
    const cut = new InterruptibleProxy(plant.servers.ports[0]!);
    ends.push(() => cut.stop());
    const tags = plant.tagsOf('stream: PLANT, durable: gateways, ack_wait: 2s');
    const away = await plant.agentOf(tags.replace(plant.servers.url, `nats://127.0.0.1:${await cut.start()}`));
    const stays = await plant.agentOf(tags);
    await stays.until(async () => {
      await plant.publish(20);
      return (await taken(stays)) > 0 && (await taken(away)) > 0;
    }, 'both agents are receiving values');
    const publishing = plant.publish(300);
    const before = await taken(away);
    await stays.until(async () => (await taken(away)) > before, 'values of the stream are delivered');
    cut.cut();
    await publishing;
    await plant.publish(50);
    // No message is pending for the partitioned agent.
    await plant.untilTaken(stays, 'gateways');
    expect((await plant.manager.consumers.info('PLANT', 'gateways')).config.ack_wait).toBe(2_000_000_000);
    const takenAway = await taken(away);
    cut.restore();
    await stays.until(async () => {
      await plant.publish(20);
      return (await taken(away)) > takenAway;
    }, 'the agent is connected again');
    await plant.untilTaken(stays, 'gateways');
    const all = [stays, away];
    expect(await plant.expectBounded(all)).toBeLessThanOrEqual(await redeliveries(all));
  });
});
