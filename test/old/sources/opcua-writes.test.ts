/** Writes to an OPC UA server through the guards. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { OpcuaServer } from '../../e2e/harness/opcua-server.ts';
import { runVerb } from '../commands/verb-run.ts';

const server = new OpcuaServer();
let sandbox: Sandbox;
let agent: AgentProcess;

beforeAll(() => server.start(), 120_000);
afterAll(() => server.dispose());
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
  const value = (node: string, range: string) =>
    `${node.toLowerCase()}: { from: cell, node: "ns=1;s=Line1.${node}", writable: ${range} }`;
  const values = [
    value('Level', '{ min: 0, max: 10 }'),
    value('Running', '{ min: 0, max: 1 }'),
    value('Total', '{ min: 0, max: 9000000000 }'),
    value('Name', '{ min: 0, max: 1 }'),
  ].join(', ');
  agent.write(sandbox.url, {
    env: { WRITES: 'on' },
    tags: `sources: { cell: { opcua: "${server.url}", security: None } }\ntags: { T-1: { asset: 881, values: { ${values} } } }\n`,
  });
  await agent.start();
  await agent.until(
    async () => ((await agent.status()).sources as SourceReport[])[0]!.connected === true,
    'the source is connected',
  );
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const write = (key: string, value: number) =>
  runVerb(['write', 'T-1', key, String(value), '--yes', '--config', agent.config]);

describe('OPC UA write', () => {
  it.each([
    ['level', 7.25],
    ['running', 0],
    ['total', 8_589_934_593],
  ])('writes and verifies a value in the type of the node: %s', async (key, value) => {
    const { stdout } = await write(key, value);
    expect(stdout).toContain(`written (previous `);
    expect(stdout).toContain(`requested ${value}, read back ${value})`);
  });

  it('writes nothing outside the range or with another type', async () => {
    expect((await write('level', 10.5)).stderr).toContain('10.5 is not within 0 to 10');
    expect((await write('total', 1.5)).stdout).toContain('1.5 does not fit the type UInt64 of the node');
    expect((await write('name', 1)).stderr).toContain('not a number');
    expect(await agent.metric('tagferry_writes_total{outcome="written"}')).toBe(0);
  });
});
