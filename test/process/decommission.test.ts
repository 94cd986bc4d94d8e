/** A gateway that is taken out of service: by its running daemon, and without one. */
import { existsSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { runVerb } from '../commands/verb-run.ts';
import { AgentProcess } from './agent-process.ts';

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

describe('tagferry decommission on a running daemon', () => {
  it('drains, deletes the webhook, revokes, marks the folder and ends the daemon with 78; run ends with 78 until setup', async () => {
    await agent.start();
    await agent.registered();
    for (let i = 0; i < 5; i++) expect(await push()).toBe(204);
    const { status, stdout, stderr } = await decommission('--yes');
    expect(`${status} ${stderr}`).toMatch(/^0 /);
    expect(stdout).toMatch(/Webhook \d+ is deleted/);
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
    // Said again, and nothing more to do.
    expect(await decommission('--yes')).toMatchObject({ status: 0 });
  });

  it('leaves everything as it was where values are left after the timeout, and takes values in again', async () => {
    await agent.start();
    await agent.registered();
    const fault = goAway();
    expect(await push()).toBe(204);
    const { status, stdout, stderr } = await decommission('--yes', '--timeout', '300ms');
    expect(`${status} ${stdout}`).toMatch(/^1 .*1 value waiting/);
    expect(stderr).toMatch(/values are left \(1 value\): nothing was deleted/);
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

  it('gives up values with --lose-values, and says how many stay in the folder', async () => {
    await agent.start();
    await agent.registered();
    goAway();
    expect(await push()).toBe(204);
    const { status, stdout } = await decommission('--yes', '--timeout', '0', '--lose-values');
    expect(`${status} ${stdout}`).toMatch(/^0 [\s\S]*Not delivered, and still in .*: 1 value\./);
    expect(await agent.ended()).toBe(78);
    expect(isMarked()).toBe(true);
    expect(sandbox.webhooks()).toEqual([]);
  });

  it('answers 503 to programs that push while it drains, and takes values in again where it is given up', async () => {
    await agent.start();
    goAway();
    expect(await push()).toBe(204);
    const asked = request({ socketPath: join(agent.state, 'control.sock'), path: '/decommission/run', method: 'POST' });
    asked.on('error', () => {}).end('{"timeout_ms":600000}');
    await agent.until(() => agent.logged('decommission.started').length === 1, 'it has begun');
    let answer: Awaited<ReturnType<AgentProcess['push']>> | undefined;
    const isRefused = async () => {
      answer = await agent.push([{ tag: 'FT-101', key: 'flow', value: 2 }]).catch(() => undefined);
      return answer?.status === 503;
    };
    await agent.until(isRefused, 'the listener says 503');
    expect(Number(answer!.headers['retry-after'])).toBeGreaterThan(0);
    expect(answer!.text).toContain('being decommissioned');
    asked.destroy();
    await agent.until(async () => (await push().catch(() => 0)) === 204, 'values are taken in');
    // What was answered 503 is not here.
    expect(await agent.metric('tagferry_buffer_values')).toBe(2);
  });

  it('counts quarantine as values that would be lost', async () => {
    await agent.start();
    sandbox.faults.poison({ asset: 882, value: 666 });
    const taken = [1, 666, 3].map((value, i) => ({ tag: 'FT-102', key: 'flow', value, timestamp: 1.7e12 + i }));
    expect((await agent.push(taken)).status).toBe(204);
    // The platform is there all the while: then a refusal is the value's own.
    const refused = async () => (await push()) === 204 && agent.logged('uplink.quarantined').length > 0;
    await agent.until(refused, 'it is refused');
    const { status, stderr } = await decommission('--yes');
    expect(`${status} ${stderr}`).toMatch(/^1 [\s\S]*values are left \(1 value in quarantine\)/);
    expect(await push()).toBe(204);
  });

  it('wants --yes where nobody can answer: exit status 2, and nothing changed', async () => {
    await agent.start();
    const { status, stderr } = await decommission();
    expect(`${status} ${stderr}`).toMatch(/^2 [\s\S]*--yes/);
    expect(await push()).toBe(204);
    expect((await decommission('--yes', '--timeout', 'soon')).status).toBe(2);
    expect(isMarked()).toBe(false);
  });

  it('goes on taking values in when whoever asked has left', async () => {
    await agent.start();
    goAway();
    expect(await push()).toBe(204);
    const asked = request({ socketPath: join(agent.state, 'control.sock'), path: '/decommission/run', method: 'POST' });
    asked.on('error', () => {}).end('{"timeout_ms":600000}');
    await agent.until(() => agent.logged('decommission.started').length === 1, 'it has begun');
    asked.destroy();
    await agent.until(() => agent.logged('decommission.given_up').length === 1, 'it is given up');
    await agent.until(async () => (await push().catch(() => 0)) === 204, 'values are taken in');
    expect(isMarked()).toBe(false);
  });
});

describe('tagferry decommission without a daemon', () => {
  it('says to start the service where values wait, and needs it not where the buffer is empty', async () => {
    await agent.start();
    await agent.registered();
    const fault = goAway();
    expect(await push()).toBe(204);
    await agent.end('SIGTERM');
    const refused = await decommission('--yes');
    expect(`${refused.status} ${refused.stderr}`).toMatch(/^1 [\s\S]*1 value wait[\s\S]*tagferry run/);
    expect(isMarked()).toBe(false);
    sandbox.faults.remove(fault);
    await agent.start();
    await agent.until(() => delivered() === 1, 'the value arrives');
    await agent.end('SIGTERM');
    const { status, stdout, stderr } = await decommission('--yes');
    expect(`${status} ${stderr}`).toMatch(/^0 /);
    expect(stdout).toMatch(/Nothing would be lost[\s\S]*Webhook \d+ is deleted/);
    expect(sandbox.webhooks()).toEqual([]);
    agent.launch();
    expect(await agent.ended()).toBe(78);
  });

  it('revokes the tokens that a daemon left which was killed', async () => {
    await agent.start();
    await agent.registered();
    await agent.end('SIGKILL');
    expect(sandbox.tokens.counts().alive).toBe(1);
    const { status, stdout, stderr } = await decommission('--yes');
    expect(`${status} ${stderr}`).toMatch(/^0 /);
    expect(stdout).toContain('Revoked what a daemon that was killed left: 1 token.');
    expect(sandbox.tokens.counts().alive).toBe(0);
    expect(existsSync(join(agent.state, 'session.json'))).toBe(false);
  });

  it('needs no daemon with --lose-values, nor a platform', async () => {
    await agent.start();
    await agent.registered();
    goAway();
    expect(await push()).toBe(204);
    await agent.end('SIGTERM');
    await sandbox.stop();
    const { status, stderr } = await decommission('--yes', '--lose-values');
    expect(`${status} ${stderr}`).toMatch(/^1 [\s\S]*the webhook stays on the platform/);
    expect(isMarked()).toBe(true);
  });
});
