/**
 * Two agents share what a broker gives, and the way to one of them is cut in mid-stream: no connection ends, nothing gets through. Its part
 * is taken over, and nothing is lost. A node of a cluster that is cut off: test/long/nats-cluster.
 */
import { connect } from 'mqtt';
import { afterEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { CutWay } from '../broker/cut-way.ts';
import { Mosquitto } from '../broker/mosquitto.ts';
import { WatchedWay } from '../broker/watched-way.ts';
import { AgentProcess } from './agent-process.ts';
import { Published, TOPICS, tagsOf } from './mqtt-values.ts';
import { NatsPlant, redeliveries, taken } from './nats-plant.ts';

const ENV = { COMMIT_INTERVAL: '200ms', POST_INTERVAL: '100ms' };
const START_MS = 1_795_219_200_000;
const ALL = Array.from({ length: TOPICS }, (_, topic) => topic);
/** Messages that Mosquitto gives a client unconfirmed. */
const IN_FLIGHT = 20;

let ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.toReversed()) await end();
  ends = [];
});

describe('an agent that is cut off from its broker', () => {
  it('has its part of an MQTT group taken over by an agent with its client id at once, with what was not confirmed', async () => {
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
    const ways = [new WatchedWay(broker.port), new WatchedWay(broker.port)] as const;
    for (const way of ways) ends.push(() => way.stop());
    const cut = new CutWay(await ways[0].start());
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
    }, 'both take their part');
    const first = published.count;
    await publish(50);
    cut.cut();
    const since = published.count;
    await publish(100);
    const missing = (from: number) => published.compare(sandbox).missing.filter((number) => number >= from);
    // Mosquitto goes on giving an absent member its part, other brokers may not.
    await stays.until(() => missing(since).length <= 60, 'the other has its part of what comes');
    const heirs = new WatchedWay(broker.port);
    ends.push(() => heirs.stop());
    const heir = await agentOf(await heirs.start(), 'one');
    await publish(50);
    await heir.until(() => missing(first).length === 0, 'all of them, with nothing of the one that is away', 120_000);
    const { invented, doubled } = published.compare(sandbox);
    expect({ invented, doubled }).toEqual({ invented: [], doubled: [] });
    // What the one had on its disk, and could not confirm, the heir has as well.
    const heirHas = [...heirs.confirmed.keys()];
    expect(heirHas.length).toBeGreaterThan(0);
    expect(heirHas.filter((text) => ways[0].confirmed.has(text)).length).toBeLessThanOrEqual(IN_FLIGHT);
    await away.end('SIGKILL');
  });

  it('leaves to the others of its durable consumer of NATS, after ack_wait, also what it had; what is twice is counted', async () => {
    const plant = await NatsPlant.start({ more: 'ping_interval: "1s"\nping_max: 2' });
    ends.push(() => plant.dispose());
    await plant.sandbox.goOffline();
    const cut = new CutWay(plant.servers.ports[0]!);
    ends.push(() => cut.stop());
    const tags = plant.tagsOf('stream: PLANT, durable: gateways, ack_wait: 2s');
    const away = await plant.agentOf(tags.replace(plant.servers.url, `nats://127.0.0.1:${await cut.start()}`));
    const stays = await plant.agentOf(tags);
    await stays.until(async () => {
      await plant.publish(20);
      return (await taken(stays)) > 0 && (await taken(away)) > 0;
    }, 'both take their part');
    const publishing = plant.publish(300);
    const before = await taken(away);
    await stays.until(async () => (await taken(away)) > before, 'the stream flows');
    cut.cut();
    await publishing;
    await plant.publish(50);
    // Nothing waits for the one that is away.
    await plant.untilTaken(stays, 'gateways');
    expect((await plant.manager.consumers.info('PLANT', 'gateways')).config.ack_wait).toBe(2_000_000_000);
    const takenAway = await taken(away);
    cut.mend();
    await stays.until(async () => {
      await plant.publish(20);
      return (await taken(away)) > takenAway;
    }, 'it is back');
    await plant.untilTaken(stays, 'gateways');
    const all = [stays, away];
    expect(await plant.expectBounded(all)).toBeLessThanOrEqual(await redeliveries(all));
  });
});
