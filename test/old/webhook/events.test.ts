import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { wholeLines } from '../../whole-lines.ts';

const TAGS = `
tags:
  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }
  FT-102: { asset: 882, instrumentation: 4712, values: { flow: { unit: 12 } } }
`;

let sandbox: Sandbox;
let agent: AgentProcess;

/** Reaction that appends one line per run to a file after a delay. */
const reactions = (folder: string, delayMs = 0) => `
reactions:
  - name: note-it
    on: threshold_reached
    if: { tag: FT-101, threshold.type: high, data.value: { above: 20 } }
    do:
      - run: [${process.execPath}, -e, "let s='';process.stdin.on('data',c=>s+=c).on('end',()=>setTimeout(()=>require('fs').appendFileSync('${folder}/ran',JSON.parse(s).content.data.value+'\\\\n'),${delayMs}))"]
      - log: warn
`;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const port = await freePort();
  agent = new AgentProcess(sandbox.url, {
    tags: TAGS,
    env: { WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/hook` },
  });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

async function startWith(reactionsText: string): Promise<void> {
  agent.write(sandbox.url, { tags: TAGS, reactions: reactionsText, env: webhookEnv() });
  await agent.start();
  await agent.registered();
}

function webhookEnv(): Record<string, string> {
  const text = readFileSync(join(agent.config, 'agent.env'), 'utf8');
  const pick = (key: string) => new RegExp(`^${key}=(.*)$`, 'm').exec(text)?.[1] ?? '';
  return { WEBHOOK_LISTEN: pick('WEBHOOK_LISTEN'), WEBHOOK_URL: pick('WEBHOOK_URL') };
}

const runs = () => wholeLines(join(agent.folder, 'ran'));

const push = (tag: string, number: number) => agent.push([{ tag, key: 'flow', value: number, timestamp: Date.now() }]);

describe('platform event', () => {
  it('runs the matching reaction once, with its JSON on standard input', async () => {
    await startWith(reactions(agent.folder));
    sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 20, key: 'flow' });
    await push('FT-101', 19);
    await push('FT-101', 23.5);
    await agent.until(() => runs().length === 1, 'the reaction has run');
    expect(runs()).toEqual(['23.5']);
    await agent.until(() => agent.logged('reaction.log').length === 1, 'the log action has run');
    // A repeated delivery is acknowledged and not run again.
    const delivery = sandbox.deliveries().find((one) => one.eventType === 'threshold_reached')!;
    const { url, secret } = sandbox.webhooks()[0]!;
    const body = delivery.payload;
    const again = await fetch(url, {
      method: 'POST',
      body,
      headers: { 'X-Hub-Signature-Sha256': sign(Buffer.from(body), secret) },
    });
    expect(again.status).toBe(204);
    expect((await fetch(url, { method: 'POST', body })).status).toBe(401);
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(runs()).toEqual(['23.5']);
  });

  it('runs its reaction at the next startup if it was acknowledged before kill -9', async () => {
    await startWith(reactions(agent.folder, 1_500));
    sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 20, key: 'flow' });
    await push('FT-101', 30);
    await agent.until(
      () => sandbox.deliveries().some((one) => one.eventType === 'threshold_reached' && one.status === 'delivered'),
      'the event was acknowledged',
    );
    await agent.end('SIGKILL');
    expect(runs()).toEqual([]);
    await agent.start();
    await agent.until(() => runs().length === 1, 'the reaction has run');
    expect(runs()).toEqual(['30']);
  });

  it('holds asset values from access revocation until access is granted again, across restarts', async () => {
    await startWith('reactions: []\n');
    await push('FT-101', 1);
    await push('FT-102', 1);
    await agent.until(() => sandbox.values.counts().stored === 2, 'both values are on the platform');
    sandbox.revokePermission({ type: 'Asset', id: 882 });
    await agent.until(async () => (await agent.metric('tagferry_assets_held')) === 1, 'the asset is held');
    await push('FT-101', 2);
    await push('FT-102', 2);
    await agent.until(() => sandbox.values.counts(881).stored === 2, 'the other asset continues');
    await agent.end('SIGKILL');
    await agent.start();
    expect(await agent.metric('tagferry_assets_held')).toBe(1);
    expect(sandbox.values.counts(882).stored).toBe(1);
    sandbox.grantPermission({ type: 'Asset', id: 882 });
    await agent.until(() => sandbox.values.counts(882).stored === 2, 'the held value was delivered');
    expect(await agent.metric('tagferry_assets_held')).toBe(0);
  });
});
