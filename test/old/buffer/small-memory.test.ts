/**
 * Backlog with more series than fit in memory: startup drains it in parts and accepts no values until the rest fits.
 * Nothing is lost if startup is interrupted, and held assets do not delay others. Runs with the shipped memory limits,
 * and with a small configured memory in which the series of each round are countable.
 */
import { cpSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { compileDiskLayer } from '../../host/faults/disk-fault.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';
import { runVerb } from '../commands/verb-run.ts';

const SERIES_AN_ASSET = 500;
const ASSETS = [881, 882, 883, 884, 885, 886, 887, 888];
const TIME_MS = 1_700_000_000_000;
/** Number of series that fit in one tenth of this memory at startup, see `maxSeriesAtStart`. */
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
 * Compares sent values with the platform: none missing, none invented, and duplicates only from posts without a
 * response (docs/internals/architecture.md, "Invariants"). The error includes the outcome of the posts.
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

it('backlog that exceeds memory is delivered in parts, even if startup is interrupted', {
  timeout: 300_000,
}, async () => {
  await agent.start();
  await agent.push([{ asset: 881, key: 'first', value: 1, timestamp: TIME_MS }]);
  const buffered = (values: number) => async () => (await agent.metric('tagferry_buffer_values')) === values;
  // Shortly after a delivery, the log is flushed within seconds: segments then contain one part of the backlog. The
  // agent counts a value as delivered slightly after it arrived, because a connection that is reset directly after a
  // 204 invalidates that 204.
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
  await agent.until(() => rounds().length > 0, 'startup is draining the backlog');
  await agent.until(
    async () => (await agent.call(agent.ops, '/healthz').catch(() => undefined)) !== undefined,
    'the listeners are open',
  );
  const health = await agent.call(agent.ops, '/healthz');
  expect(health.status).toBe(503);
  expect(health.text).toContain('more buffered series than fit in memory');
  expect((await agent.push([{ asset: 881, key: 'new', value: 1 }])).status).toBe(503);
  const words = 'the agent has not finished starting: more buffered series than fit in memory';
  const status = await runVerb(['status', '--config', agent.config]);
  expect([status.status, status.stderr]).toEqual([1, expect.stringContaining(words)]);
  const { stdout } = await runVerb(['status', '--json', '--config', agent.config]);
  expect(JSON.parse(stdout)).toMatchObject({ state: 'waiting', message: expect.stringContaining(words) as string });
  const doctor = await runVerb(['doctor', '--config', agent.config]);
  expect(doctor.stdout).toContain(words);
  expect(doctor.stdout).toContain('if more memory is available');
  sandbox.revokePermission(HELD);
  await sandbox.goOnline();
  await agent.until(() => rounds().length > 1, 'a second round has begun');
  expect(await agent.end('SIGKILL')).toBe('SIGKILL');

  await agent.start(SMALL);
  expect(rounds().length).toBeGreaterThan(2);
  for (const { series } of rounds()) expect(series).toBeLessThanOrEqual(MOST);
  await agent.until(buffered(3 * SERIES_AN_ASSET), 'all values except held ones are delivered');
  sandbox.grantPermission(HELD);
  agent.signal('SIGHUP');
  await agent.until(buffered(0), 'the buffer is empty');
  expect(ASSETS.map((asset) => missing(asset, 3))).toEqual(ASSETS.map(() => 0));
  const next = { timestampMs: TIME_MS + 3_000, value: 3 };
  const pushed = await agent.push([{ asset: 888, key: keyOf(0), value: next.value, timestamp: next.timestampMs }]);
  expect(pushed.status).toBe(204);
  await agent.until(() => sandbox.values.compare(888, keyOf(0), [next]).missing.length === 0, 'new values arrive');
});

it('startup waits for a disk that rejects writes, without repeating posts', { timeout: 300_000 }, async () => {
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
  await agent.until(() => rounds().length > 0, 'startup is draining the backlog');
  orders(`refuse_writes ${constants.errno.EROFS}`);
  await sandbox.goOnline();
  const health = () => agent.call(agent.ops, '/healthz').catch(() => ({ text: '' }));
  await agent.until(() => sandbox.values.counts().stored >= rounds()[0]!.series, 'the loaded values are delivered');
  await agent.until(async () => (await health()).text.includes('the disk rejects writes'), 'health reports the disk');
  expect([child.exitCode, rounds().length]).toEqual([null, 1]);
  orders('');
  await agent.until(() => agent.logged('agent.ready').length > 1, 'startup continues');
  await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty');
  const keys = new Map(Array.from({ length: SERIES_AN_ASSET }, (_, i) => [keyOf(i), 0]));
  await demandDelivered(agent, new Map(ASSETS.map((asset) => [asset, keys])));
});

it('startup drains 200,000 series within the shipped memory limits, regardless of MAX_SERIES', {
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
    await gateway.until(() => gateway.logged('store.draining').length > 0, 'startup is draining the backlog', 120_000);
    await sandbox.goOnline();
    await gateway.until(() => gateway.logged('agent.ready').length > 0, 'the remaining series fit in memory', 180_000);
    await gateway.until(
      async () => (await gateway.metric('tagferry_buffer_values')) === 0,
      'the buffer is empty',
      120_000,
    );
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
