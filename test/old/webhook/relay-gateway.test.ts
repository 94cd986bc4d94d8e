/** A gateway with events from a relay does not query the platform for events, and does not store unrelated events. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { compileDiskLayer } from '../../host/faults/disk-fault.ts';
import { contentOf } from './event-plant.ts';
import { bodyOf, deliver, RelayPlant, ranAt } from './relay-plant.ts';

let plant: RelayPlant;
beforeEach(async () => {
  plant = await RelayPlant.start();
});
afterEach(() => plant.dispose());

const elsewhere = (agent: AgentProcess) => agent.metric('tagferry_events_elsewhere_total');

it('only the relay reads the deliveries list, including events that reached no listener', async () => {
  const { source, topic } = await plant.broker('nats');
  // Each agent has its own platform, which shows its requests.
  const [ofRelay, ofGateway] = [plant.sandbox, await plant.platform()];
  const relay = await plant.agent(source, {
    env: {
      WEBHOOK_SECRET: '',
      WEBHOOK_LISTEN: '',
      WEBHOOK_URL: 'http://127.0.0.1:9/webhook',
      WEBHOOK_POLL: '1s',
      WEBHOOK_TO: `broker ${topic}`,
    },
    asset: 1,
  });
  await relay.until(() => relay.logged('webhook.created').length > 0, 'the webhook is registered');
  const { secret } = JSON.parse(relay.file('webhook.json')) as { secret: string };
  const env = { WEBHOOK_SECRET: secret, WEBHOOK_FROM: `broker ${topic}` };
  const gateway = await plant.agent(source, { env, asset: 881, platform: ofGateway });
  const numbers = Array.from({ length: 20 }, (_, at) => at + 1);
  for (const number of numbers) {
    ofRelay.announcer.announce({
      type: 'threshold_reached',
      audience: () => true,
      content: () => contentOf(number, true),
    });
  }
  await gateway.until(() => numbers.every((number) => ranAt(gateway).includes(number)), 'every event has arrived');
  // A gateway with its own webhook would look for missed events at startup.
  await gateway.end('SIGTERM');
  await gateway.start();
  await gateway.until(async () => (await gateway.status()).state !== undefined, 'the agent is processing events');
  const asked = (sandbox: typeof ofRelay) =>
    sandbox.requests.list().filter(({ path }) => path.startsWith('/v1/client_applications'));
  expect(
    asked(ofRelay).filter(({ method, path }) => method === 'GET' && path.endsWith('/events')).length,
  ).toBeGreaterThan(0);
  expect(ofGateway.requests.list().length).toBeGreaterThan(0);
  expect(asked(ofGateway)).toEqual([]);
  expect(ranAt(gateway).toSorted((a, b) => a - b)).toEqual(numbers);
});

describe('unrelated event', () => {
  it('is discarded without a disk write, based on tags, reactions and access user', async () => {
    const { source, topic } = await plant.broker('mqtt');
    const gateway = await plant.agent(source, {
      env: { WEBHOOK_FROM: `broker ${topic}`, TECHNICAL_USER_ID: '5' },
      asset: 881,
      // Reactions for its own tags and, through a condition, for an asset without a tag.
      reactions: 'on: threshold_reached, if: { asset.id: [881, 700] }',
      environment: (agent) => ({
        LD_PRELOAD: compileDiskLayer(),
        DISK_LAYER_PATH: agent.state,
        DISK_LAYER_COUNTS: join(agent.folder, 'counts'),
      }),
    });
    const relay = await plant.agent(source, { env: { WEBHOOK_TO: `broker ${topic}` }, asset: 1 });
    await plant.openWay(relay, [gateway]);
    const ofAccess = (user: number) =>
      JSON.stringify({
        event_type: 'asset_appeared',
        occurred_at: new Date().toISOString(),
        content: { asset: { id: 881 }, user: { id: user } },
      });
    // Writes to any file of the state folder, by any thread.
    const written = () => {
      const counts = readFileSync(join(gateway.folder, 'counts'));
      return counts.readBigUInt64LE(0) + counts.readBigUInt64LE(8);
    };
    const quiet = async () => {
      for (let before = written(), same = 0; same < 25; before = written()) {
        await new Promise((resolve) => setTimeout(resolve, 40));
        same = written() === before ? same + 1 : 0;
      }
    };
    await quiet();
    const rest = written();
    expect(rest).toBeGreaterThan(0n);
    const before = await elsewhere(gateway);
    for (let n = 0; n < 50; n++) {
      await deliver(relay, bodyOf(902, n));
      await deliver(relay, ofAccess(6 + n));
    }
    await gateway.until(async () => (await elsewhere(gateway)) === before + 100, 'the gateway has received all events');
    expect(written()).toBe(rest);
    const received = await gateway.metric('tagferry_events_received_total');
    // Related events are written: those matched by tag, by condition or by user.
    let last = rest;
    for (const [at, body] of [bodyOf(881, 1_001), bodyOf(700, 1_002), ofAccess(5)].entries()) {
      await deliver(relay, body);
      await gateway.until(
        async () => (await gateway.metric('tagferry_events_received_total')) === received + at + 1,
        'it is in the inbox',
      );
      expect(written()).toBeGreaterThan(last);
      await quiet();
      last = written();
    }
    await gateway.until(() => ranAt(gateway).includes(1_002), 'the reactions ran');
    expect(await elsewhere(gateway)).toBe(before + 100);
  });
});
