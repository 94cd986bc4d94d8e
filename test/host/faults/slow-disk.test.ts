import { readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { compileDiskLayer } from './disk-fault.ts';

const TAGS = 'tags: { FT-101: { asset: 881, values: { flow: { unit: 12 } } } }\n';
const EIO = 5;

let library: string;
let sandbox: Sandbox;
let agent: AgentProcess;

beforeAll(() => {
  library = compileDiskLayer();
});
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { tags: TAGS });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const orders = (text: string) => writeFileSync(join(agent.folder, 'orders'), `${text}\n`);

/** The agent on a simulated disk, under a service manager that expects three watchdog notifications in 600 ms. */
async function start(): Promise<void> {
  orders('');
  const told = join(agent.folder, 'told');
  writeFileSync(told, '');
  writeFileSync(join(agent.folder, 'systemd-notify'), `#!/bin/sh\necho "$@" >> ${told}\n`, { mode: 0o755 });
  await agent.start({
    PATH: `${agent.folder}${delimiter}${process.env.PATH}`,
    NOTIFY_SOCKET: '/run/notify',
    WATCHDOG_USEC: '600000',
    LD_PRELOAD: library,
    DISK_LAYER_PATH: agent.state,
    DISK_LAYER_ORDERS: join(agent.folder, 'orders'),
    DISK_LAYER_COUNTS: join(agent.folder, 'counts'),
  });
}

const value = (number: number) => ({
  tag: 'FT-101',
  key: 'flow',
  value: number,
  timestamp: 1_700_000_000_000 + number,
});
const beats = () => readFileSync(join(agent.folder, 'told'), 'utf8').split('WATCHDOG=1').length - 1;
const failures = () => Number(readFileSync(join(agent.folder, 'counts')).readBigUInt64LE(24));
const bufferHealth = async () => (await agent.call(agent.ops, '/healthz')).status;

/** Two agents start on a busy machine, so no wait below asserts a time. */
const PATIENCE = { timeout: 300_000 };

describe('disk whose syncs hang', PATIENCE, () => {
  it('delays only acknowledgements, while listeners respond and the watchdog is notified', async () => {
    await start();
    orders('hold_syncs');
    let acknowledged = 0;
    const pushes = Array.from({ length: 40 }, async (_, i) => {
      const { status } = await agent.push([value(i)]);
      expect(status).toBe(204);
      acknowledged++;
    });
    // While the sync hangs, every request without disk access gets a response.
    expect(await bufferHealth()).toBe(200);
    expect((await agent.call(agent.ops, '/metrics')).status).toBe(200);
    expect((await agent.push([{ ...value(1), tag: 'FT-999' }])).status).toBe(422);
    expect((await agent.call(agent.webhook, '/nowhere', { method: 'POST', body: '{}' })).status).toBe(404);
    const before = beats();
    await agent.until(() => beats() > before + 1, 'the watchdog is notified');
    expect(acknowledged).toBe(0);
    const commits = await agent.metric('tagferry_commits_total{outcome="ok"}');
    orders('');
    await Promise.all(pushes);
    // All pending pushes shared commits: forty sequential syncs would have taken forty times as long.
    expect((await agent.metric('tagferry_commits_total{outcome="ok"}')) - commits).toBeLessThan(10);
    await agent.until(() => sandbox.values.counts(881).stored === 40, 'every value is on the platform');
  });
});

describe('disk that rejects writes', PATIENCE, () => {
  it('causes 503 without a busy loop, and the agent recovers afterwards', async () => {
    await start();
    expect((await agent.push([value(1)])).status).toBe(204);
    await agent.until(() => sandbox.values.counts(881).stored === 1, 'the first value is on the platform');
    orders(`refuse_writes ${EIO}`);
    const refused = await agent.push([value(2)]);
    expect(refused.status).toBe(503);
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
    expect(await bufferHealth()).toBe(503);
    const before = failures();
    const beatsBefore = beats();
    const beganMs = performance.now();
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    expect((failures() - before) / (performance.now() - beganMs)).toBeLessThan(30 / 3_000);
    await agent.until(() => beats() > beatsBefore, 'the watchdog is notified');
    orders('');
    await agent.until(async () => (await agent.push([value(3)])).status === 204, 'disk writes restored');
    await agent.until(async () => (await bufferHealth()) === 200, 'the agent is healthy again');
    await agent.until(() => sandbox.values.counts(881).stored === 2, 'the later value is on the platform');
    expect(sandbox.values.list(881, 'flow').map((one) => one.value)).toEqual([1, 3]);
    expect(agent.logged('store.refused').length).toBeLessThan(3);
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});
