/**
 * The maximum number of series that programs may create within the shipped limits. All acknowledged values are
 * delivered, even after a kill during the outage; additional series are rejected.
 */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { GatewayProcess } from '../agent/gateway-process.ts';

const A_REQUEST = 2_000;
/** One tenth of 176 or 192 MB is about 46,000 or 50,000 series of 400 bytes. */
const [LEAST, MOST] = [40_000, 60_000];
const TIME_MS = 1_700_000_000_000;
const ASSETS = [881, 882, 883, 884];

let sandbox: Sandbox;
let agent: GatewayProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new GatewayProcess(sandbox.url);
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const assetOf = (i: number) => ASSETS[i % ASSETS.length]!;
const push = (from: number) =>
  agent.push(
    Array.from({ length: A_REQUEST }, (_, i) => ({
      asset: assetOf(i),
      key: `s${from + i}`,
      value: i,
      timestamp: TIME_MS,
    })),
  );

it('agent with the maximum number of series loses no values if killed during an outage', {
  timeout: 300_000,
}, async () => {
  await agent.start();
  await sandbox.goOffline('refuse');
  let accepted = 0;
  let answer = await push(0);
  for (; answer.status === 204 && accepted < MOST; answer = await push(accepted)) accepted += A_REQUEST;
  expect([answer.status, answer.text]).toEqual([422, expect.stringContaining('MAX_SERIES')]);
  expect(accepted).toBeGreaterThan(LEAST);
  expect(await agent.end('SIGKILL')).toBe('SIGKILL');
  await agent.start();
  await sandbox.goOnline();
  await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty', 120_000);
  let missing = 0;
  for (let i = 0; i < accepted; i++) {
    const sent = [{ timestampMs: TIME_MS, value: i % A_REQUEST }];
    missing += sandbox.values.compare(assetOf(i), `s${i}`, sent).missing.length;
  }
  expect([missing, sandbox.values.counts().stored]).toEqual([0, accepted]);
});
