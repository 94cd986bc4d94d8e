import { connectAsync, type MqttClient } from 'mqtt';
import { newClient } from 'sparkplug-client';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';
import { runVerb } from '../commands/verb-run.ts';

/** Edge node from Eclipse Tahu. */
interface TahuNode {
  on(event: 'birth' | 'ncmd', listener: () => void): void;
  publishNodeBirth(payload: object): void;
  publishNodeData(payload: object): void;
  publishDeviceBirth(device: string, payload: object): void;
  publishDeviceData(device: string, payload: object): void;
  publishDeviceDeath(device: string, payload: object): void;
  stop(): void;
}

let sandbox: Sandbox;
let mosquitto: Mosquitto;
let agent: AgentProcess;
let nodes: TahuNode[];
let watcher: MqttClient;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  mosquitto = await Mosquitto.make();
  await mosquitto.start();
  nodes = [];
});
afterEach(async () => {
  for (const node of nodes) node.stop();
  watcher?.end(true);
  await agent.dispose();
  await mosquitto.dispose();
  await sandbox.stop();
});

const url = () => `mqtt://127.0.0.1:${mosquitto.port}`;
const stored = (key: string) => sandbox.values.list(881, key);

async function report(): Promise<SourceReport> {
  return ((await agent.status()).sources as SourceReport[])[0]!;
}

/** Counting node: each number once with its own time; a birth certificate contains the latest number. */
class Counter {
  readonly #node: TahuNode;
  n = 0;
  births = 0;

  constructor(name: string) {
    this.#node = newClient({
      serverUrl: url(),
      username: '',
      password: '',
      groupId: 'Plant1',
      edgeNode: name,
      clientId: `${name}-${nodes.length}`,
      version: 'spBv1.0',
      publishDeath: true,
    }) as unknown as TahuNode;
    nodes.push(this.#node);
    this.#node.on('birth', () => this.#bear());
    // The only command that the agent sends.
    this.#node.on('ncmd', () => this.#bear());
  }

  #bear(): void {
    this.births++;
    const timestamp = 1_700_000_000_000 + this.n;
    const control = { name: 'Node Control/Rebirth', type: 'Boolean', value: false };
    this.#node.publishNodeBirth({ timestamp, metrics: [control, this.#metric({ name: 'Line/Count' })] });
    const pressure = { name: 'Pressure', alias: 9, timestamp, type: 'Int16', value: -this.n };
    this.#node.publishDeviceBirth('press', { timestamp, metrics: [pressure] });
  }

  #metric(more: object) {
    return { alias: 3, timestamp: 1_700_000_000_000 + this.n, type: 'Int32', value: this.n, ...more };
  }

  say(): void {
    this.n++;
    const timestamp = 1_700_000_000_000 + this.n;
    const properties = { Quality: { type: 'Int32', value: this.n % 2 === 0 ? 192 : 64 } };
    this.#node.publishNodeData({ timestamp, metrics: [this.#metric({ properties })] });
    this.#node.publishDeviceData('press', {
      timestamp,
      metrics: [{ alias: 9, timestamp, type: 'Int16', value: -this.n }],
    });
  }

  leave(): void {
    this.#node.stop();
  }
}

describe('Sparkplug B edge nodes', () => {
  it('deliver each value once with timestamp and quality across node reboots and agent restarts', async () => {
    const values =
      'count: { unit: 1, from: cells, metric: "press-4/Line/Count" }, pressure: { unit: 1, from: cells, metric: press-4/press/Pressure, on_failure: bad }';
    const tags = `sources: { cells: { sparkplug: "${url()}", group: Plant1, primary_host: gateway } }
tags: { T-1: { asset: 881, values: { ${values} } } }\n`;
    agent = new AgentProcess(sandbox.url, { tags });
    watcher = await connectAsync(url());
    const states: { online: boolean; timestamp: number }[] = [];
    watcher.on('message', (_, payload) => states.push(JSON.parse(payload.toString())));
    await watcher.subscribeAsync('spBv1.0/STATE/gateway');
    await agent.start();
    await agent.until(() => states.at(-1)?.online === true, 'the host has published its online state');
    const counter = new Counter('press-4');
    await agent.until(() => stored('count').length === 1, 'the birth certificate has arrived');
    for (let n = 0; n < 50; n++) counter.say();
    await agent.until(
      () => stored('count').length === 51 && stored('pressure').length === 51,
      'all published values have arrived',
    );
    const at = (key: string) => new Map(stored(key).map((one) => [one.timestampMs - 1_700_000_000_000, one]));
    expect([...at('count')].map(([n, { value, status }]) => [n, value, status])).toEqual(
      Array.from({ length: 51 }, (_, n) => [n, n, n === 0 ? undefined : n % 2 === 0 ? 'good' : 'uncertain']),
    );
    expect([...at('pressure')].map(([n, { value }]) => [n, value])).toEqual(
      Array.from({ length: 51 }, (_, n) => [n, n === 0 ? 0 : -n]),
    );
    // While the agent is stopped, the node continues with QoS 0: those values are lost, but the current state is not.
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent
      .until(() => states.at(-1)?.online === false, 'the host has published its offline state')
      .catch(() => {});
    expect(states.at(-1)!.online).toBe(false);
    for (let n = 0; n < 10; n++) counter.say();
    const births = counter.births;
    await agent.start();
    await agent.until(() => counter.births > births, 'the node is asked for its birth certificate');
    await agent.until(() => at('count').has(counter.n), 'the current state has arrived');
    counter.say();
    await agent.until(() => at('count').has(counter.n), 'the node continues with aliases');
    // After a kill, the broker publishes the will message.
    await agent.end('SIGKILL');
    for (let tries = 0; states.at(-1)!.online && tries < 500; tries++) await new Promise((r) => setTimeout(r, 20));
    expect(states.at(-1)!.online).toBe(false);
    const beforeKill = counter.births;
    await agent.start();
    await agent.until(() => states.at(-1)!.online, 'the node is connected again');
    await agent.until(() => counter.births > beforeKill, 'the agent requests another birth certificate');
    counter.say();
    await agent.until(() => at('pressure').has(counter.n), 'messages after the birth certificate are received');
    // The node reboots: its values are bad until its next birth certificate.
    const before = stored('pressure').length;
    counter.leave();
    await agent.until(() => stored('pressure').length > before, 'the death certificate has arrived');
    expect(stored('pressure').at(-1)).toMatchObject({ status: 'bad' });
    await agent.until(async () => /press-4/.test((await report()).problem ?? ''), 'the state reports this');
    const again = new Counter('press-4');
    again.n = 1_000;
    await agent.until(() => at('count').has(1_000), 'the node has published another birth certificate');
    again.say();
    await agent.until(() => at('count').has(1_001), 'the node publishes');
    // No invented value: every number has its own time.
    for (const [n, { value }] of at('count')) expect(value).toBe(n);
    expect((await report()).connected).toBe(true);
  });

  it('are read by `sources test` and listed by `sources scan`, with and without a running agent', async () => {
    const values =
      'count: { unit: 1, from: cells, metric: press-4/Line/Count, scale: 10 }, pressure: { unit: 1, from: cells, metric: press-4/press/Pressure }';
    const source = `sources: { cells: { sparkplug: "${url()}", group: Plant1, primary_host: gateway } }\n`;
    agent = new AgentProcess(sandbox.url, { tags: `${source}tags: { T-1: { asset: 881, values: { ${values} } } }\n` });
    watcher = await connectAsync(url());
    const states: boolean[] = [];
    watcher.on('message', (_, payload) => states.push(JSON.parse(payload.toString()).online));
    await watcher.subscribeAsync('spBv1.0/STATE/gateway');
    const counter = new Counter('press-4');
    await agent.until(() => counter.births > 0, 'the node is connected');
    counter.say();
    counter.say();
    const at = new Date(1_700_000_000_002).toISOString();
    const expectRead = async () => {
      // The scan ends as soon as all values are known.
      const tested = await runVerb(['sources', 'test', '--json', '--wait', '60s', '--config', agent.config]);
      const found = JSON.parse(tested.stdout) as Record<string, unknown>[];
      expect(
        found.map(({ raw, value, timestamp, address, problem }) => [raw, value, timestamp, address, problem]),
      ).toEqual([
        [2, 20, at, 'press-4/Line/Count', null],
        [-2, -2, at, 'press-4/press/Pressure', null],
      ]);
    };
    const scan = async (...what: string[]) => {
      for (let waitS = 2; ; waitS *= 2) {
        const args = ['sources', 'scan', 'cells', ...what, '--yes', '--wait', `${waitS}s`, '--config', agent.config];
        const { stdout } = await runVerb(args);
        // A busy machine takes longer.
        if (/Pressure/.test(stdout) || waitS > 30) return stdout;
      }
    };
    const lines =
      /^ {4}values:\n {6}count: \{ from: cells, metric: "press-4\/Line\/Count" \} +# \d+\n {6}pressure: \{ from: cells, metric: "press-4\/press\/Pressure" \} +# -\d+\n$/;
    // Without an agent, the silent node is asked for a birth certificate.
    await expectRead();
    expect(await scan('press-4')).toMatch(lines);
    await agent.start();
    await agent.until(
      () => states.at(-1) === true && stored('pressure').length > 0,
      'the agent has received the message',
    );
    await expectRead();
    const births = counter.births;
    // Without a node name, publishing nodes are discovered and asked.
    const talking = setInterval(() => counter.say(), 200);
    const found = await scan().finally(() => clearInterval(talking));
    expect(found).toMatch(lines);
    expect(counter.births).toBeGreaterThan(births);
    // The scan does not publish a host state.
    expect(states.filter((isOnline, n) => !isOnline && n > 0)).toEqual([]);
    expect(await agent.end('SIGTERM')).toBe(0);
  }, 300_000);

  it('lose no received values at shutdown', async () => {
    const tags = `sources: { cells: { sparkplug: "${url()}", group: Plant1 } }
tags: { T-1: { asset: 881, values: { count: { unit: 1, from: cells, metric: press-4/Line/Count } } } }\n`;
    // The commit interval is long.
    agent = new AgentProcess(sandbox.url, { tags, env: { COMMIT_INTERVAL: '60s' } });
    await agent.start();
    const counter = new Counter('press-4');
    await agent.until(async () => (await report()).problem === null, 'the birth certificate has arrived');
    for (let n = 0; n < 20; n++) counter.say();
    await agent.until(async () => (await report()).waiting_for_commit >= 20, 'the last message was accepted');
    expect(await agent.end('SIGTERM')).toBe(0);
    agent.write(sandbox.url, { tags });
    await agent.start();
    await agent.until(() => stored('count').length >= 21, 'all values have arrived');
    expect(new Set(stored('count').map(({ value }) => value)).size).toBe(21);
    expect(await agent.end('SIGTERM')).toBe(0);
  }, 120_000);
});
