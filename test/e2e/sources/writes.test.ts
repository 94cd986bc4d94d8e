// Requires: root, pymodbus.server, mosquitto, nats-server
/** Writes to devices by a rule on local values and by `tagferry write`, over each kind of source that can be written. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { chownSync, existsSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect } from 'mqtt';
import { newClient } from 'sparkplug-client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { Peer } from '../harness/modbus-peer.ts';
import { Mosquitto } from '../harness/mosquitto.ts';
import { NatsServers } from '../harness/nats-servers.ts';
import { Platform } from '../harness/platform.ts';
import { runVerb } from '../harness/verb.ts';
import { CONTROL_SERVER, PROOF_FOLDER, prove } from '../harness/write-proof.ts';

/** Edge node from Eclipse Tahu. */
interface TahuNode {
  on(event: 'birth' | 'ncmd' | 'dcmd', listener: (...args: unknown[]) => void): void;
  publishNodeBirth(payload: object): void;
  publishDeviceBirth(device: string, payload: object): void;
  publishDeviceData(device: string, payload: object): void;
  stop(): void;
}

/** Register of the setpoint, which the device initially sets to 100. */
const SETPOINT = 100;

let platform: Platform;
let agent: AgentProcess;
let peer: Peer;
const received = { mqtt: [] as string[], sparkplug: [] as string[] };
const cleanUps: (() => unknown)[] = [];

async function startMqttValve(url: string): Promise<void> {
  const valve = connect(url);
  cleanUps.push(() => valve.end(true));
  valve.on('message', (_, payload) => {
    received.mqtt.push(payload.toString());
    valve.publish('valve/state', JSON.stringify({ v: Number(payload.toString()) }));
  });
  await new Promise<void>((resolve) => valve.on('connect', () => valve.subscribe('valve/set', () => resolve())));
}

function startSparkplugNode(serverUrl: string): void {
  const identity = { groupId: 'Plant1', edgeNode: 'press', clientId: 'press', version: 'spBv1.0' };
  const node = newClient({
    serverUrl,
    username: '',
    password: '',
    publishDeath: true,
    ...identity,
  }) as unknown as TahuNode;
  cleanUps.push(() => node.stop());
  const payloadOf = (metrics: readonly object[]) => ({ timestamp: Date.now(), metrics });
  const bear = () => {
    node.publishNodeBirth(payloadOf([]));
    node.publishDeviceBirth('valve', payloadOf([{ name: 'Position', type: 'Int16', value: 2 }]));
  };
  node.on('birth', bear);
  node.on('ncmd', bear);
  node.on('dcmd', (device, command) => {
    const { metrics } = command as { metrics: { name: string; type: string; value: unknown }[] };
    received.sparkplug.push(...metrics.map(({ name, type, value }) => `${device} ${name} ${type} ${value}`));
    node.publishDeviceData(device as string, payloadOf(metrics));
  });
}

beforeAll(async () => {
  platform = await Platform.start();
  peer = await Peer.tcp();
  const broker = await Mosquitto.make();
  cleanUps.push(() => broker.dispose());
  await broker.start();
  const url = `mqtt://127.0.0.1:${broker.port}`;
  await startMqttValve(url);
  startSparkplugNode(url);
  const servers = await NatsServers.make();
  cleanUps.push(() => servers.dispose());
  await servers.start();
  await (await servers.manager()).streams.add({ name: 'PLANT', subjects: ['valve.state'] });
  const natsValve = await servers.connection();
  natsValve.subscribe('valve.set', { callback: (_, { data }) => natsValve.publish('valve.state', data) });
  await natsValve.flush();
  agent = new AgentProcess(platform.url, {
    env: { WRITES: 'on' },
    tags: `sources:
  plc: { modbus: "tcp://127.0.0.1:${peer.port}", every: 1s, timeout: 20s }
  broker: { mqtt: "${url}" }
  cells: { sparkplug: "${url}", group: Plant1 }
  stream: { nats: "${servers.url}" }
tags:
  FT-101: { asset: 881, values: { flow: {} } }
  VALVE-1:
    asset: 882
    values:
      setpoint: { from: plc, register: holding ${SETPOINT}, scale: 0.1, writable: { min: 0, max: 100 } }
      mqtt: { from: broker, topic: valve/state, at: /v, write_to: valve/set, scale: 0.5, writable: { min: 0, max: 100 } }
      slow: { from: broker, topic: slow/state, write_to: slow/set, writable: { min: 0, max: 9, max_rate: { change: 1, per: 1m } } }
      sparkplug: { from: cells, metric: press/valve/Position, writable: { min: -50, max: 100 } }
      nats: { from: stream, subject: valve.state, write_to: valve.set, writable: { min: 0, max: 100 } }
`,
    reactions: `reactions:
  - name: follow
    on: value
    max_age: 10m
    if: { tag: FT-101, key: flow, changes: true }
    do: [{ write: { tag: VALVE-1, key: setpoint, value: "{{content.data.value}}" } }]
`,
  });
  await agent.start();
  expect((await agent.push([{ tag: 'FT-101', key: 'flow', value: 0 }])).status).toBe(204);
});
afterAll(async () => {
  await agent?.dispose();
  for (const cleanUp of cleanUps.reverse()) await cleanUp();
  await peer?.end();
  await platform?.stop();
});

const write = (key: string, value: number | string) => runVerb(agent, 'write', 'VALVE-1', key, String(value), '--yes');
const newWrites = () => {
  const before = peer.written(SETPOINT).length;
  return () =>
    peer
      .written(SETPOINT)
      .slice(before)
      .map(([value]) => value);
};

async function pushFlow(value: number): Promise<void> {
  expect((await agent.push([{ tag: 'FT-101', key: 'flow', value }])).status).toBe(204);
}

async function newestEvent(): Promise<{ id: number; event_type: string; state: string; text: string }> {
  const [newest] = JSON.parse((await runVerb(agent, 'events', 'ls', '--json')).stdout);
  const { stdout: text } = await runVerb(agent, 'events', 'show', String(newest.id));
  return { ...newest, text };
}

const CONTROL = () => join(agent.state, 'control.sock');

async function confirm(body: object): Promise<{ status: number; text: string }> {
  return await agent.call(CONTROL(), '/write/confirm', { body: JSON.stringify(body) });
}

const REQUEST = { tag: 'VALVE-1', key: 'setpoint', value: 20 };

describe('write action', () => {
  it('writes the scaled value, verifies it, and records it in journal, log and metrics', async () => {
    const writes = newWrites();
    await pushFlow(42.5);
    await agent.until(() => agent.logged('write.done').length > 0, 'the value is written');
    expect(writes()).toEqual([425]);
    const fields = {
      tag: 'VALVE-1',
      key: 'setpoint',
      by: 'reaction follow',
      previous: 10,
      requested: 42.5,
      readBack: 42.5,
    };
    expect(agent.logged('write.done')[0]).toMatchObject(fields);
    expect(await agent.metric('tagferry_writes_total{outcome="written"}')).toBe(1);
    await agent.until(async () => (await newestEvent()).state === 'done', 'the event is completed');
    expect((await newestEvent()).text).toContain('previous 10, requested 42.5, read back 42.5');
  });

  it('writes nothing outside the range, and fails with the value that the device returns instead', async () => {
    const writes = newWrites();
    for (const value of [100.1, -0.1]) await pushFlow(value);
    await agent.until(() => agent.logged('reaction.dead').length === 2, 'both actions have failed');
    expect([writes(), await agent.metric('tagferry_writes_total{outcome="rejected"}')]).toEqual([[], 2]);
    await peer.configure({ clamp: 300 });
    await pushFlow(50);
    await agent.until(() => agent.logged('reaction.dead').length === 3, 'the action has failed');
    await peer.configure({ clamp: 10_000 });
    expect([writes(), (await newestEvent()).text]).toEqual([
      [500],
      expect.stringContaining('returns 30 instead of 50'),
    ]);
  });
});

describe('tagferry write', () => {
  it('writes a value and records the operator, and is not repeated by a replay', async () => {
    const writes = newWrites();
    expect(await write('setpoint', 20)).toMatchObject({ status: 0, stdout: expect.stringContaining(': written') });
    const event = await newestEvent();
    expect(event).toMatchObject({ event_type: 'value_written', state: 'done' });
    expect(event.text).toMatch(/by operator \S+: previous \S+, requested 20, read back 20/);
    await runVerb(agent, 'events', 'replay', String(event.id));
    await agent.until(async () => (await newestEvent()).state === 'dead', 'the replay has failed');
    expect([writes(), (await newestEvent()).text]).toEqual([[200], expect.stringContaining('cannot be replayed')]);
  });

  it('applies the same guards as a reaction', async () => {
    const writes = newWrites();
    const rejected = [
      [['VALVE-1', 'setpoint', '101', '--yes'], '101 is not within 0 to 100'],
      [['VALVE-1', 'setpoint', 'wide', '--yes'], 'value must be a number'],
      [['VALVE-1', 'speed', '1', '--yes'], 'has no value "speed"'],
      [['FT-101', 'flow', '1', '--yes'], 'is not writable'],
      [['VALVE-1', 'setpoint', '20'], 'Confirmation requires a terminal'],
    ] as const;
    const found = await Promise.all(rejected.map(([args]) => runVerb(agent, 'write', ...args)));
    for (const [at, { status, stderr }] of found.entries())
      expect([status === 0, stderr]).toEqual([false, expect.stringContaining(rejected[at]![1])]);
    expect(writes()).toEqual([]);
  });

  it('requires a proof of root, which is valid for one write, and is not available on any listener', async () => {
    const writes = newWrites();
    const statusOf = async (id: string) => (await confirm({ id, ...REQUEST, value: 50 })).status;
    const { id, remove } = await prove({ ...REQUEST, user: 'root' });
    expect([await statusOf(id), await statusOf(id)]).toEqual([200, 400]);
    await remove();
    const expired = await prove({ ...REQUEST, user: 'root' }, -1);
    const foreign = randomUUID();
    writeFileSync(join(PROOF_FOLDER, foreign), JSON.stringify({ ...REQUEST, user: 'x', untilMs: 1e15 }));
    chownSync(join(PROOF_FOLDER, foreign), 65_534, 65_534);
    for (const one of ['', '../x', randomUUID(), expired.id, foreign])
      expect([one, await statusOf(one)]).toEqual([one, 400]);
    await expired.remove();
    rmSync(join(PROOF_FOLDER, foreign));
    for (const socket of [agent.ops, agent.ingest, agent.webhook]) {
      for (const path of ['/write/preview', '/write/confirm'])
        expect((await agent.call(socket, path, { body: JSON.stringify(REQUEST) })).status).toBeGreaterThanOrEqual(400);
    }
    expect(writes()).toEqual([200]);
  });
});

/** Body of a request that a stand-in for the control socket has received. */
async function confirmedAt(socketPath: string, target: string): Promise<{ id: string; error: string }> {
  const bodies: string[] = [];
  const server = createServer(async (incoming, response) => {
    bodies.push(await text(incoming));
    const prepared = { id: 'any text', file: target, name: 'VALVE-1', value: 20, previous: 1 };
    const confirmed = { outcome: 'written', detail: 'done', event: 1 };
    response.setHeader('Server', CONTROL_SERVER);
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify(incoming.url!.endsWith('preview') ? prepared : confirmed));
  });
  // The killed agent has left its socket file.
  rmSync(socketPath);
  server.listen(socketPath);
  await once(server, 'listening');
  const { stderr: error } = await write('setpoint', 20);
  server.close();
  return { ...JSON.parse(bodies[1]!), error };
}

describe('concurrent manual writes', () => {
  it('are recorded as separate events', async () => {
    const values = [10, 20, 30, 40];
    const proofs = await Promise.all(values.map((value) => prove({ ...REQUEST, value, user: 'root' })));
    const confirmed = await Promise.all(proofs.map(({ id }) => confirm({ id })));
    for (const { remove } of proofs) await remove();
    const events = confirmed.map(({ text }) => (JSON.parse(text) as { event: number }).event);
    expect(new Set(events).size).toBe(values.length);
    const { stdout } = await runVerb(agent, 'events', 'show', String(events[2]));
    expect(stdout).toContain('write VALVE-1 setpoint 30');
  });
});

describe('write over a broker', () => {
  it('is published to an MQTT topic, and verified by the value that the device reports', async () => {
    const [written, slow] = await Promise.all([write('mqtt', 20), write('slow', 5)]);
    expect(written.stdout).toContain('written (previous unknown, requested 20, read back 20)');
    expect(slow.stdout).toContain('the current value is unknown');
    expect(received.mqtt).toEqual(['40']);
  });

  it('is a Sparkplug command in the type of the metric', async () => {
    await agent.until(() => platform.stored(882, 'sparkplug').length > 0, 'the birth certificate has arrived');
    expect((await write('sparkplug', -7)).stdout).toContain('previous 2, requested -7, read back -7');
    expect((await write('sparkplug', 7.5)).stdout).toContain('does not fit the type of the metric');
    expect(received.sparkplug).toEqual(['valve Position Int16 -7']);
  });

  it('is published to a NATS subject', async () => {
    expect((await write('nats', 20.5)).stdout).toContain('requested 20.5, read back 20.5');
  });
});

describe('write interrupted by kill -9', () => {
  it('is repeated if a reaction caused it but not if an operator did, and root trusts no other process', async () => {
    await peer.configure({ unit: 1, mute_writes: true });
    const writes = newWrites();
    const { id, remove } = await prove({ ...REQUEST, value: 70, user: 'root' });
    await pushFlow(60);
    await agent.until(() => writes().length > 0, 'the device has received the write of the reaction');
    const confirmed = confirm({ id }).catch(() => undefined);
    await agent.until(async () => (await newestEvent()).event_type === 'value_written', 'the manual write is recorded');
    await agent.end('SIGKILL');
    await confirmed;
    await remove();
    // A process that takes over the control socket cannot choose the file that root creates.
    const target = join(agent.folder, 'target');
    const { id: created, error } = await confirmedAt(CONTROL(), target);
    expect([error, existsSync(target), existsSync(join(PROOF_FOLDER, created))]).toEqual(['', false, false]);
    await peer.configure({ unit: 1 });
    const done = agent.logged('write.done').length;
    await agent.start();
    await agent.until(() => agent.logged('write.done').length > done, 'the action writes again');
    expect(new Set(writes())).toEqual(new Set([600]));
    await agent.until(async () => (await newestEvent()).state === 'dead', 'the manual write has failed');
    expect((await newestEvent()).text).toContain('interrupted by a crash or power failure');
  });
});
