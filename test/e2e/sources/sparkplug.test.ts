// Requires: mosquitto
import { createRequire } from 'node:module';
import { setTimeout as pause } from 'node:timers/promises';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { connectAsync, type MqttClient } from 'mqtt';
import { newClient } from 'sparkplug-client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { Mosquitto } from '../harness/mosquitto.ts';
import { Platform } from '../harness/platform.ts';
import { runVerb } from '../harness/verb.ts';

/** Eclipse Tahu's encoder. */
const { get } = createRequire(import.meta.url)('sparkplug-payload') as {
  get(version: string): { encodePayload(payload: object): Uint8Array };
};
const { encodePayload } = get('spBv1.0');
/** Time of a node whose clock was not set. */
const UNSET_MS = 900_000_000;
const START_MS = 1_700_000_000_000;
const REBIRTH = { name: 'Node Control/Rebirth', type: 'Boolean', value: false };

/** Edge node from Eclipse Tahu. */
interface TahuNode {
  on(event: 'birth' | 'ncmd', listener: () => void): void;
  publishNodeBirth(payload: object): void;
  publishNodeData(payload: object): void;
  publishDeviceBirth(device: string, payload: object): void;
  publishDeviceData(device: string, payload: object): void;
  stop(): void;
}

let platform: Platform;
let broker: Mosquitto;
let agent: AgentProcess;
let watcher: MqttClient;
let counter: Counter;
const nodes: TahuNode[] = [];
const states: boolean[] = [];

const url = () => `mqtt://127.0.0.1:${broker.port}`;
const stored = (key: string) => platform.stored(881, key);
/** Accepted value of a number. */
const at = (key: string, n: number) => stored(key).find(({ timestampMs }) => timestampMs === START_MS + n);

async function report(): Promise<{ problem: string | null }> {
  return ((await agent.status()).sources as { problem: string | null }[])[0]!;
}

/** Edge node that publishes each number once, identified by alias; a birth certificate contains the latest number. */
class Counter {
  readonly #node: TahuNode;
  n: number;
  births = 0;

  constructor(n: number) {
    this.n = n;
    this.#node = newClient({
      serverUrl: url(),
      username: '',
      password: '',
      groupId: 'Plant1',
      edgeNode: 'press-4',
      clientId: `press-4-${nodes.length}`,
      version: 'spBv1.0',
      publishDeath: true,
    }) as unknown as TahuNode;
    nodes.push(this.#node);
    this.#node.on('birth', () => this.#publishBirths());
    // The only command that the agent sends.
    this.#node.on('ncmd', () => this.#publishBirths());
  }

  #publishBirths(): void {
    this.births++;
    const timestamp = START_MS + this.n;
    this.#node.publishNodeBirth({ timestamp, metrics: [REBIRTH, this.#metric({ name: 'Line/Count' })] });
    const pressure = { name: 'Pressure', alias: 9, timestamp, type: 'Int16', value: -(this.n % 1_000) };
    this.#node.publishDeviceBirth('press', { timestamp, metrics: [pressure] });
  }

  #metric(more: object) {
    return { alias: 3, timestamp: START_MS + this.n, type: 'Int32', value: this.n, ...more };
  }

  say(): void {
    this.n++;
    const timestamp = START_MS + this.n;
    const properties = { Quality: { type: 'Int32', value: this.n % 2 === 0 ? 192 : 64 } };
    this.#node.publishNodeData({ timestamp, metrics: [this.#metric({ properties })] });
    const metrics = [{ alias: 9, timestamp, type: 'Int16', value: -(this.n % 1_000) }];
    this.#node.publishDeviceData('press', { timestamp, metrics });
  }

  leave(): void {
    this.#node.stop();
  }
}

/** Edge node that publishes numbers identified by name with QoS 1, and a birth certificate when it is requested. */
class ConfirmedNode {
  readonly #client: MqttClient;
  #seq = 0;
  n = 0;

  constructor(client: MqttClient) {
    this.#client = client;
    client.on('message', () => void this.#publishBirth());
  }

  static async open(): Promise<ConfirmedNode> {
    const client = await connectAsync(url(), { clientId: 'press-9' });
    const node = new ConfirmedNode(client);
    await client.subscribeAsync('spBv1.0/Plant1/NCMD/press-9');
    await node.#publishBirth();
    return node;
  }

  #publishBirth(): Promise<unknown> {
    this.#seq = 0;
    return this.#publish('NBIRTH', [REBIRTH]);
  }

  say(): Promise<unknown> {
    this.n++;
    return this.#publish('NDATA', []);
  }

  sayAt(timestamp: number, more: { isHistorical?: true } = {}): Promise<unknown> {
    return this.#publish('NDATA', [{ name: 'Count', timestamp, type: 'Int32', value: timestamp, ...more }]);
  }

  #publish(type: string, more: object[]): Promise<unknown> {
    const timestamp = START_MS + this.n;
    const metrics = [...more, { name: 'Count', timestamp, type: 'Int32', value: this.n }];
    const payload = encodePayload({ timestamp, seq: this.#seq++ % 256, metrics });
    return this.#client.publishAsync(`spBv1.0/Plant1/${type}/press-9`, Buffer.from(payload), { qos: 1 });
  }

  async end(): Promise<void> {
    await this.#client.endAsync(true);
  }
}

beforeAll(async () => {
  platform = await Platform.start();
  broker = await Mosquitto.make();
  await broker.start();
  watcher = await connectAsync(url());
  watcher.on('message', (_, payload) => states.push(JSON.parse(payload.toString()).online));
  await watcher.subscribeAsync('spBv1.0/STATE/gateway');
  agent = new AgentProcess(platform.url, {
    tags: `sources: { cells: { sparkplug: "${url()}", group: Plant1, primary_host: gateway } }
tags:
  T:
    asset: 881
    values:
      count: { unit: 1, from: cells, metric: "press-4/Line/Count" }
      pressure: { unit: 1, from: cells, metric: press-4/press/Pressure, on_failure: bad }
      cold: { unit: 1, from: cells, metric: press-7/Temperature }
      sure: { unit: 1, from: cells, metric: press-9/Count }
`,
    env: { COMMIT_INTERVAL: '200ms', POST_INTERVAL: '100ms' },
  });
  await agent.start();
  await agent.until(() => states.at(-1) === true, 'the host announces that it is online');
  counter = new Counter(0);
  await agent.until(() => at('count', 0) !== undefined, 'the birth certificate arrives');
});
afterAll(async () => {
  for (const node of nodes) node.stop();
  watcher?.end(true);
  await agent?.dispose();
  await broker?.dispose();
  await platform?.stop();
});

describe('Sparkplug B source', () => {
  it('delivers values that a node identifies by alias, with their timestamps and quality', async () => {
    const first = counter.n + 1;
    for (let n = 0; n < 30; n++) counter.say();
    const all = Array.from({ length: 30 }, (_, n) => first + n);
    await agent.until(() => all.every((n) => at('count', n) && at('pressure', n)), 'all values arrive');
    expect(all.map((n) => [at('count', n)!.value, at('count', n)!.status])).toEqual(
      all.map((n) => [n, n % 2 === 0 ? 'good' : 'uncertain']),
    );
    expect(all.map((n) => at('pressure', n)!.value)).toEqual(all.map((n) => -n));
    expect(at('count', 0)).toMatchObject({ value: 0, status: undefined });
  });

  it('delivers an integer without a data type only after the birth certificate defines its sign', async () => {
    const client = await connectAsync(url(), { clientId: 'press-7' });
    const data = (value: number) => {
      const metric = new BinaryWriter().tag(1, WireType.LengthDelimited).string('Temperature');
      metric
        .tag(3, WireType.Varint)
        .uint64(String(START_MS + value))
        .tag(10, WireType.Varint)
        .uint32(2 ** 32 - value);
      return Buffer.from(new BinaryWriter().tag(2, WireType.LengthDelimited).bytes(metric.finish()).finish());
    };
    await client.publishAsync('spBv1.0/Plant1/NDATA/press-7', data(11), { qos: 1 });
    const metrics = [REBIRTH, { name: 'Temperature', timestamp: START_MS, type: 'Int32', value: -10 }];
    const born = encodePayload({ timestamp: START_MS, seq: 0, metrics });
    await client.publishAsync('spBv1.0/Plant1/NBIRTH/press-7', Buffer.from(born), { qos: 1 });
    await client.publishAsync('spBv1.0/Plant1/NDATA/press-7', data(12), { qos: 1 });
    await agent.until(() => stored('cold').length === 3, 'all values arrive');
    expect(new Set(stored('cold').map(({ value }) => value))).toEqual(new Set([-10, -11, -12]));
    await client.endAsync();
  });

  it('requests birth certificates after a restart, and loses no stored value and no current state by kill -9', async () => {
    for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
      await platform.fail();
      const before = await agent.metric('tagferry_values_ingested_total');
      const first = counter.n + 1;
      for (let n = 0; n < 10; n++) counter.say();
      const isStored = async () => (await agent.metric('tagferry_values_ingested_total')) >= before + 20;
      await agent.until(isStored, 'the values are on disk');
      await agent.end(signal);
      await platform.recover();
      // QoS 0 messages to a stopped agent are lost, but not the state that they lead to.
      for (let n = 0; n < 5; n++) counter.say();
      const { births } = counter;
      await agent.start();
      await agent.until(() => counter.births > births, 'the agent requests a birth certificate');
      await agent.until(() => at('count', counter.n) !== undefined, 'the current state arrives');
      counter.say();
      await agent.until(() => at('pressure', counter.n) !== undefined, 'values identified by alias arrive');
      for (let n = first; n < first + 10; n++)
        expect([at('count', n)?.value, at('pressure', n)?.value]).toEqual([n, -n]);
    }
    await agent.until(() => states.at(-1) === true, 'the host announces that it is online');
    expect(states).toContain(false);
  });

  it('sends the last value with status bad when the node dies, and continues after its next birth', async () => {
    counter.say();
    await agent.until(() => at('pressure', counter.n) !== undefined, 'the latest value arrives');
    counter.leave();
    // The failure has the current time, which is after the times of the numbers.
    await agent.until(() => stored('pressure').at(-1)?.status === 'bad', 'the death is reported');
    expect(stored('pressure').at(-1)!.value).toBe(at('pressure', counter.n)!.value);
    expect((await report()).problem).toContain('press-4 is offline');
    counter = new Counter(counter.n + 1_000);
    await agent.until(() => at('count', counter.n) !== undefined, 'the next birth certificate arrives');
    counter.say();
    await agent.until(() => at('count', counter.n) !== undefined, 'the next value arrives');
    await agent.until(async () => !(await report()).problem?.includes('press-4'), 'the problem is over');
  });

  it('is tested and scanned beside the running source, with a birth certificate and without another host state', async () => {
    counter.say();
    const { births } = counter;
    const changes = states.length;
    const [tested, scanned] = await Promise.all([
      runVerb(agent, 'sources', 'test', '--json', '--wait', '3s'),
      runVerb(agent, 'sources', 'scan', 'cells', 'press-4', '--yes', '--wait', '3s'),
    ]);
    const found = JSON.parse(tested.stdout) as { key: string; raw: number | null; address: string }[];
    expect(found.slice(0, 2)).toMatchObject([
      { key: 'count', raw: counter.n, address: 'press-4/Line/Count' },
      { key: 'pressure', raw: -(counter.n % 1_000), address: 'press-4/press/Pressure' },
    ]);
    expect(scanned.stdout).toContain('count: { from: cells, metric: "press-4/Line/Count" }');
    expect(scanned.stdout).toContain('pressure: { from: cells, metric: "press-4/press/Pressure" }');
    expect([counter.births > births, states.length]).toEqual([true, changes]);
  });

  it('announces itself as online again after another client announced it as offline', async () => {
    const foreign = JSON.stringify({ online: false, timestamp: Date.now() + 60_000 });
    const reports = agent.logged('sparkplug.host_offline').length;
    await watcher.publishAsync('spBv1.0/STATE/gateway', foreign, { qos: 1, retain: true });
    await agent.until(() => agent.logged('sparkplug.host_offline').length > reports, 'it is reported');
    await agent.until(() => states.at(-2) === false && states.at(-1) === true, 'the host is announced again');
  });

  it('loses and invents no value that a node publishes with QoS 1 across kill -9', async () => {
    const node = await ConfirmedNode.open();
    try {
      let isRunning = true;
      const flowing = (async () => {
        while (isRunning) {
          await node.say();
          await pause(20);
        }
      })();
      for (let kill = 0; kill < 2; kill++) {
        const from = node.n;
        await agent.until(() => stored('sure').some(({ value }) => value > from), 'values arrive');
        await agent.end('SIGKILL');
        await agent.start();
      }
      isRunning = false;
      await flowing;
      const sent = Array.from({ length: node.n }, (_, n) => ({ timestampMs: START_MS + n + 1, value: n + 1 }));
      await agent.until(() => platform.compare(881, 'sure', sent).missing.length === 0, 'all values arrive');
      const withFirst = [{ timestampMs: START_MS, value: 0 }, ...sent];
      expect(platform.compare(881, 'sure', withFirst)).toMatchObject({ invented: [], different: [] });
    } finally {
      await node.end();
    }
  });

  it('replaces the implausible timestamp of a live metric, and rejects a historical metric', async () => {
    const node = await ConfirmedNode.open();
    try {
      const beforeMs = Date.now();
      const live = () => stored('sure').filter(({ value }) => value === Math.floor(beforeMs / 1_000));
      await node.sayAt(UNSET_MS, { isHistorical: true });
      await node.sayAt(Math.floor(beforeMs / 1_000));
      await agent.until(() => live().length > 0, 'the live value arrives');
      expect(live()[0]!.timestampMs).toBeGreaterThanOrEqual(beforeMs);
      expect(stored('sure').filter(({ value }) => value === UNSET_MS)).toEqual([]);
      const errorOf = (event: string) => agent.logged(event).map(({ error }) => error);
      expect(errorOf('source.time_rejected')).toEqual([expect.stringContaining('1970-01-11T10:00:00.000Z is before')]);
      expect(errorOf('source.time_replaced')).toEqual([expect.stringContaining('the number appears to be in s')]);
    } finally {
      await node.end();
    }
  });
});
