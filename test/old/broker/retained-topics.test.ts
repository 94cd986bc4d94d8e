import { once } from 'node:events';
import { statSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import mqtt, { type Packet } from 'mqtt-packet';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';
import { GatewayProcess } from '../agent/gateway-process.ts';

const TOPICS = 200_000;
const MB = 1_000_000;

let sandbox: Sandbox;
let broker: Mosquitto;
let gateway: GatewayProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  await sandbox.goOffline('refuse');
  broker = await Mosquitto.make();
  await broker.start();
});
afterEach(async () => {
  // Throws if the kernel killed the agent for exceeding the memory limit.
  await gateway.dispose();
  await broker.dispose();
  await sandbox.stop();
});

const topicOf = (at: number) => `plant/${String(at).padStart(294, '0')}`;

/** Resolves when the broker has processed all of them. */
async function publishRetained(): Promise<void> {
  const socket = connect(broker.port, '127.0.0.1');
  const parser = mqtt.parser({ protocolVersion: 4 });
  const write = (packet: object) => socket.write(mqtt.generate(packet as Packet, { protocolVersion: 4 }));
  const isOver = Promise.withResolvers<void>();
  parser.on('packet', ({ cmd }) => cmd === 'puback' && isOver.resolve());
  socket.on('error', isOver.reject).on('data', (bytes) => parser.parse(bytes));
  write({ cmd: 'connect', protocolId: 'MQTT', protocolVersion: 4, clientId: 'plant', clean: true, keepalive: 0 });
  for (let at = 0; at < TOPICS; at++) {
    const isLast = at === TOPICS - 1;
    const qos = isLast ? { qos: 1, messageId: 1 } : { qos: 0 };
    const hasRoom = write({ cmd: 'publish', topic: topicOf(at), payload: `${at}`, dup: false, retain: true, ...qos });
    if (!hasRoom) await once(socket, 'drain');
  }
  await isOver.promise;
  socket.destroy();
}

it('gateway with a memory limit of 256 MB handles 200,000 retained topics, even after a restart', {
  timeout: 300_000,
}, async () => {
  await publishRetained();
  const tags = `sources: { broker: { mqtt: "mqtt://127.0.0.1:${broker.port}" } }
tags: { T-1: { asset: 881, values: { a: { from: broker, topic: "plant/#" } } } }\n`;
  gateway = new GatewayProcess(sandbox.url, { tags, env: { COMMIT_INTERVAL: '1s' } });
  await gateway.start();
  const ingested = () => gateway.metric('tagferry_values_ingested_total');
  await gateway.until(async () => (await ingested()) >= TOPICS, 'every retained message is stored', 240_000);
  for (const end of ['SIGTERM', 'SIGKILL'] as const) {
    await gateway.end(end);
    await gateway.start();
    expect(await gateway.metric('tagferry_buffer_values')).toBeGreaterThanOrEqual(TOPICS);
  }
  await gateway.end('SIGTERM');
  const path = join(gateway.state, 'buffer.db');
  const database = new Database(path, { readonly: true });
  const notes = database.prepare("SELECT count(*) FROM note WHERE name LIKE 'source/broker/topic/%'").pluck().get();
  database.close();
  expect(notes).toBeLessThanOrEqual(20_000);
  expect(statSync(path).size).toBeLessThan(30 * MB);
});
