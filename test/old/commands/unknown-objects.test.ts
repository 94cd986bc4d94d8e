/** Objects in tags.yaml that are unknown to the platform, in status, doctor and check --online. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { linesOf, runDoctor, runVerb } from './verb-run.ts';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const withTag = (tag: string) => {
  agent = new AgentProcess(sandbox.url, { tags: `tags:\n  FT-101: ${tag}\n`, env: { WEBHOOK_LISTEN: '' } });
};

describe('objects unknown to the platform', () => {
  it('are reported by check --online as failures, or as warnings if they cannot be checked', async () => {
    withTag('{ asset: 999998, instrumentation: 999999, values: { flow: { unit: 12 } } }');
    const { status, stdout } = await runVerb(['check', '--online', '--config', agent.config]);
    expect(status).toBe(1);
    expect(stdout).toMatch(/failure +assets +asset 999998 .*404/);
    expect(stdout).toMatch(/warning +instrumentations .*999999\n.*can_read/);
    expect(stdout).toMatch(/ok +units .*first value/);
    expect(sandbox.tokens.counts().alive).toBe(0);
  });

  it('are not reported if all objects exist or a file contains an error', async () => {
    withTag('{ asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }');
    const { status, stdout } = await runVerb(['check', '--online', '--json', '--config', agent.config]);
    expect(status).toBe(0);
    const { online } = JSON.parse(stdout) as { online: { check: string; state: string }[] };
    expect(online.filter(({ state }) => state === 'failure')).toEqual([]);
    expect(online.map(({ check }) => check)).toContain('instrumentations');
    agent.write(sandbox.url, { tags: 'tags: 1\n' });
    expect((await runVerb(['check', '--online', '--config', agent.config])).status).toBe(78);
  });

  it('include unknown units, which are reported with series, message and command', async () => {
    withTag(
      '{ asset: 881, instrumentation: 4711, values: { flow: { unit: 999999 } } }\n  FT-102: { asset: 882, values: { flow: { unit: 12 } } }',
    );
    await agent.start();
    const values = Array.from({ length: 12 }, (_, i) => ({ tag: 'FT-101', key: 'flow', value: i }));
    expect((await agent.push(values)).status).toBe(204);
    const waiting = async () =>
      ((await agent.status()) as { uplink: { waiting_series: { tag?: string; key?: string }[] } }).uplink
        .waiting_series;
    // The platform accepts values of another asset, so this is not an outage.
    const other = async () => (await agent.push([{ tag: 'FT-102', key: 'flow', value: 1 }])).status === 204;
    await agent.until(async () => (await other()) && (await waiting()).length > 0, 'the series is paused');
    expect((await waiting())[0]).toMatchObject({ asset: 881, tag: 'FT-101', key: 'flow', unit: '999999' });
    const { stdout } = await runVerb(['status', '--config', agent.config]);
    expect(stdout).toMatch(/FT-101 flow \(asset 881, unit 999999\) rejected with 4\d\d/);
    expect(stdout.replaceAll(/\s+/g, ' ')).toContain('tagferry buffer requeue --tag FT-101 --key flow');
    const { status, checks } = await runDoctor(agent);
    expect(status).toBe(1);
    expect(linesOf(checks, 'series')[0]).toMatchObject({
      state: 'failure',
      next: expect.stringContaining('requeue --tag'),
    });
    expect(linesOf(checks, 'quarantine')[0]).toMatchObject({
      state: 'warning',
      message: expect.stringContaining('in quarantine'),
    });
  });
});
