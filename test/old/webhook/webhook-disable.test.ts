import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const port = await freePort();
  const env = { WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/hook` };
  agent = new AgentProcess(sandbox.url, { env });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const webhook = (verb: string) => runVerb(['webhook', verb, '--json', '--config', agent.config]);
const listener = async () => (await agent.status()).listener as Record<string, unknown>;

describe('webhook disabled by command', () => {
  it('is reported and stays disabled across restarts until enabled by command', async () => {
    await agent.start();
    await agent.registered();
    expect(await webhook('disable')).toMatchObject({ status: 0 });
    expect(sandbox.webhooks()[0]!.disabled).toBe(true);
    await agent.end('SIGKILL');
    await agent.start();
    await agent.until(async () => (await listener()).registered !== undefined, 'the webhook is found');
    expect(await listener()).toMatchObject({ disabled_by: 'command' });
    expect(await agent.metric('tagferry_webhook_disabled')).toBe(1);
    const { notes } = JSON.parse((await agent.call(agent.ops, '/healthz')).text) as { notes: string[] };
    expect(notes.join()).toContain('tagferry webhook enable');
    await agent.until(() => agent.logged('webhook.stays_disabled').length === 2, 'it is logged');
    expect(JSON.parse((await webhook('register')).stdout)).toMatchObject({ disabled: true });
    expect(sandbox.webhooks()[0]!.disabled).toBe(true);
    expect(await webhook('enable')).toMatchObject({ status: 0 });
    expect(sandbox.webhooks()[0]!.disabled).toBe(false);
    expect(await listener()).toMatchObject({ disabled_by: null });
    expect(await agent.metric('tagferry_webhook_disabled')).toBe(0);
  });
});
