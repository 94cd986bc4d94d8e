/** Container in another time namespace, or restored container: its monotonic clock is behind the previous value. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

const TAGS = 'tags:\n  T: { asset: 881, values: { a: { unit: 1 } } }\n';
const AHEAD_S = 10_000_000;

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

const ahead = ['unshare', '--time', '--fork', '--kill-child', '--monotonic', String(AHEAD_S), '--'];
const push = (from: number, count: number) =>
  agent.push(
    Array.from({ length: count }, (_, i) => ({
      tag: 'T',
      key: 'a',
      value: from + i,
      timestamp: 1_790_000_000_000 + from + i,
    })),
  );

describe('monotonic clock behind its previous value', () => {
  it('does not delay values or change their order', async () => {
    sandbox.faults.add({ path: '/v1/assets/*', status: 503 });
    agent.surroundings = ahead;
    await agent.start();
    expect((await push(0, 500)).status).toBe(204);
    await agent.end('SIGKILL');
    agent.surroundings = [];
    await agent.start();
    expect((await push(500, 500)).status).toBe(204);
    // Age is based on the time known to each run, so a clock that was set back does not make values older.
    expect(await agent.metric('tagferry_buffer_oldest_age_seconds')).toBeLessThan(AHEAD_S / 2);
    sandbox.faults.clear();
    await agent.until(() => sandbox.values.counts(881, 'a').stored === 1_000, 'everything is on the platform');
    const order = sandbox.values.list(881, 'a').map(({ value }) => value);
    expect(order).toEqual([...order].sort((a, b) => Number(a) - Number(b)));
  });
});
