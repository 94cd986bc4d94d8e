import { afterEach, describe, expect, it } from 'vitest';
import { TOPICS } from '../../e2e/harness/mqtt-values.ts';
import { NatsPlant, redeliveries, taken } from '../../e2e/harness/nats-plant.ts';

let plant: NatsPlant | undefined;
afterEach(async () => {
  await plant?.dispose();
  plant = undefined;
});

// For a cluster, see test/old/broker/nats-cluster.
describe('values from a NATS stream', () => {
  it('arrive once despite kill -9 and restarts, through a consumer that the agent creates', async () => {
    plant = await NatsPlant.start();
    const agent = await plant.agentOf(plant.tagsOf('durable: gateways, ack_wait: 1s', { time: '' }));
    for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL'] as const) {
      const before = await taken(agent);
      const publishing = plant.publish(200);
      await agent.until(async () => (await taken(agent)) > before, 'some values are on disk');
      await agent.end(signal);
      await publishing;
      await agent.start();
    }
    await plant.untilArrived(agent);
    await plant.untilTaken(agent, 'gateways');
    await plant.untilArrived(agent);
    expect((await plant.manager.consumers.info('PLANT', 'gateways')).config).toMatchObject({
      ack_policy: 'explicit',
      filter_subject: 'site.*',
    });
  });

  it('are shared among agents without loss when an agent is killed or joins, and duplicates are counted', async () => {
    plant = await NatsPlant.start();
    await plant.sandbox.goOffline();
    const tags = plant.tagsOf('stream: PLANT, durable: gateways, ack_wait: 2s');
    const killed = await plant.agentOf(tags);
    const stays = await plant.agentOf(tags);
    await plant.publish(100);
    await stays.until(async () => {
      await plant!.publish(20);
      return (await taken(stays)) > 0 && (await taken(killed)) > 0;
    }, 'both agents are receiving values');
    const publishing = plant.publish(300);
    const before = await taken(killed);
    await stays.until(async () => (await taken(killed)) > before, 'values of the stream are delivered');
    await killed.end('SIGKILL');
    const joins = await plant.agentOf(tags);
    await publishing;
    await joins.until(async () => {
      await plant!.publish(20);
      return (await taken(joins)) > 0;
    }, 'the agent that joined is receiving values');
    await plant.untilTaken(stays, 'gateways');
    // Acknowledged values are only on its disk.
    await killed.start();
    const all = [stays, joins, killed];
    expect(await plant.expectBounded(all)).toBeLessThanOrEqual(await redeliveries(all));
  });

  it('keep their order despite kill -9 if each agent has its own NATS partition', async () => {
    const more = 'mappings: { "site.*": "part.{{partition(2,1)}}.{{wildcard(1)}}" }';
    plant = await NatsPlant.start({ subjects: ['part.>'], more });
    // Both agents use one file; the partition is an environment variable.
    const tags = plant.tagsOf(`stream: PLANT, durable: "part-\${PART}", ack_wait: 1s, ordered: true`, {
      subject: (topic) => `"part.\${PART}.t${topic}"`,
      time: '',
    });
    const zero = await plant.agentOf(tags, { PART: '0' });
    const one = await plant.agentOf(tags, { PART: '1' });
    await one.until(async () => {
      await plant!.publish(20);
      return (await taken(zero)) > 0 && (await taken(one)) > 0;
    }, 'both agents have received values');
    const publishing = plant.publish(200);
    const before = await taken(zero);
    await one.until(async () => (await taken(zero)) > before, 'values of the stream are delivered');
    await zero.end('SIGKILL');
    await publishing;
    await zero.start({ PART: '0' });
    await plant.publish(50);
    await plant.untilArrived(one);
    for (let topic = 0; topic < TOPICS; topic++) {
      const values = plant.stored(topic);
      expect(values).toEqual(values.toSorted((a, b) => a - b));
    }
  });
});
