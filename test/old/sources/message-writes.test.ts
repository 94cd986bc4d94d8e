/** Writes that are published to an MQTT broker or a NATS server, and reported by the device on another topic. */
import { connect } from 'mqtt';
import { newClient } from 'sparkplug-client';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';
import { NatsServers } from '../../e2e/harness/nats-servers.ts';
import { runVerb } from '../commands/verb-run.ts';

/** Edge node from Eclipse Tahu. */
interface TahuNode {
  on(event: 'birth' | 'ncmd' | 'dcmd', listener: (...args: unknown[]) => void): void;
  publishNodeBirth(payload: object): void;
  publishNodeData(payload: object): void;
  publishDeviceBirth(device: string, payload: object): void;
  publishDeviceData(device: string, payload: object): void;
  stop(): void;
}

interface Command {
  metrics: { name: string; type: string; value: unknown }[];
}

let sandbox: Sandbox;
let agent: AgentProcess;
const cleanUps: (() => unknown)[] = [];

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  await agent.dispose();
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  await sandbox.stop();
});

async function startAgent(source: string, members: string, writable = '{ min: 0, max: 100 }'): Promise<void> {
  agent.write(sandbox.url, {
    env: { WRITES: 'on' },
    tags: `sources: { broker: ${source} }\ntags:\n  VALVE-1: { asset: 882, values: { setpoint: { from: broker, ${members}, writable: ${writable} } } }\n`,
  });
  await agent.start();
  await agent.until(() => agent.logged('broker.connected').length > 0, 'the broker is connected');
}

const write = (value: number) =>
  runVerb(['write', 'VALVE-1', 'setpoint', String(value), '--yes', '--config', agent.config]);

/** A valve on an MQTT broker that reports values up to `max`. */
async function makeValve(max: number): Promise<{ broker: Mosquitto; received: string[] }> {
  const broker = await Mosquitto.make();
  cleanUps.push(() => broker.dispose());
  await broker.start();
  const received: string[] = [];
  const valve = connect(`mqtt://127.0.0.1:${broker.port}`);
  cleanUps.push(() => valve.end(true));
  valve.on('message', (_, payload) => {
    received.push(payload.toString());
    if (max > 0) valve.publish('valve/state', JSON.stringify({ v: Math.min(Number(payload.toString()), max) }));
  });
  await new Promise<void>((resolve) => valve.on('connect', () => valve.subscribe('valve/set', () => resolve())));
  return { broker, received };
}

const MQTT_MEMBERS = 'topic: valve/state, at: /v, write_to: valve/set';

describe('MQTT write', () => {
  it('is published, and verified by the value that the device reports', async () => {
    const { broker, received } = await makeValve(100);
    await startAgent(`{ mqtt: "mqtt://127.0.0.1:${broker.port}" }`, `${MQTT_MEMBERS}, scale: 0.5`);
    expect((await write(20)).stdout).toContain('written (previous unknown, requested 20, read back 20)');
    expect((await write(30)).stdout).toContain('written (previous 20, requested 30, read back 30)');
    expect((await write(101)).stderr).toContain('101 is not within 0 to 100');
    expect(received).toEqual(['40', '60']);
  });

  it('fails if the device reports another value', async () => {
    const { broker } = await makeValve(50);
    await startAgent(`{ mqtt: "mqtt://127.0.0.1:${broker.port}" }`, MQTT_MEMBERS);
    expect(await write(60)).toMatchObject({ status: 1, stdout: expect.stringContaining('returns 50 instead of 60') });
  });

  it('is rejected if max_rate cannot be checked, because no value has been reported', async () => {
    const { broker, received } = await makeValve(0);
    const writable = '{ min: 0, max: 100, max_rate: { change: 10, per: 1m } }';
    await startAgent(`{ mqtt: "mqtt://127.0.0.1:${broker.port}" }`, MQTT_MEMBERS, writable);
    expect((await write(5)).stdout).toContain('the current value is unknown');
    expect(received).toEqual([]);
  });
});

describe('Sparkplug write', () => {
  it('is sent as a command to the node or device in the type of the metric, and verified', async () => {
    const broker = await Mosquitto.make();
    cleanUps.push(() => broker.dispose());
    await broker.start();
    const url = `mqtt://127.0.0.1:${broker.port}`;
    const node = newClient({
      serverUrl: url,
      username: '',
      password: '',
      groupId: 'Plant1',
      edgeNode: 'press',
      clientId: 'press',
      version: 'spBv1.0',
      publishDeath: true,
    }) as unknown as TahuNode;
    cleanUps.push(() => node.stop());
    const born = (name: string, type: string, value: number) => ({
      timestamp: Date.now(),
      metrics: [{ name, type, value }],
    });
    const bear = () => {
      node.publishNodeBirth(born('Speed', 'Double', 1));
      node.publishDeviceBirth('valve', born('Position', 'Int16', 2));
    };
    const received: string[] = [];
    const commanded = (device: string | undefined, { metrics }: Command) => {
      const [metric] = metrics;
      if (metric!.name.startsWith('Node Control')) return bear();
      received.push(`${device} ${metric!.name} ${metric!.type} ${metric!.value}`);
      const payload = { timestamp: Date.now(), metrics };
      if (device === undefined) node.publishNodeData(payload);
      else node.publishDeviceData(device, payload);
    };
    node.on('birth', bear);
    node.on('ncmd', (payload) => commanded(undefined, payload as Command));
    node.on('dcmd', (device, payload) => commanded(device as string, payload as Command));
    agent.write(sandbox.url, {
      env: { WRITES: 'on' },
      tags: `sources: { cells: { sparkplug: "${url}", group: Plant1 } }
tags:
  VALVE-1: { asset: 882, values: { setpoint: { from: cells, metric: press/valve/Position, writable: { min: -50, max: 100 } }, speed: { from: cells, metric: press/Speed, writable: { min: 0, max: 9 } } } }\n`,
    });
    await agent.start();
    await agent.until(() => sandbox.values.list(882, 'setpoint').length > 0, 'the birth certificate has arrived');
    expect((await write(-7)).stdout).toContain('previous 2, requested -7, read back -7');
    expect((await write(7.5)).stdout).toContain('does not fit the type of the metric');
    const speed = await runVerb(['write', 'VALVE-1', 'speed', '2.5', '--yes', '--config', agent.config]);
    expect(speed.stdout).toContain('previous 1, requested 2.5, read back 2.5');
    expect(received).toEqual(['valve Position Int16 -7', 'undefined Speed Double 2.5']);
  });
});

describe('NATS write', () => {
  it('is published, and verified by the value that the device reports', async () => {
    const servers = await NatsServers.make();
    cleanUps.push(() => servers.dispose());
    await servers.start();
    await (await servers.manager()).streams.add({ name: 'PLANT', subjects: ['valve.state'] });
    const valve = await servers.connection();
    valve.subscribe('valve.set', {
      callback: (_, message) => valve.publish('valve.state', message.data),
    });
    await valve.flush();
    await startAgent(`{ nats: "${servers.url}" }`, 'subject: valve.state, write_to: valve.set');
    expect((await write(20.5)).stdout).toContain('requested 20.5, read back 20.5');
  });
});
