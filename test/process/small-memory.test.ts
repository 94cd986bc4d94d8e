/**
 * A backlog of more series than the memory allows to load: the start drains it a part at a time and takes nothing in until the
 * rest fits; nothing is lost, whatever ends it meanwhile, and what is held delays no others. Once with the memory that the shipped
 * bounds leave, and with what is told of a small one, where the series of each round can be counted.
 */
import { cpSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { runVerb } from '../commands/verb-run.ts';
import { compileDiskLayer } from '../faults/disk-fault.ts';
import { AgentProcess } from './agent-process.ts';
import { GatewayProcess } from './gateway-process.ts';

const SERIES_AN_ASSET = 500;
const ASSETS = [881, 882, 883, 884, 885, 886, 887, 888];
const TIME_MS = 1_700_000_000_000;
/** What a tenth of this memory has room for at a start, see `maxSeriesAtStart`. */
const MOST = 1_200;
const SMALL = {
  SMALL_MEMORY: String((MOST / 1.2) * 400 * 10),
  NODE_OPTIONS: `--import=${pathToFileURL(join(import.meta.dirname, 'small-memory.mjs')).href}`,
};
const HELD = { type: 'Asset', id: 881 } as const;

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const ONE = [{ timestampMs: TIME_MS, value: 1 }];
const keyOf = (i: number) => `s${i}`;
const pushRound = async (round: number) => {
  for (const asset of ASSETS) {
    const timestamp = TIME_MS + round * 1_000;
    const values = Array.from({ length: SERIES_AN_ASSET }, (_, i) => ({
      asset,
      key: keyOf(i),
      value: round,
      timestamp,
    }));
    expect((await agent.push(values)).status).toBe(204);
  }
};
const rounds = () => agent.logged('store.draining') as { series: number; notLoaded: number }[];

function missing(asset: number, values: number): number {
  const sent = Array.from({ length: values }, (_, round) => ({ timestampMs: TIME_MS + round * 1_000, value: round }));
  let count = 0;
  for (let i = 0; i < SERIES_AN_ASSET; i++) count += sandbox.values.compare(asset, keyOf(i), sent).missing.length;
  return count;
}

/** POST_MAX_VALUES as shipped. */
const MOST_A_POST = 5_000;

/**
 * What the platform has, held against what was sent: nothing missing, nothing that was not sent, and nothing twice but what stood in posts
 * of which the agent had no answer (docs/architecture.md, "What must always hold"). It says how the posts ended.
 */
async function demandDelivered(sender: AgentProcess, sent: ReadonlyMap<number, ReadonlyMap<string, number>>) {
  const ledger = { missing: 0, invented: [] as string[], different: 0 };
  for (const [asset, values] of sent) {
    for (const [key, value] of values) {
      const { missing, invented, different } = sandbox.values.compare(asset, key, [{ timestampMs: TIME_MS, value }]);
      ledger.missing += missing.length;
      ledger.different += different.length;
      if (invented.length > 0) ledger.invented.push(`${key} of ${asset}: ${invented.length}`);
    }
  }
  for (const { asset, key, stored } of sandbox.values.series()) {
    if (!sent.get(asset)?.has(key)) ledger.invented.push(`${key} of ${asset}: ${stored}`);
  }
  const { text } = await sender.call(sender.ops, '/metrics');
  const posts = text.split('\n').filter((line) => line.startsWith('tagferry_posts_total{'));
  const unanswered =
    (await sender.metric('tagferry_posts_total{outcome="later"')) +
    (await sender.metric('tagferry_posts_total{outcome="aborted"'));
  const { duplicates } = sandbox.values.counts();
  const unexplained = Math.max(0, duplicates - unanswered * MOST_A_POST);
  const why = `${duplicates} came twice, ${unanswered} posts had no answer: ${posts.join(', ')}`;
  expect({ ...ledger, unexplained }, why).toEqual({ missing: 0, invented: [], different: 0, unexplained: 0 });
}

it('leaves a part at a time, whatever ends the start meanwhile', { timeout: 300_000 }, async () => {
  await agent.start();
  await agent.push([{ asset: 881, key: 'first', value: 1, timestamp: TIME_MS }]);
  const buffered = (values: number) => async () => (await agent.metric('tagferry_buffer_values')) === values;
  // Shortly after a delivery, the log is flushed within seconds: segments then contain one part of the backlog. The value counts as delivered
  // for the agent a moment after it has arrived, because a connection that ends right behind a 204 makes that 204 worthless.
  await agent.until(() => sandbox.values.compare(881, 'first', ONE).missing.length === 0, 'the first value arrives');
  await agent.until(buffered(0), 'the agent has settled the first value');
  await sandbox.goOffline('refuse');
  await pushRound(0);
  await pushRound(1);
  const hasSegments = async () => ((await agent.status()).buffer as { backlog: number }).backlog >= 2 * SERIES_AN_ASSET;
  await agent.until(hasSegments, 'segments');
  await pushRound(2);
  expect(await agent.end('SIGKILL')).toBe('SIGKILL');

  agent.launch(SMALL);
  await agent.until(() => rounds().length > 0, 'the start drains');
  await agent.until(
    async () => (await agent.call(agent.ops, '/healthz').catch(() => undefined)) !== undefined,
    'the listeners are open',
  );
  const health = await agent.call(agent.ops, '/healthz');
  expect(health.status).toBe(503);
  expect(health.text).toContain('more series wait in the buffer than the memory allows');
  expect((await agent.push([{ asset: 881, key: 'new', value: 1 }])).status).toBe(503);
  const words = 'the daemon waits at its start: more series wait in the buffer than the memory allows';
  const status = await runVerb(['status', '--config', agent.config]);
  expect([status.status, status.stderr]).toEqual([1, expect.stringContaining(words)]);
  const { stdout } = await runVerb(['status', '--json', '--config', agent.config]);
  expect(JSON.parse(stdout)).toMatchObject({ state: 'waiting', message: expect.stringContaining(words) as string });
  const doctor = await runVerb(['doctor', '--config', agent.config]);
  expect(doctor.stdout).toContain(words);
  expect(doctor.stdout).toContain('with more memory at once');
  sandbox.takePermission(HELD);
  await sandbox.goOnline();
  await agent.until(() => rounds().length > 1, 'a second round');
  expect(await agent.end('SIGKILL')).toBe('SIGKILL');

  await agent.start(SMALL);
  expect(rounds().length).toBeGreaterThan(2);
  for (const { series } of rounds()) expect(series).toBeLessThanOrEqual(MOST);
  await agent.until(buffered(3 * SERIES_AN_ASSET), 'all but what is held has left');
  sandbox.grantPermission(HELD);
  agent.signal('SIGHUP');
  await agent.until(buffered(0), 'the buffer is empty');
  expect(ASSETS.map((asset) => missing(asset, 3))).toEqual(ASSETS.map(() => 0));
  const next = { timestampMs: TIME_MS + 3_000, value: 3 };
  const pushed = await agent.push([{ asset: 888, key: keyOf(0), value: next.value, timestamp: next.timestampMs }]);
  expect(pushed.status).toBe(204);
  await agent.until(() => sandbox.values.compare(888, keyOf(0), [next]).missing.length === 0, 'what is new arrives');
});

it('waits for a disk that takes no writes, posts nothing twice for it, and goes on', { timeout: 300_000 }, async () => {
  await agent.start();
  await sandbox.goOffline('refuse');
  await pushRound(0);
  expect(await agent.end('SIGKILL')).toBe('SIGKILL');
  const orders = (text: string) => writeFileSync(join(agent.folder, 'orders'), `${text}\n`);
  orders('');
  const child = agent.launch({
    ...SMALL,
    LD_PRELOAD: compileDiskLayer(),
    DISK_LAYER_PATH: agent.state,
    DISK_LAYER_ORDERS: join(agent.folder, 'orders'),
  });
  await agent.until(() => rounds().length > 0, 'the start drains');
  orders(`refuse_writes ${constants.errno.EROFS}`);
  await sandbox.goOnline();
  const health = () => agent.call(agent.ops, '/healthz').catch(() => ({ text: '' }));
  await agent.until(() => sandbox.values.counts().stored >= rounds()[0]!.series, 'what was loaded has left');
  await agent.until(async () => (await health()).text.includes('refuses'), 'it says that the disk refuses');
  expect([child.exitCode, rounds().length]).toEqual([null, 1]);
  orders('');
  await agent.until(() => agent.logged('agent.ready').length > 1, 'the start goes on');
  await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty');
  const keys = new Map(Array.from({ length: SERIES_AN_ASSET }, (_, i) => [keyOf(i), 0]));
  await demandDelivered(agent, new Map(ASSETS.map((asset) => [asset, keys])));
});

it('drains 200,000 series within the bounds that are shipped, whatever MAX_SERIES says', {
  timeout: 240_000,
}, async () => {
  const many = 200_000;
  const aRequest = 5_000;
  const env = { MAX_SERIES: String(many) };
  const roomy = new AgentProcess(sandbox.url, { env });
  const gateway = new GatewayProcess(sandbox.url, { env });
  try {
    await sandbox.goOffline('refuse');
    await roomy.start();
    for (let from = 0; from < many; from += aRequest) {
      const values = Array.from({ length: aRequest }, (_, i) => ({
        asset: ASSETS[i % ASSETS.length],
        key: keyOf(from + i),
        value: from + i,
        timestamp: TIME_MS,
      }));
      expect((await roomy.push(values)).status).toBe(204);
    }
    expect(await roomy.end('SIGKILL')).toBe('SIGKILL');
    cpSync(roomy.state, gateway.state, { recursive: true });
    gateway.launch();
    await gateway.until(() => gateway.logged('store.draining').length > 0, 'the start drains', 120_000);
    await sandbox.goOnline();
    await gateway.until(() => gateway.logged('agent.ready').length > 0, 'the rest fits', 180_000);
    await gateway.until(async () => (await gateway.metric('tagferry_buffer_values')) === 0, 'it is empty', 120_000);
    expect(gateway.logged('store.draining').length).toBeGreaterThan(1);
    expect(gateway.bounds.kills).toBe(0);
    const sent = new Map(ASSETS.map((asset) => [asset, new Map<string, number>()]));
    for (let i = 0; i < many; i++) sent.get(ASSETS[i % ASSETS.length]!)!.set(keyOf(i), i);
    await demandDelivered(gateway, sent);
  } finally {
    await roomy.dispose();
    await gateway.dispose();
  }
});
