/** Two agents with one identity, as after copying a disk: their reports, and assigning a new identity to a copy. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';
import { contentOf } from '../webhook/event-plant.ts';

interface Conflict {
  kind: string;
  source: string | null;
  count: number;
}
let sandbox: Sandbox;
let original: AgentProcess;
let copy: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  original = new AgentProcess(sandbox.url);
  copy = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  await original.dispose();
  await copy.dispose();
  await sandbox.stop();
});

async function run(...args: string[]): Promise<string> {
  const { stdout, stderr } = await runVerb(args);
  return `${stdout}${stderr}`.replaceAll(/\s+/g, ' ');
}

async function conflicts(agent: AgentProcess): Promise<Conflict[]> {
  return ((await agent.status()) as { identity_conflicts: Conflict[] }).identity_conflicts;
}

const has = async (agent: AgentProcess, kind: string) => (await conflicts(agent)).some((one) => one.kind === kind);

function raiseEvent(serial: number): void {
  sandbox.announcer.announce({
    type: 'threshold_reached',
    audience: () => true,
    content: () => contentOf(serial, false),
  });
}

/** Copies the state folder as a disk copy does. Both processes of this test have the same machine id. */
function copyState(): void {
  cpSync(original.state, copy.state, { recursive: true, filter: (path) => !path.endsWith('.sock') });
  shareIdentity();
}

function shareIdentity(): void {
  const identity = { machine: readFileSync('/etc/machine-id', 'utf8').trim(), folder: original.state };
  writeFileSync(join(copy.state, 'identity.json'), JSON.stringify(identity));
}

describe('token revoked by another client', () => {
  /** Posts a value, so that the current token has worked once. */
  async function post(agent: AgentProcess): Promise<void> {
    const before = await agent.metric('tagferry_values_delivered_total');
    await agent.push([{ asset: 881, key: 'k', value: 1 }]);
    await agent.until(
      async () => (await agent.metric('tagferry_values_delivered_total')) > before,
      'a value is delivered',
    );
  }

  it('is reported by the original gateway if a copy of its state folder is used', async () => {
    await original.start();
    await post(original);
    copyState();
    await copy.start();
    await copy.until(() => copy.logged('session.leftovers').length > 0, 'the copy revokes the tokens of the original');
    await original.until(async () => {
      await post(original);
      return has(original, 'token');
    }, 'the conflict is in the status');
    expect(await conflicts(copy)).toEqual([]);
  });

  it('is not reported if a platform restart invalidates all tokens', async () => {
    await original.start();
    await post(original);
    const port = Number(new URL(sandbox.url).port);
    await sandbox.stop();
    await original.push([{ asset: 881, key: 'k', value: 2 }]);
    await original.until(() => original.logged('uplink.away').length > 0, 'the platform is unavailable');
    sandbox = new Sandbox({ port });
    await sandbox.start();
    await original.until(() => original.logged('session.token_refused').length > 0, 'the token is rejected');
    await post(original);
    expect(await conflicts(original)).toEqual([]);
  });

  it('is not reported if the operator renews or revokes the session', async () => {
    await original.start();
    for (const verb of ['renew', 'revoke']) {
      await post(original);
      await run('session', verb, '--config', original.config);
      await post(original);
    }
    expect(await conflicts(original)).toEqual([]);
  });
});

describe('webhook secret changed by another client', () => {
  async function startOriginal(): Promise<string> {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}/webhook`;
    original.write(sandbox.url, { env: { WEBHOOK_URL: url, WEBHOOK_LISTEN: `127.0.0.1:${port}` } });
    await original.start();
    await original.registered();
    return url;
  }

  it('is reported by the original gateway until the new secret is configured', async () => {
    const url = await startOriginal();
    copy.write(sandbox.url, { env: { WEBHOOK_URL: url } });
    await copy.start();
    await copy.until(() => copy.logged('webhook.secret_reset').length > 0, 'the copy has changed the secret');
    raiseEvent(1);
    await original.until(() => has(original, 'webhook'), 'the conflict is in the status');
    await copy.end('SIGTERM');
    await run('webhook', 'rotate-secret', '--config', original.config);
    raiseEvent(2);
    await original.until(async () => (await conflicts(original)).length === 0, 'the conflict is over');
  });

  it('is not reported after forged requests', async () => {
    const url = await startOriginal();
    for (let request = 0; request < 3; request++) {
      const headers = { 'X-Hub-Signature-Sha256': `sha256=${'0'.repeat(64)}` };
      const body = `{"event_type":"asset_created","request":${request}}`;
      expect((await fetch(url, { method: 'POST', headers, body })).status).toBe(401);
    }
    await original.until(
      () => sandbox.requests.list().filter(({ path }) => path.endsWith('/events')).length > 1,
      'the deliveries list was read again',
    );
    expect(await conflicts(original)).toEqual([]);
  });
});
