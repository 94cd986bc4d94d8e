import { createRequire } from 'node:module';
import { gzipSync } from 'node:zlib';
import { connectAsync, type MqttClient } from 'mqtt';
import { newClient } from 'sparkplug-client';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';
import { runVerb } from '../commands/verb-run.ts';

/** Encoder from Eclipse Tahu. */
const { get } = createRequire(import.meta.url)('sparkplug-payload') as {
  get(version: string): { encodePayload(payload: object): Uint8Array };
};
const tahu = get('spBv1.0');

/** Edge node from Eclipse Tahu. */
interface TahuNode {
  on(event: 'birth' | 'ncmd', listener: () => void): void;
  publishNodeBirth(payload: object, options?: object): void;
  publishNodeData(payload: object, options?: object): void;
  stop(): void;
}

const START_MS = 1_795_219_200_000;
let sandbox: Sandbox;
let mosquitto: Mosquitto;
let agent: AgentProcess;
let client: MqttClient;
const cleanUps: (() => void)[] = [];

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  mosquitto = await Mosquitto.make();
  await mosquitto.start();
  client = await connectAsync(url());
});
afterEach(async () => {
  for (const end of cleanUps.splice(0)) end();
  client.end(true);
  await agent.dispose();
  await mosquitto.dispose();
  await sandbox.stop();
});

const url = () => `mqtt://127.0.0.1:${mosquitto.port}`;
const stored = (key: string) => sandbox.values.list(881, key).map(({ value }) => value);

async function startAgent(values: string, more = ''): Promise<void> {
  const tags = `sources: { cells: { sparkplug: "${url()}", group: Plant1${more} } }
tags: { T-1: { asset: 881, values: { ${values} } } }\n`;
  agent = new AgentProcess(sandbox.url, { tags });
  await agent.start();
}

async function publish(type: 'NBIRTH' | 'NDATA', seq: number, metrics: object[]): Promise<void> {
  const payload = tahu.encodePayload({ timestamp: START_MS + seq, seq, metrics });
  await client.publishAsync(`spBv1.0/Plant1/${type}/press`, Buffer.from(payload));
}

/** Publishes a birth certificate each time the agent requests one, and counts them. */
async function bearOnRequest(metrics: object[]): Promise<{ births: number }> {
  const node = { births: 0 };
  client.on('message', (topic) => {
    if (!topic.includes('/NCMD/')) return;
    node.births++;
    void publish('NBIRTH', 0, metrics);
  });
  await client.subscribeAsync('spBv1.0/Plant1/NCMD/press');
  return node;
}

describe('Sparkplug B host', () => {
  it('stores values from compressed payloads, and reports a payload that is too large after decompression', async () => {
    await startAgent('count: { from: cells, metric: press-4/Line/Count }');
    const node = newClient({
      serverUrl: url(),
      username: '',
      password: '',
      groupId: 'Plant1',
      edgeNode: 'press-4',
      clientId: 'press-4',
      version: 'spBv1.0',
      publishDeath: true,
    }) as unknown as TahuNode;
    cleanUps.push(() => node.stop());
    const metric = (n: number) => ({ alias: 3, timestamp: START_MS + n, type: 'Int32', value: n });
    const bear = () =>
      node.publishNodeBirth(
        { timestamp: START_MS, metrics: [{ name: 'Line/Count', ...metric(0) }] },
        { compress: true, algorithm: 'GZIP' },
      );
    node.on('birth', bear);
    node.on('ncmd', bear);
    await agent.until(() => stored('count').length === 1, 'the compressed birth certificate is stored');
    const say = (n: number, options: object) =>
      node.publishNodeData({ timestamp: START_MS + n, metrics: [metric(n)] }, options);
    say(1, { compress: true, algorithm: 'GZIP' });
    say(2, { compress: true, algorithm: 'DEFLATE' });
    say(3, { compress: true });
    say(4, {});
    await agent.until(() => stored('count').length === 5, 'all values are stored');
    expect(stored('count')).toEqual([0, 1, 2, 3, 4]);
    const bomb = tahu.encodePayload({
      uuid: 'SPBV1.0_COMPRESSED',
      body: gzipSync(Buffer.alloc(256 * 1024 * 1024)),
      metrics: [{ name: 'algorithm', type: 'String', value: 'GZIP' }],
    });
    await client.publishAsync('spBv1.0/Plant1/NDATA/press-4', Buffer.from(bomb));
    await agent.until(() => agent.logged('sparkplug.unreadable').length > 0, 'it is reported');
    expect(agent.logged('sparkplug.unreadable')).toMatchObject([{ error: 'it exceeds 4 MiB when expanded' }]);
    expect((await agent.status()).sources).toMatchObject([{ connected: true }]);
  });

  it('requests a new birth certificate immediately after a gap', async () => {
    const node = await bearOnRequest([{ name: 'a', alias: 1, timestamp: START_MS, type: 'Double', value: 1 }]);
    await startAgent('a: { from: cells, metric: press/a }');
    await agent.until(() => stored('a').length > 0, 'the requested birth certificate is stored');
    const before = node.births;
    // One message: no later message reminds the agent of the gap.
    await publish('NDATA', 5, [{ alias: 1, timestamp: START_MS + 5, type: 'Double', value: 5 }]);
    await agent.until(() => node.births > before, 'the birth certificate is requested');
    const reasons = agent.logged('sparkplug.rebirth').map(({ reason }) => reason);
    expect(reasons.at(-1)).toMatch(/^message 5 follow/);
  });

  it('announces itself as online again after another client announces it as offline', async () => {
    const states: { online: boolean; timestamp: number }[] = [];
    client.on('message', (topic, payload) => {
      if (topic.includes('/STATE/')) states.push(JSON.parse(payload.toString()));
    });
    await client.subscribeAsync('spBv1.0/STATE/gateway');
    await startAgent('a: { from: cells, metric: press/a }', ', primary_host: gateway');
    await agent.until(() => states.at(-1)?.online === true, 'the host is online');
    const foreign = { online: false, timestamp: states[0]!.timestamp + 60_000 };
    await client.publishAsync('spBv1.0/STATE/gateway', JSON.stringify(foreign), { qos: 1, retain: true });
    await agent.until(() => states.length === 3, 'the host is announced again');
    expect(states.slice(1)).toEqual([foreign, { ...foreign, online: true }]);
    expect(agent.logged('sparkplug.host_offline').length).toBe(1);
    // Several messages are contradicted together.
    for (let times = 0; times < 5; times++) {
      await client.publishAsync('spBv1.0/STATE/gateway', JSON.stringify(foreign), { qos: 1, retain: true });
    }
    const offline = () => states.filter(({ online }) => !online).length;
    await agent.until(() => offline() === 6 && states.at(-1)!.online, 'the host is announced again');
    expect(states.splice(3).length).toBeLessThan(10);
    const reported = agent.logged('sparkplug.host_offline').length;
    // The announcement of a regular shutdown is not older, so that edge nodes accept it.
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.until(() => states.length === 4, 'the host is offline').catch(() => {});
    expect(states[3]).toEqual(foreign);
    await agent.start();
    await agent.until(() => states.length === 5, 'the host is online');
    expect(states[4]!.online).toBe(true);
    expect(agent.logged('sparkplug.host_offline').length).toBe(reported);
  });

  it('lists non-numeric metrics in sources test, sources ls and a single log line', async () => {
    const dataSet = { numOfColumns: 1, types: ['Int64'], columns: ['a'], rows: [[1]] };
    const template = { isDefinition: false, templateRef: 'x', metrics: [], parameters: [] };
    await bearOnRequest([
      { name: 'state', timestamp: START_MS, type: 'String', value: 'RUN' },
      { name: 'table', timestamp: START_MS, type: 'DataSet', value: dataSet },
      { name: 'motor', timestamp: START_MS, type: 'Template', value: template },
      { name: 'level', timestamp: START_MS, type: 'Double', value: Number.NaN },
      { name: 'mode', timestamp: START_MS, type: 'String', value: 'AUTO' },
    ]);
    const keys = ['state', 'table', 'motor', 'level'].map((key) => `${key}: { from: cells, metric: press/${key} }`);
    await startAgent([...keys, 'mode: { from: cells, metric: press/mode, map: { AUTO: 2 } }'].join(', '));
    await agent.until(() => stored('mode').length > 0, 'the mapped text is stored');
    expect(stored('mode')).toEqual([2]);
    const problems = [
      'the metric is of type String ("RUN"), not a number',
      'the metric is of type DataSet, not a number',
      'the metric is of type Template, not a number',
      'the metric is NaN',
    ];
    const tested = async () => {
      const { stdout } = await runVerb(['sources', 'test', '--json', '--wait', '2s', '--config', agent.config]);
      return (JSON.parse(stdout) as { problem: string | null }[]).map(({ problem }) => problem);
    };
    const found = await tested();
    for (const [at, problem] of problems.entries()) expect(found[at]).toContain(problem);
    expect(found[4]).toBeNull();
    const { stdout } = await runVerb(['sources', 'ls', '--json', '--config', agent.config]);
    const [report] = JSON.parse(stdout) as SourceReport[];
    expect(report!.problem).toMatch(/^T-1 state \(press\/state\) and 3 more: the metric is of type String/);
    await agent.until(() => agent.logged('source.not_a_number').length > 1, 'the other values are logged');
    const [first, others] = agent.logged('source.not_a_number');
    expect([first!.value, first!.error]).toEqual(['T-1 state', problems[0]]);
    expect(others!.values).toEqual(expect.arrayContaining(['T-1 table', 'T-1 motor', 'T-1 level']));
    await agent.end('SIGTERM');
    expect(await tested()).toEqual([...problems, null]);
  });
});
