import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb, type VerbOutcome } from '../../old/commands/verb-run.ts';
import { seeded } from '../../unit/sources/sink-double.ts';
import { SmallDisk } from './small-disk.ts';

const TAGS = `tags:
  FT-101: { asset: 881, values: { flow: { unit: 12 } } }
  FT-102: { asset: 882, values: { flow: { unit: 12 } } }
  FT-103: { asset: 883, values: { flow: { unit: 12 } } }
`;
const NAMES = ['FT-101', 'FT-102', 'FT-103'] as const;
/** No server listens there, so accepted values stay in the buffer. */
const NO_PLATFORM = 'http://127.0.0.1:9';
const FROM_MS = Date.UTC(2026, 10, 21);

let disk: SmallDisk;
let agent: AgentProcess;
let pushed = new Map<string, number>();
const random = seeded(11);

beforeEach(() => {
  disk = new SmallDisk(24);
  pushed = new Map();
  agent = new AgentProcess(NO_PLATFORM, {
    tags: TAGS,
    env: { STATE_DIR: disk.state, BUFFER_MIN_FREE: '0', COMMIT_INTERVAL: '1ms', COMMIT_VALUES: '1' },
  });
});
afterEach(async () => {
  await agent.dispose();
  disk.dispose();
});

/** Returns the response and counts acknowledged values, one per second and tag. */
async function push(tag: string, count: number): Promise<{ status: number; headers: Record<string, unknown> }> {
  const from = pushed.get(tag) ?? 0;
  const values = Array.from({ length: count }, (_, i) => ({
    tag,
    key: 'flow',
    value: random(),
    timestamp: FROM_MS + (from + i) * 1000,
  }));
  const answer = await agent.push(values);
  if (answer.status === 204) pushed.set(tag, from + count);
  return answer;
}

/**
 * Stores twelve thousand values per tag, fills the disk with another file, then stores values until the disk is full.
 */
async function fillUp(): Promise<void> {
  for (let i = 0; i < 6; i++) for (const tag of NAMES) expect((await push(tag, 2000)).status).toBe(204);
  disk.fill();
  await agent.until(async () => {
    const { status, headers } = await push('FT-103', 500);
    if (status === 204) return false;
    expect(status).toBe(503);
    expect(Number(headers['retry-after'])).toBeGreaterThan(0);
    return ((await agent.status()).buffer as { problems: string[] }).problems.join().includes('the disk is full');
  }, 'the disk is also full for the agent');
}

const verb = (...args: string[]): Promise<VerbOutcome> => runVerb([...args, '--config', agent.config]);

async function standing(): Promise<Map<string, number>> {
  const { stdout, stderr, status } = await verb('buffer', 'ls', '--json');
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 });
  return new Map((JSON.parse(stdout) as { tag: string; values: number }[]).map(({ tag, values }) => [tag, values]));
}

async function purged(...args: string[]): Promise<number> {
  const { stdout, stderr, status } = await verb('buffer', 'purge', '--yes', '--json', ...args);
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 });
  return (JSON.parse(stdout) as { purged: number }).purged;
}

describe('tagferry buffer purge on a full disk', () => {
  it('allows a running agent to accept values again and deletes nothing else', async () => {
    await agent.start();
    await fillUp();
    expect(await purged('--tag', 'FT-101')).toBe(12_000);
    expect(await purged('--tag', 'FT-102', '--older-than', new Date(FROM_MS + 9_000_000).toISOString())).toBe(9_000);
    await agent.until(async () => (await push('FT-101', 10)).status === 204, 'values are accepted again');
    const health = async () => (await agent.call(agent.ops, '/healthz')).status;
    await agent.until(async () => (await health()) === 200, 'the agent is healthy again');
    expect(await agent.metric('tagferry_values_dropped_total{reason="purge"}')).toBe(21_000);
    const kept = { 'FT-101': 10, 'FT-102': 3_000, 'FT-103': pushed.get('FT-103') };
    expect(Object.fromEntries(await standing())).toEqual(kept);
    // Everything is on disk, not only in memory.
    await agent.end('SIGKILL');
    expect(Object.fromEntries(await standing())).toEqual(kept);
  }, 300_000);

  it('reports the values that it could not delete', async () => {
    await agent.start();
    await fillUp();
    // The other file also fills the space of the reserve, up to the final block.
    disk.fill();
    const { status, stdout, stderr } = await verb('buffer', 'purge', '--yes', '--tag', 'FT-101');
    expect([status, stdout]).toEqual([1, 'Deleted 0 values.\n']);
    expect(stderr).toContain('(SQLITE_FULL)');
    expect(stderr).toMatch(/The agent retries the deletion of 12,000 more values/);
    expect(stderr).toContain('Free up space on the file system of STATE_DIR');
    const dropped = () => agent.metric('tagferry_values_dropped_total{reason="purge"}');
    expect(await dropped()).toBe(0);
    disk.free();
    await agent.until(async () => (await dropped()) === 12_000, 'the deletion succeeds');
    expect((await standing()).get('FT-101') ?? 0).toBe(0);
  }, 300_000);

  it('works on a stopped agent’s folder, and the agent then accepts values', async () => {
    await agent.start();
    await fillUp();
    expect(await agent.end('SIGTERM')).toBe(0);
    disk.fill();
    expect(disk.freeBytes).toBeLessThan(10_000);
    expect(await purged('--tag', 'FT-101')).toBe(12_000);
    expect(await purged('--tag', 'FT-102', '--older-than', new Date(FROM_MS + 9_000_000).toISOString())).toBe(9_000);
    await agent.start();
    await agent.until(async () => (await push('FT-101', 10)).status === 204, 'values are accepted again');
    expect(Object.fromEntries(await standing())).toEqual({
      'FT-101': 12_010 - 12_000,
      'FT-102': 3_000,
      'FT-103': pushed.get('FT-103'),
    });
  }, 300_000);
});

describe('agent startup on a full disk', () => {
  it('succeeds, and values are rejected with 503 until there is space', async () => {
    await agent.start();
    for (const tag of NAMES) await push(tag, 1000);
    await agent.end('SIGKILL');
    disk.fill();
    await agent.start();
    expect((await push('FT-101', 10)).status).toBe(503);
    expect((await agent.call(agent.ops, '/healthz')).text).toContain('the disk is full');
    disk.free();
    await agent.until(async () => (await push('FT-101', 10)).status === 204, 'values are accepted again');
  }, 300_000);
});
