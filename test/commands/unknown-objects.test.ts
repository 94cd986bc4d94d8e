/** What tags.yaml names and the platform does not know: what status, doctor and check --online say of it. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../process/agent-process.ts';
import { consult, linesOf } from './doctor-lines.ts';
import { runVerb } from './verb-run.ts';

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

describe('what the platform does not know', () => {
  it('is asked for by check --online as far as the platform tells, and said where it tells nothing', async () => {
    withTag('{ asset: 999998, instrumentation: 999999, values: { flow: { unit: 12 } } }');
    const { status, stdout } = await runVerb(['check', '--online', '--config', agent.config]);
    expect(status).toBe(1);
    expect(stdout).toMatch(/failure +assets +asset 999998 .*404/);
    expect(stdout).toMatch(/warning +instrumentations .*999999\n.*can_read/);
    expect(stdout).toMatch(/ok +units .*first value/);
    expect(sandbox.tokens.counts().alive).toBe(0);
  });

  it('is no trouble where all of it is known, and files that are wrong come first', async () => {
    withTag('{ asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }');
    const { status, stdout } = await runVerb(['check', '--online', '--json', '--config', agent.config]);
    expect(status).toBe(0);
    const { online } = JSON.parse(stdout) as { online: { check: string; state: string }[] };
    expect(online.filter(({ state }) => state === 'failure')).toEqual([]);
    expect(online.map(({ check }) => check)).toContain('instrumentations');
    agent.write(sandbox.url, { tags: 'tags: 1\n' });
    expect((await runVerb(['check', '--online', '--config', agent.config])).status).toBe(78);
  });

  it('as a unit: the series that waits is named with its unit, the words and the command, and so is the quarantine', async () => {
    withTag(
      '{ asset: 881, instrumentation: 4711, values: { flow: { unit: 999999 } } }\n  FT-102: { asset: 882, values: { flow: { unit: 12 } } }',
    );
    await agent.start();
    const values = Array.from({ length: 12 }, (_, i) => ({ tag: 'FT-101', key: 'flow', value: i }));
    expect((await agent.push(values)).status).toBe(204);
    const waiting = async () =>
      ((await agent.status()) as { uplink: { waiting_series: { tag?: string; key?: string }[] } }).uplink
        .waiting_series;
    // Another asset's values are taken meanwhile: so it is not the platform.
    const other = async () => (await agent.push([{ tag: 'FT-102', key: 'flow', value: 1 }])).status === 204;
    await agent.until(async () => (await other()) && (await waiting()).length > 0, 'the series waits');
    expect((await waiting())[0]).toMatchObject({ asset: 881, tag: 'FT-101', key: 'flow', unit: '999999' });
    const { stdout } = await runVerb(['status', '--config', agent.config]);
    expect(stdout).toMatch(/FT-101 flow \(asset 881, unit 999999\) waits, refused with 4\d\d/);
    expect(stdout.replaceAll(/\s+/g, ' ')).toContain('tagferry buffer requeue --tag FT-101 --key flow');
    const { status, checks } = await consult(agent);
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
