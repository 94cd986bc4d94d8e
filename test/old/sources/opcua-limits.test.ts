import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { OpcuaServer } from '../../e2e/harness/opcua-server.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';
import { MemoryBounds } from '../../host/memory-bounds.ts';
import { runVerb } from '../commands/verb-run.ts';

const server = new OpcuaServer();
let sandbox: Sandbox;
let agent: GatewayProcess;

beforeAll(() => server.start(), 120_000);
afterAll(() => server.dispose());
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 }, maxValues: 1_000_000 });
  await sandbox.start();
  // `dispose` rejects if the kernel has killed a process of this group.
  agent = new GatewayProcess(sandbox.url, {}, new MemoryBounds('bounds-with-commands.conf', 256));
});
afterEach(async () => {
  server.send({ maxOperations: 1_000_000 });
  await agent.dispose();
  await sandbox.stop();
});

const delivered = (key: string) => sandbox.values.list(881, key);
const report = async () => ((await agent.status()).sources as SourceReport[])[0]!;

async function start(keys: Readonly<Record<string, string>>): Promise<void> {
  const values = Object.entries(keys).map(
    ([key, node]) => `      ${key}: { unit: 1, from: cell, node: "ns=1;s=Line1.${node}", queue: 100 }\n`,
  );
  const tags = `sources: { cell: { opcua: "${server.url}", every: 20ms, security: None } }\ntags:\n  T-1:\n    asset: 881\n    values:\n${values.join('')}`;
  agent.write(sandbox.url, { tags });
  await agent.start();
  await agent.until(
    () => Object.keys(keys).every((key) => delivered(key).length > 0),
    'the first value of each node is delivered',
  );
}

/** Process ids of the OPC UA reader of this agent. */
function readers(): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && parentOf(pid) === agent.pid && commandOf(pid).includes('opcua'));
}
const commandOf = (pid: number) => readOr(join('/proc', String(pid), 'cmdline'));
const parentOf = (pid: number) => Number(/^PPid:\t(\d+)$/m.exec(readOr(join('/proc', String(pid), 'status')))?.[1]);
function readOr(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

describe('OPC UA source with a memory limit of 256 MB', { timeout: 300_000 }, () => {
  it('delivers a message with 50,000 values from a server that ignores MaxNotificationsPerPublish', async () => {
    await start({ flow: 'Flow' });
    server.send({ flood: 50_000, set: { Flow: 1 } });
    await agent.until(
      () => new Set(delivered('flow').map(({ value }) => value)).size >= 50_000,
      'every value is delivered',
      120_000,
    );
    expect(agent.logged('opcua.ended')).toEqual([]);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('discards and reports a message with 200,000 values, and continues with a new subscription', async () => {
    await start({ flow: 'Flow' });
    server.send({ flood: 200_000, set: { Flow: 2 } });
    await agent.until(() => agent.logged('opcua.oversized').length === 1, 'the message is reported');
    server.send({ set: { Flow: 77 } });
    await agent.until(() => delivered('flow').at(-1)?.value === 77, 'a later value is delivered', 120_000);
    expect(agent.logged('opcua.oversized')).toHaveLength(1);
    expect(agent.logged('opcua.ended')).toEqual([]);
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});

describe('frozen OPC UA reader', { timeout: 300_000 }, () => {
  it('is replaced when its heartbeats stop', async () => {
    await start({ flow: 'Flow' });
    const [frozen] = readers();
    process.kill(frozen!, 'SIGSTOP');
    await agent.until(() => agent.logged('opcua.ended').length > 0, 'the reader is terminated', 120_000);
    expect(await report()).toMatchObject({ connected: false });
    server.send({ set: { Flow: 42 } });
    await agent.until(() => delivered('flow').at(-1)?.value === 42, 'a new reader delivers values', 120_000);
    expect(readers()).not.toContain(frozen);
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});

describe('OPC UA server that accepts two operations per request', { timeout: 300_000 }, () => {
  it('can be subscribed to, tested and scanned', async () => {
    server.send({ maxOperations: 2, set: { Flow: 5, Level: 6 } });
    await start({ flow: 'Flow', level: 'Level', running: 'Running', total: 'Total', count: 'Count' });
    const tested = await runVerb(['sources', 'test', '--json', '--config', agent.config]);
    expect((JSON.parse(tested.stdout) as { raw: number }[]).map(({ raw }) => raw).slice(0, 2)).toEqual([5, 6]);
    const scanned = await runVerb(['sources', 'scan', 'cell', 'Line1', '--yes', '--config', agent.config]);
    expect(scanned.status).toBe(0);
    expect(scanned.stdout).toContain('Line1.Level');
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});
