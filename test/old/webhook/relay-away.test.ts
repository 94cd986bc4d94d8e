/**
 * A gateway that was off for a day and receives its events from a relay: which events are retained, and for how long.
 */
import { connect } from 'mqtt';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { bodyOf, deliver, RelayPlant, ranAt, relayedBy } from './relay-plant.ts';

const DAY_S = 86_400;
/** Age of events for a gateway that was off for a day, by the platform clock. */
const AGE_MS = 20 * 3_600_000;
const REACTION = 'on: threshold_reached, max_age: 2d';
const EVENTS = 20;

let plant: RelayPlant;
beforeEach(async () => {
  plant = await RelayPlant.start();
});
afterEach(() => plant.dispose());

const numbers = (from: number, count = EVENTS) => Array.from({ length: count }, (_, at) => from + at);

/** Sends the day's events and waits until the broker has received them. */
async function relay(agent: AgentProcess, values: readonly number[]): Promise<void> {
  const before = await relayedBy(agent);
  for (const value of values) await deliver(agent, bodyOf(881, value, Date.now() - AGE_MS));
  await agent.until(async () => (await relayedBy(agent)) >= before + values.length, 'the broker has the messages');
}

const ranOnce = (agent: AgentProcess, values: readonly number[]) =>
  values.every((value) => ranAt(agent).filter((one) => one === value).length === 1);

describe('gateway that was switched off for a day', () => {
  it('receives queued MQTT events if the session has not expired, and otherwise reports the gap', async () => {
    const persistence = () => `persistence true\npersistence_location ${plant.mosquitto!.folder}/\nsys_interval 1`;
    const { source, topic } = await plant.broker('mqtt');
    await plant.mosquitto!.stop();
    await plant.mosquitto!.start(persistence());
    const from = { env: { WEBHOOK_FROM: `broker ${topic}` }, asset: 881, reactions: REACTION };
    const keeps = await plant.agent(`${source}, session_expiry: 2d`, from);
    const forgets = await plant.agent(`${source}, session_expiry: 12h`, from);
    const sender = await plant.agent(source, { env: { WEBHOOK_TO: `broker ${topic}` }, asset: 1 });
    await plant.openWay(sender, [keeps, forgets]);
    for (const gateway of [keeps, forgets]) await gateway.end('SIGTERM');
    await relay(sender, numbers(1));
    const expired = await counterOf(plant.mosquitto!.port, '$SYS/broker/clients/expired');
    expect(expired.value).toBe(0);
    plant.mosquitto!.moveTime(DAY_S);
    await sender.until(() => expired.value === 1, 'one session has expired');
    expired.end();
    // After a restart, Mosquitto before 2.0.12 no longer expires sessions loaded from disk.
    await plant.mosquitto!.stop();
    await plant.mosquitto!.start(persistence());
    await relay(sender, numbers(1 + EVENTS));
    await keeps.start();
    await forgets.start();
    await keeps.until(() => ranOnce(keeps, numbers(1, 2 * EVENTS)), 'all waiting messages have arrived');
    await plant.openWay(sender, [forgets]);
    await keeps.until(
      () => forgets.logged('broker.session_forgotten').length === 1,
      'the agent reports the lost events',
    );
    await relay(sender, [1_000]);
    for (const gateway of [keeps, forgets]) await gateway.until(() => ranOnce(gateway, [1_000]), 'new messages arrive');
    expect(ranAt(forgets).filter((value) => value > 0)).toEqual([1_000]);
    expect(keeps.logged('broker.session_forgotten')).toEqual([]);
    expect(ranOnce(keeps, numbers(1, 2 * EVENTS))).toBe(true);
  });

  it('receives NATS events within the stream retention time despite a server restart', async () => {
    const { source, topic } = await plant.broker('nats');
    const from = { env: { WEBHOOK_FROM: `broker ${topic}` }, asset: 881, reactions: REACTION };
    const gateway = await plant.agent(source, from);
    const sender = await plant.agent(source, { env: { WEBHOOK_TO: `broker ${topic}` }, asset: 1 });
    await plant.openWay(sender, [gateway]);
    await gateway.end('SIGTERM');
    await relay(sender, numbers(1));
    await plant.nats!.stop(0);
    plant.nats!.startOne(0);
    await plant.nats!.untilReady();
    await relay(sender, numbers(1 + EVENTS));
    await gateway.start();
    await gateway.until(() => ranOnce(gateway, numbers(1, 2 * EVENTS)), 'all waiting messages have arrived');
    await gateway.end('SIGTERM');
    await relay(sender, numbers(500));
    const { streams } = await plant.nats!.manager();
    const bounded = async (seconds: number) => {
      const { config } = await streams.info('EVENTS');
      const nanos = seconds * 1e9;
      await streams.update('EVENTS', { ...config, max_age: nanos, duplicate_window: nanos || 120e9 });
    };
    await bounded(1);
    await sender.until(
      async () => (await streams.info('EVENTS')).state.messages === 0,
      'the stream has removed the messages',
    );
    await bounded(0);
    await gateway.start();
    await relay(sender, [1_000]);
    await gateway.until(() => ranOnce(gateway, [1_000]), 'new messages arrive');
    expect(ranAt(gateway).filter((value) => value > 0)).toEqual([...numbers(1, 2 * EVENTS), 1_000]);
  });
});

/** Counter reported by Mosquitto. */
async function counterOf(port: number, topic: string): Promise<{ readonly value: number | undefined; end(): void }> {
  const client = connect(`mqtt://127.0.0.1:${port}`, { reconnectPeriod: 0 });
  client.on('error', () => {});
  let value: number | undefined;
  const first = new Promise<void>((resolve) =>
    client.on('message', (_, payload) => {
      value = Number(payload.toString());
      resolve();
    }),
  );
  client.on('connect', () => client.subscribe(topic));
  await first;
  return {
    get value() {
      return value;
    },
    end: () => client.end(true),
  };
}
