/** A gateway whose clock starts in 1970, is corrected by NTP, and later falls back ten years. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

const TAGS = 'tags:\n  T: { asset: 881, values: { a: { unit: 1 } } }\n';
const TEN_YEARS_MS = 10 * 365 * 86_400_000;

let sandbox: Sandbox;
let agent: AgentProcess;
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { tags: TAGS });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const moveClock = (movedMs: number) => writeFileSync(join(agent.folder, 'moved'), String(movedMs));

async function push(value: number): Promise<void> {
  expect((await agent.push([{ tag: 'T', key: 'a', value }])).status).toBe(204);
}

const startWithMovedClock = () =>
  agent.start({
    NODE_OPTIONS: `--import=${pathToFileURL(join(import.meta.dirname, 'moved-clock.mjs')).href}`,
    MOVED_CLOCK: join(agent.folder, 'moved'),
  });

describe('agent whose clock is wrong twice', () => {
  it.each([
    ['in the run that accepted the values', false],
    ['in a later run', true],
  ])('posts values without a time under their arrival time, %s', async (_, restarts) => {
    await sandbox.goOffline();
    const fromMs = Date.now();
    moveClock(60_000 - fromMs);
    await startWithMovedClock();
    await push(1);
    moveClock(0);
    await push(2);
    moveClock(-TEN_YEARS_MS);
    await push(3);
    const untilMs = Date.now();
    if (restarts) await agent.end('SIGTERM');
    // Posts are ready before the sign-in response sets the time.
    sandbox.faults.add({ path: '/oauth/token', latencyMs: 1_500 });
    await sandbox.goOnline();
    if (restarts) await startWithMovedClock();
    await agent.until(() => sandbox.values.counts(881).stored === 3, 'three values have arrived');
    const stored = sandbox.values.list(881, 'a');
    expect(stored.map(({ value }) => value).sort()).toEqual([1, 2, 3]);
    // The platform `Date` has a resolution of one second.
    for (const { timestampMs } of stored) {
      expect(timestampMs).toBeGreaterThanOrEqual(fromMs - 2_000);
      expect(timestampMs).toBeLessThanOrEqual(untilMs + 2_000);
    }
  });
});
