// Long: 1 min
import { afterEach, describe, it } from 'vitest';
import type { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { NatsPlant, taken } from '../../e2e/harness/nats-plant.ts';

let plant: NatsPlant | undefined;
afterEach(async () => {
  await plant?.dispose();
  plant = undefined;
});

/** Waits until the consumer has a leader, which is elected again after a failure. */
async function leaderOf(agent: AgentProcess): Promise<number> {
  let leader: string | undefined;
  const isLed = async () => {
    const info = await plant!.manager.consumers.info('PLANT', 'gateways').catch(() => undefined);
    leader = info?.cluster?.leader;
    return leader !== undefined && leader !== '';
  };
  await agent.until(isLed, 'the consumer has a leader', 120_000);
  return Number(leader!.slice(1));
}

describe('JetStream cluster of three nodes', () => {
  it('loses no value if a node is killed or frozen while two agents are receiving values', async () => {
    plant = await NatsPlant.start({ nodes: 3 });
    await plant.sandbox.goOffline();
    const { servers, published } = plant;
    const tags = plant.tagsOf('stream: PLANT, durable: gateways, ack_wait: 3s');
    const pair = [await plant.agentOf(tags), await plant.agentOf(tags)];
    const [one] = pair as [AgentProcess];
    await one.until(async () => {
      await plant!.publish(10);
      return (await taken(one)) > 0;
    }, 'values are delivered');
    for (const blow of ['SIGKILL', 'SIGSTOP'] as const) {
      const leader = await leaderOf(one);
      const before = published.count;
      const publishing = plant.publish(200);
      await one.until(() => published.count > before + 20, 'some messages were published');
      if (blow === 'SIGKILL') await servers.stop(leader, blow);
      else servers.signal(leader, blow);
      await publishing;
      if (blow === 'SIGKILL') servers.startOne(leader);
      else servers.signal(leader, 'SIGCONT');
    }
    await plant.untilTaken(one, 'gateways');
    // Redeliveries are not counted exactly: a new leader may not know the latest deliveries, and sends them as new.
    await plant.expectBounded(pair);
  }, 300_000);
});
