/**
 * A backlog of more series than the memory allows to load: the start drains it a part at a time and takes nothing in until the
 * rest fits; nothing is lost, whatever ends it meanwhile, and what is held delays no others.
 */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from './agent-process.ts';

const SERIES_AN_ASSET = 500;
const ASSETS = [881, 882, 883, 884, 885, 886, 887, 888];
const TIME_MS = 1_700_000_000_000;
/** What a tenth of this memory has room for at a start, see `maxSeriesAtStart`. */
const MOST = 1_200;
const SMALL = {
  SMALL_MEMORY: String((MOST / 1.5) * 400 * 10),
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

it('leaves a part at a time, whatever ends the start meanwhile', async () => {
  await agent.start();
  await agent.push([{ asset: 881, key: 'first', value: 1, timestamp: TIME_MS }]);
  // So shortly after a delivery the log is flushed within seconds: some of it stands in segments, some does not.
  await agent.until(() => sandbox.values.compare(881, 'first', ONE).missing.length === 0, 'the platform is there');
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
    'doors',
  );
  const health = await agent.call(agent.ops, '/healthz');
  expect(health.status).toBe(503);
  expect(health.text).toContain('more series wait in the buffer than the memory allows');
  expect((await agent.push([{ asset: 881, key: 'new', value: 1 }])).status).toBe(503);
  sandbox.takePermission(HELD);
  await sandbox.goOnline();
  await agent.until(() => rounds().length > 1, 'a second round');
  expect(await agent.end('SIGKILL')).toBe('SIGKILL');

  await agent.start(SMALL);
  expect(rounds().length).toBeGreaterThan(2);
  for (const { series } of rounds()) expect(series).toBeLessThanOrEqual(MOST);
  const buffered = (values: number) => async () => (await agent.metric('tagferry_buffer_values')) === values;
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
