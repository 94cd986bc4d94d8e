/** As many series as programs may open: all that was acknowledged leaves, also after a kill in the outage; more are refused. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { GatewayProcess } from './gateway-process.ts';

const SERIES = 10_000;
const A_REQUEST = 2_000;
const TIME_MS = 1_700_000_000_000;

let sandbox: Sandbox;
let agent: GatewayProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new GatewayProcess(sandbox.url, { env: { MAX_SERIES: String(SERIES) } });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const push = (from: number) =>
  agent.push(
    Array.from({ length: A_REQUEST }, (_, i) => ({ asset: 881, key: `s${from + i}`, value: i, timestamp: TIME_MS })),
  );

it('leave after a kill in the outage', async () => {
  await agent.start();
  await sandbox.goOffline('refuse');
  for (let from = 0; from < SERIES; from += A_REQUEST) expect((await push(from)).status).toBe(204);
  const refused = await push(SERIES);
  expect(refused.status).toBe(422);
  expect(refused.text).toContain('MAX_SERIES');
  expect(await agent.end('SIGKILL')).toBe('SIGKILL');
  await agent.start();
  await sandbox.goOnline();
  await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty', 90_000);
  let missing = 0;
  for (let i = 0; i < SERIES; i++) {
    const sent = [{ timestampMs: TIME_MS, value: i % A_REQUEST }];
    missing += sandbox.values.compare(881, `s${i}`, sent).missing.length;
  }
  expect(missing).toBe(0);
});
