import { join } from 'node:path';
import { connect, type MqttClient } from 'mqtt';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readStoppedInbox } from '../../src/control/stopped-inbox.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { sign } from '../../src/webhook/signature.ts';
import { Mosquitto } from '../broker/mosquitto.ts';
import { NatsServers } from '../broker/nats-servers.ts';
import { wholeLines } from '../whole-lines.ts';
import { AgentProcess } from './agent-process.ts';

/**
 * An agent that the platform reaches, a broker, and gateways that take the events from it. Bodies are signed here as the platform signs
 * them; what ran is counted at the gateways.
 */
const SECRET = 'only-platform-and-agents-know-it';
const HEADER = 'X-Hub-Signature-Sha256';

let sandbox: Sandbox;
let mosquitto: Mosquitto | undefined;
let nats: NatsServers | undefined;
let agents: AgentProcess[];
let clients: MqttClient[];

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  agents = [];
  clients = [];
  mosquitto = undefined;
  nats = undefined;
});
afterEach(async () => {
  for (const client of clients) client.end(true);
  await Promise.allSettled(agents.map((agent) => agent.dispose()));
  await mosquitto?.dispose();
  await nats?.dispose();
  await sandbox.stop();
});

/** What of an agent is told apart: whether it publishes or takes, and whose events it wants. */
async function agentOf(source: string, env: Record<string, string>, asset: number): Promise<AgentProcess> {
  const agent = new AgentProcess(sandbox.url);
  agents.push(agent);
  const ran = join(agent.folder, 'ran');
  agent.write(sandbox.url, {
    env: { WEBHOOK_SECRET: SECRET, ...env },
    tags: `sources: { broker: ${source} }\ntags:\n  T: { asset: ${asset}, values: { flow: {} } }\n`,
    reactions: `reactions:\n  - name: note\n    on: threshold_reached\n    do: [{ run: [/bin/sh, -c, 'echo "$TAGFERRY_VALUE" >> ${ran}'] }]\n`,
  });
  await agent.start();
  await agent.until(() => agent.logged('broker.connected').length > 0, 'the broker is connected');
  return agent;
}

function bodyOf(asset: number, value: number): string {
  const occurred_at = new Date().toISOString();
  const content = { asset: { id: asset }, threshold: { id: 1, type: 'high' }, data: { key: 'flow', value } };
  return JSON.stringify({ event_type: 'threshold_reached', occurred_at, content });
}

async function deliver(relay: AgentProcess, body: string, signature = sign(Buffer.from(body), SECRET)): Promise<void> {
  const headers = { 'Content-Type': 'application/json', [HEADER]: signature };
  const { status } = await relay.call(relay.webhook, '/webhook', { method: 'POST', headers, body });
  expect(status).toBe(204);
}

const ranAt = (agent: AgentProcess): number[] => wholeLines(join(agent.folder, 'ran')).map(Number);

/** The numbers of events whose reaction is not over, as the inbox of a gateway that does not run has them. */
async function unfinishedAt(agent: AgentProcess): Promise<number[]> {
  const events = await readStoppedInbox(agent.state, async (inbox) => inbox.list({ limit: 1_000 }));
  return events.filter(({ state }) => state !== 'done').map(({ payload }) => JSON.parse(payload).content.data.value);
}

async function mqttClient(port: number): Promise<MqttClient> {
  const client = connect(`mqtt://127.0.0.1:${port}`, { protocolVersion: 5, reconnectPeriod: 0 });
  clients.push(client);
  client.on('error', () => {});
  await new Promise<void>((resolve) => client.once('connect', () => resolve()));
  return client;
}

async function brokerOf(kind: 'mqtt' | 'nats'): Promise<{ source: string; topic: string }> {
  if (kind === 'mqtt') {
    mosquitto = await Mosquitto.make();
    await mosquitto.start();
    return { source: `{ mqtt: "mqtt://127.0.0.1:${mosquitto.port}" }`, topic: 'platform/events' };
  }
  nats = await NatsServers.make();
  await nats.start();
  await (await nats.manager()).streams.add({ name: 'EVENTS', subjects: ['platform.events'] });
  return { source: `{ nats: "${nats.url}", ack_wait: 1s }`, topic: 'platform.events' };
}

describe('events over a broker', () => {
  it.each(['mqtt', 'nats'] as const)(
    'by %s come to the gateway that they concern, once each but for what a kill -9 met, and to one that was off',
    async (kind) => {
      const { source, topic } = await brokerOf(kind);
      const from = { WEBHOOK_FROM: `broker ${topic}` };
      const meant = await agentOf(source, from, 881);
      const other = await agentOf(source, from, 902);
      const relay = await agentOf(source, { WEBHOOK_TO: `broker ${topic}` }, 1);
      // By MQTT a subscription counts from its beginning on.
      await meant.until(async () => {
        await deliver(relay, bodyOf(881, 0));
        return ranAt(meant).length > 0;
      }, 'the way is open');
      const sent: number[] = [];
      let unfinished: number[] = [];
      for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
        for (let n = 0; n < 10; n++) {
          sent.push(sent.length + 1);
          await deliver(relay, bodyOf(881, sent.length));
        }
        await meant.end(signal);
        if (signal === 'SIGKILL') unfinished = await unfinishedAt(meant);
        for (let n = 0; n < 5; n++) {
          sent.push(sent.length + 1);
          await deliver(relay, bodyOf(881, sent.length));
        }
        await relay.until(
          async () => (await relay.metric('tagferry_events_relayed_total')) > sent.length,
          'the broker has them',
        );
        await meant.start();
      }
      await meant.until(() => sent.every((number) => ranAt(meant).includes(number)), 'every event');
      expect((await meant.call(meant.ops, '/status')).status).toBe(200);
      // A command that ran at the kill, and whose end nobody noted, runs once more; nothing else does.
      const ran = ranAt(meant);
      const timesOf = (number: number) => ran.filter((one) => one === number).length;
      expect(sent.filter((number) => timesOf(number) !== 1 && !unfinished.includes(number))).toEqual([]);
      expect(sent.filter((number) => timesOf(number) > 2)).toEqual([]);
      await other.until(
        async () => (await other.metric('tagferry_events_elsewhere_total')) > sent.length,
        'it was told of all of them',
      );
      expect(await other.metric('tagferry_events_received_total')).toBe(0);
    },
  );

  it('that a broker changes on their way are refused, and one that comes twice is known', async () => {
    const { source } = await brokerOf('mqtt');
    const { port } = mosquitto!;
    const gateway = await agentOf(source, { WEBHOOK_FROM: 'broker tampered/events' }, 881);
    const relay = await agentOf(source, { WEBHOOK_TO: 'broker platform/events' }, 1);
    const tamperer = await mqttClient(port);
    const passOn = (payload: Buffer | string, userProperties?: Record<string, string>) =>
      tamperer.publishAsync('tampered/events', payload, {
        qos: 1,
        ...(userProperties ? { properties: { userProperties } } : {}),
      });
    const works: Promise<unknown>[] = [];
    const relayed: { body: string; signature: string | undefined }[] = [];
    tamperer.on('message', (_, payload, packet) => {
      const signed = { ...packet.properties?.userProperties } as Record<string, string>;
      relayed.push({ body: payload.toString(), signature: signed[HEADER.toLowerCase()] });
      const changed = payload.toString().replace('"id":881', '"id":881,"more":1').replace('"value":1', '"value":1000');
      works.push(
        (async () => {
          await passOn(changed, signed);
          await passOn(payload);
          await passOn(payload, { ...signed, [HEADER.toLowerCase()]: sign(payload, 'another secret') });
          // Twice as it was: once it counts.
          await passOn(payload, signed);
          await passOn(payload, signed);
        })(),
      );
    });
    await tamperer.subscribeAsync('platform/events', { qos: 1 });
    await gateway.until(async () => {
      // Until the gateway's own subscription stands, which nobody else sees.
      await passOn('{}');
      return (await gateway.metric('tagferry_events_rejected_total')) > 0;
    }, 'the gateway listens');
    const before = await gateway.metric('tagferry_events_rejected_total{reason="signature_wrong"}');
    const body = bodyOf(881, 1);
    // In capitals: known again as the platform's own, where the relay would write its own in small letters.
    const signature = sign(Buffer.from(body), SECRET).replace(/(?<=sha256=).*/, (hex) => hex.toUpperCase());
    await deliver(relay, body, signature);
    await gateway.until(() => ranAt(gateway).length > 0, 'what was not touched');
    expect(relayed).toEqual([{ body, signature }]);
    await Promise.allSettled(works);
    await gateway.until(
      async () => (await gateway.metric('tagferry_events_rejected_total{reason="signature_wrong"}')) === before + 2,
      'what was changed is counted',
    );
    expect(ranAt(gateway)).toEqual([1]);
    expect(await gateway.metric('tagferry_events_received_total')).toBe(1);
    expect(gateway.output).not.toContain(SECRET);
  });

  it('of access change what is held only where they tell of this gateway’s user', async () => {
    const { source, topic } = await brokerOf('mqtt');
    const from = { WEBHOOK_FROM: `broker ${topic}` };
    const known = await agentOf(source, { ...from, TECHNICAL_USER_ID: '5' }, 881);
    const unknown = await agentOf(source, from, 881);
    const relay = await agentOf(source, { WEBHOOK_TO: `broker ${topic}` }, 1);
    for (const agent of [known, unknown]) {
      await agent.until(async () => {
        await deliver(relay, bodyOf(881, 0));
        return ranAt(agent).length > 0;
      }, 'the way is open');
    }
    const gone = (user: number) =>
      JSON.stringify({
        event_type: 'asset_disappeared',
        occurred_at: new Date().toISOString(),
        content: { asset: { id: 881 }, user: { id: user } },
      });
    await deliver(relay, gone(6));
    await known.until(
      async () => (await known.metric('tagferry_events_elsewhere_total')) === 1,
      'that of another passes',
    );
    expect(await known.metric('tagferry_assets_held')).toBe(0);
    await deliver(relay, gone(5));
    await known.until(async () => (await known.metric('tagferry_assets_held')) === 1, 'its own holds the asset');
    await unknown.until(() => unknown.logged('access.user_unknown').length === 1, 'it says that it does not know');
    expect(await unknown.metric('tagferry_assets_held')).toBe(0);
    expect(await unknown.metric('tagferry_events_received_total{event_type="asset_disappeared"}')).toBe(2);
  });
});
