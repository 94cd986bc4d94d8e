import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

let sandbox: Sandbox;
let agent: AgentProcess;

async function begin(env: Record<string, string>): Promise<void> {
  const port = await freePort();
  const webhook = { WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/hook` };
  agent = new AgentProcess(sandbox.url, { env: { ...webhook, ...env } });
  await agent.start();
  await agent.registered();
}

function disappear(asset: number, user: number): void {
  const content = () => ({ asset: { id: asset, serial_number: 'x', href: 'x' }, user: { id: user, href: 'x' } });
  sandbox.announcer.announce({ type: 'asset_disappeared', audience: () => true, content });
}

const held = () => agent.metric('tagferry_assets_held');

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

describe('lost asset access', () => {
  it('holds the asset only if the event refers to the user in TECHNICAL_USER_ID', async () => {
    await begin({ TECHNICAL_USER_ID: '5' });
    disappear(881, 6);
    await agent.until(() => agent.logged('access.other_user').length === 1, 'the event for another user is ignored');
    expect(await held()).toBe(0);
    disappear(881, 5);
    await agent.until(async () => (await held()) === 1, 'the asset is held');
    expect((await agent.status()).access_user).toEqual({ id: 5, from: 'setting' });
  });

  it('holds the asset for any user if the agent user is unknown, and status reports this', async () => {
    await begin({});
    disappear(881, 6);
    await agent.until(async () => (await held()) === 1, 'the asset is held');
    expect((await agent.status()).access_user).toBeNull();
  });
});
