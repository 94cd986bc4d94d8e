/** Decommissioning a gateway with and without a running agent. */
import { existsSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from './verb-run.ts';

const TAGS =
  'tags:\n  FT-101: { asset: 881, values: { flow: { unit: 12 } } }\n  FT-102: { asset: 882, values: { flow: { unit: 12 } } }\n';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const port = await freePort();
  const env = { WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/hook` };
  agent = new AgentProcess(sandbox.url, { tags: TAGS, env });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const decommission = (...flags: string[]) => runVerb(['decommission', '--config', agent.config, ...flags]);
const isMarked = () => existsSync(join(agent.state, 'decommissioned.json'));
const push = async () => (await agent.push([{ tag: 'FT-101', key: 'flow', value: 1 }])).status;
const delivered = () => sandbox.values.counts(881).stored;
const goAway = () => sandbox.faults.add({ method: 'POST', path: '/v1/assets/*', status: 503 });

describe('tagferry decommission with a running agent', () => {
  it('drains the buffer, deletes the webhook and revokes tokens, and the agent exits with 78 until setup', async () => {
    await agent.start();
    await agent.registered();
    for (let i = 0; i < 5; i++) expect(await push()).toBe(204);
    const { status, stdout, stderr } = await decommission('--yes');
    expect(`${status} ${stderr}`).toMatch(/^0 /);
    expect(stdout).toMatch(/Deleted webhook \d+/);
    expect(await agent.ended()).toBe(78);
    expect(delivered()).toBe(5);
    expect(sandbox.webhooks()).toEqual([]);
    expect(sandbox.tokens.counts().alive).toBe(0);
    expect(agent.logged('agent.stopped').length).toBe(1);
    expect(isMarked()).toBe(true);

    agent.launch();
    expect(await agent.ended()).toBe(78);
    expect(agent.output).toContain('this gateway was decommissioned');
    expect(await runVerb(['check', '--config', agent.config])).toMatchObject({
      status: 78,
      stdout: expect.stringMatching(/decommissioned.*tagferry setup/),
    });
    expect((await runVerb(['status', '--config', agent.config])).stderr).toContain('decommissioned');
    // Running the command again has no effect.
    expect(await decommission('--yes')).toMatchObject({ status: 0 });
  });

  it('resumes ingestion without changes if values remain buffered after the timeout', async () => {
    await agent.start();
    await agent.registered();
    const fault = goAway();
    expect(await push()).toBe(204);
    const { status, stdout, stderr } = await decommission('--yes', '--timeout', '300ms');
    expect(`${status} ${stdout}`).toMatch(/^1 .*1 value waiting/);
    expect(stderr).toMatch(/1 value not delivered\. Nothing was deleted/);
    expect(sandbox.webhooks().length).toBe(1);
    expect(isMarked()).toBe(false);
    expect(await push()).toBe(204);
    sandbox.faults.remove(fault);
    expect((await runVerb(['session', 'renew', '--config', agent.config])).status).toBe(0);
    await agent.until(() => delivered() === 2, 'both values arrive');
    expect(await decommission('--yes', '--json')).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('"decommissioned": true'),
    });
    expect(await agent.ended()).toBe(78);
  });

  it('discards values with --lose-values, and reports how many remain in the folder', async () => {
    await agent.start();
    await agent.registered();
    goAway();
    expect(await push()).toBe(204);
    const { status, stdout } = await decommission('--yes', '--timeout', '0', '--lose-values');
    expect(`${status} ${stdout}`).toMatch(/^0 [\s\S]*Not delivered and still in .*: 1 value\./);
    expect(await agent.ended()).toBe(78);
    expect(isMarked()).toBe(true);
    expect(sandbox.webhooks()).toEqual([]);
  });

  it('rejects pushes with 503 while draining, and resumes ingestion if cancelled', async () => {
    await agent.start();
    goAway();
    expect(await push()).toBe(204);
    const asked = request({ socketPath: join(agent.state, 'control.sock'), path: '/decommission/run', method: 'POST' });
    asked.on('error', () => {}).end('{"timeout_ms":600000}');
    await agent.until(() => agent.logged('decommission.started').length === 1, 'the decommissioning has started');
    let answer: Awaited<ReturnType<AgentProcess['push']>> | undefined;
    const isRefused = async () => {
      answer = await agent.push([{ tag: 'FT-101', key: 'flow', value: 2 }]).catch(() => undefined);
      return answer?.status === 503;
    };
    await agent.until(isRefused, 'the listener responds 503');
    expect(Number(answer!.headers['retry-after'])).toBeGreaterThan(0);
    expect(answer!.text).toContain('being decommissioned');
    asked.destroy();
    await agent.until(async () => (await push().catch(() => 0)) === 204, 'values are being accepted');
    // Values that received a 503 are not stored.
    expect(await agent.metric('tagferry_buffer_values')).toBe(2);
  });

  it('counts quarantined values as lost', async () => {
    await agent.start();
    sandbox.faults.poison({ asset: 882, value: 666 });
    const taken = [1, 666, 3].map((value, i) => ({ tag: 'FT-102', key: 'flow', value, timestamp: 1.7e12 + i }));
    expect((await agent.push(taken)).status).toBe(204);
    // The platform is reachable throughout, so a rejection concerns the value.
    const refused = async () => (await push()) === 204 && agent.logged('uplink.quarantined').length > 0;
    await agent.until(refused, 'the request is rejected');
    const { status, stderr } = await decommission('--yes');
    expect(`${status} ${stderr}`).toMatch(/^1 [\s\S]*1 value in quarantine not delivered/);
    expect(await push()).toBe(204);
  });

  it('exits with 2 without changes if there is no terminal, unless --yes is specified', async () => {
    await agent.start();
    const { status, stderr } = await decommission();
    expect(`${status} ${stderr}`).toMatch(/^2 [\s\S]*--yes/);
    expect(await push()).toBe(204);
    expect((await decommission('--yes', '--timeout', 'soon')).status).toBe(2);
    expect(isMarked()).toBe(false);
  });

  it('resumes ingestion if the client disconnects', async () => {
    await agent.start();
    goAway();
    expect(await push()).toBe(204);
    const asked = request({ socketPath: join(agent.state, 'control.sock'), path: '/decommission/run', method: 'POST' });
    asked.on('error', () => {}).end('{"timeout_ms":600000}');
    await agent.until(() => agent.logged('decommission.started').length === 1, 'the decommissioning has started');
    asked.destroy();
    await agent.until(() => agent.logged('decommission.given_up').length === 1, 'the decommissioning is cancelled');
    await agent.until(async () => (await push().catch(() => 0)) === 204, 'values are being accepted');
    expect(isMarked()).toBe(false);
  });
});

describe('tagferry decommission without a running agent', () => {
  it('prompts to start the service if values are buffered, and succeeds if the buffer is empty', async () => {
    await agent.start();
    await agent.registered();
    const fault = goAway();
    expect(await push()).toBe(204);
    await agent.end('SIGTERM');
    const refused = await decommission('--yes');
    expect(`${refused.status} ${refused.stderr}`).toMatch(/^1 [\s\S]*1 undelivered value[\s\S]*tagferry run/);
    expect(isMarked()).toBe(false);
    sandbox.faults.remove(fault);
    await agent.start();
    await agent.until(() => delivered() === 1, 'the value arrives');
    await agent.end('SIGTERM');
    const { status, stdout, stderr } = await decommission('--yes');
    expect(`${status} ${stderr}`).toMatch(/^0 /);
    expect(stdout).toMatch(/No undelivered values[\s\S]*Deleted webhook \d+/);
    expect(sandbox.webhooks()).toEqual([]);
    agent.launch();
    expect(await agent.ended()).toBe(78);
  });

  it('revokes the tokens of a killed agent', async () => {
    await agent.start();
    await agent.registered();
    await agent.end('SIGKILL');
    expect(sandbox.tokens.counts().alive).toBe(1);
    const { status, stdout, stderr } = await decommission('--yes');
    expect(`${status} ${stderr}`).toMatch(/^0 /);
    expect(stdout).toContain('Revoked 1 token left by an agent that was killed.');
    expect(sandbox.tokens.counts().alive).toBe(0);
    expect(existsSync(join(agent.state, 'session.json'))).toBe(false);
  });

  it('succeeds with --lose-values even if the platform is unreachable', async () => {
    await agent.start();
    await agent.registered();
    goAway();
    expect(await push()).toBe(204);
    await agent.end('SIGTERM');
    await sandbox.stop();
    const { status, stderr } = await decommission('--yes', '--lose-values');
    expect(`${status} ${stderr}`).toMatch(/^1 [\s\S]*the webhook still exists on the platform/);
    expect(isMarked()).toBe(true);
  });
});
