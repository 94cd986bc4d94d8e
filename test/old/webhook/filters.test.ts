import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { TestPlatform } from '../../unit/webhook/parts/platforms.ts';
import { runVerb } from '../commands/verb-run.ts';

let sandbox: Sandbox;
let agent: AgentProcess;
let env: Record<string, string>;

const rule = (condition: string) =>
  `reactions:\n  - name: look\n    on: asset_updated\n    if: ${condition}\n    do: [{ log: warn }]\n`;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const port = await freePort();
  env = {
    WEBHOOK_LISTEN: `127.0.0.1:${port}`,
    WEBHOOK_URL: `http://127.0.0.1:${port}/hook`,
    TECHNICAL_USER_ID: '5',
    WEBHOOK_EVENTS: 'threshold_reached,asset_appeared,asset_disappeared,asset_updated',
  };
  agent = new AgentProcess(sandbox.url, { env, reactions: rule('{ asset.description: open }') });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const filters = () => sandbox.webhooks()[0]?.properties;
const sent = (type: string) => sandbox.deliveries().filter(({ eventType }) => eventType === type).length;

describe('webhook filters', () => {
  it('follow the rules after a reload, and exclude only events that match no rule', async () => {
    await agent.start();
    await agent.registered();
    expect(filters()).toEqual({ asset_updated: ['description'] });
    sandbox.changes.updateAsset(881, { last_seen_at: '2026-11-21T00:00:00Z' });
    sandbox.changes.updateAsset(881, { description: 'open' });
    await agent.until(() => agent.logged('reaction.log').length === 1, 'the rule matched');
    expect(sent('asset_updated')).toBe(1);
    // Holds receive everything, regardless of the rules.
    sandbox.revokePermission({ type: 'Asset', id: 882 });
    await agent.until(async () => (await agent.metric('tagferry_assets_held')) === 1, 'the asset is held');

    agent.write(sandbox.url, { env, reactions: rule('{ asset.id: 881 }') });
    agent.signal('SIGHUP');
    await agent.until(() => Object.keys(filters() ?? {}).length === 0, 'the filter is removed');
    sandbox.changes.updateAsset(881, { last_seen_at: '2026-11-21T00:00:01Z' });
    await agent.until(() => agent.logged('reaction.log').length === 2, 'the broader rule matched');

    // An invalid file leaves rules and filters unchanged.
    appendFileSync(join(agent.config, 'reactions.yaml'), '  - name: [\n');
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.refused').length === 1, 'the invalid file is rejected');
    expect(filters()).toEqual({});
  });

  it('follow WEBHOOK_PROPERTIES, and do not apply to a second webhook managed by ID', async () => {
    agent.write(sandbox.url, {
      env: { ...env, WEBHOOK_PROPERTIES: 'asset_updated=serial_number' },
      reactions: rule('{ asset.description: open }'),
    });
    await agent.start();
    await agent.registered();
    expect(filters()).toEqual({ asset_updated: ['serial_number'] });
    expect(agent.logged('webhook.filter_narrow')).toMatchObject([{ eventType: 'asset_updated' }]);
    const verb = (...args: string[]) => runVerb(['webhook', ...args, '--config', agent.config]);
    const path = `/v1/client_applications/${sandbox.webhooks()[0]!.application}/webhooks`;
    const body = { url: 'https://consumer.example/hook', event_types: ['node_appeared'] };
    const platform = await TestPlatform.at(sandbox);
    await platform.act({ method: 'POST', path, body, kind: 'other' });
    const other = sandbox.webhooks()[1]!.id;
    expect((await verb('ls')).stdout).toMatch(/\* .*asset_updated=serial_number\n[^*]*consumer\.example/);
    expect(await verb('disable', `${other}`)).toMatchObject({ status: 0 });
    expect(sandbox.webhooks().map(({ disabled }) => disabled)).toEqual([false, true]);
    expect(await verb('enable', `${other}`)).toMatchObject({ status: 0 });
    expect(await verb('delete', `${other}`, '--yes')).toMatchObject({ status: 0 });
    expect(sandbox.webhooks().map(({ disabled }) => disabled)).toEqual([false]);
  });
});
