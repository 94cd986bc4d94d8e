import { spawn, spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { chmodSync, chownSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { MAIN } from '../../built-agent.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb, type VerbOutcome } from './verb-run.ts';

/** The tests share one agent and one sandbox, and run in this order. */
const TAGS = `
tags:
  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12, group: process } } }
  FT-102: { asset: 882, instrumentation: 4712, values: { flow: { unit: 12 } } }
`;
const REACTIONS = `
reactions:
  - name: note
    on: threshold_reached
    max_age: 0
    do:
      - log: info
`;

let sandbox: Sandbox;
let agent: AgentProcess;
const verb = (...args: string[]): Promise<VerbOutcome> => runVerb([...args, '--config', agent.config]);
const json = async <T>(...args: string[]): Promise<T> => JSON.parse((await verb(...args, '--json')).stdout) as T;

beforeAll(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, {
    tags: TAGS,
    reactions: REACTIONS,
    env: { WEBHOOK_LISTEN: '127.0.0.1:0', REQUESTS_PER_DAY: '50000000' },
  });
  // The first startup selects a free port, which the second one uses in WEBHOOK_URL.
  await agent.start();
  const { listener } = (await agent.status()) as { listener: { webhook: string } };
  await agent.end('SIGTERM');
  agent.write(sandbox.url, {
    tags: TAGS,
    reactions: REACTIONS,
    env: {
      WEBHOOK_LISTEN: listener.webhook,
      WEBHOOK_URL: `http://${listener.webhook}/hook`,
      TECHNICAL_USER_ID: '5',
      REQUESTS_PER_DAY: '50000000',
    },
  });
  await agent.start();
  await agent.registered();
});
afterAll(async () => {
  await agent?.dispose();
  await sandbox?.stop();
});

describe('status', () => {
  it('prints a plain 80-column screen to a pipe', async () => {
    await agent.push([{ tag: 'FT-101', key: 'flow', value: 1.5 }]);
    await agent.until(() => sandbox.values.counts().stored >= 1, 'the value is on the platform');
    const { status, stdout } = await verb('status');
    expect(status).toBe(0);
    const lines = stdout.trimEnd().split('\n');
    expect(lines[0]).toMatch(/^tagferry \S+ {2}online {2}up .*pid \d+$/);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);
    expect(stdout).not.toMatch(/…$/m);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colour is what must not be there
    expect(stdout).not.toMatch(/\u001b/);
    for (const label of ['session', 'buffer', 'posts', 'requests', 'listener', 'held', 'events']) {
      expect(stdout).toMatch(new RegExp(`^${label} `, 'm'));
    }
    expect(stdout).toMatch(/posts +latest attempt \d+ s ago, delivered/);
  });

  it('prints the report from OPS_LISTEN with --json', async () => {
    const report = await json<{ state: string; requests: object; uplink: object }>('status');
    expect(report).toMatchObject({
      state: 'online',
      pid: agent.pid,
      session: { usable: true, state: 'valid' },
      requests: { day_limit: 50_000_000 },
      rates: { drained_in_seconds: 0 },
      uplink: { state: 'online', delivered_values: 1 },
    });
    expect(await agent.status()).toMatchObject({ state: 'online', pid: agent.pid });
  });

  it('reports the duration of an outage and the number of buffered values', async () => {
    await sandbox.goOffline('refuse');
    await agent.push([{ tag: 'FT-101', key: 'flow', value: 2.5 }]);
    await agent.until(
      async () => (await agent.status()).state === 'platform unavailable',
      'the agent noticed the outage',
    );
    const { stdout } = await verb('status');
    expect(stdout.split('\n')[0]).toContain('platform unavailable');
    expect(stdout).toMatch(/^outage +for /m);
    expect(stdout).toMatch(/^buffer +1 value /m);
    await sandbox.goOnline();
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty', 80_000);
  });

  it('reports when and why an asset was held', async () => {
    sandbox.revokePermission({ type: 'Asset', id: 882 });
    await agent.until(async () => ((await agent.status()).holds as unknown[]).length > 0, 'the asset is held');
    const { stdout } = await verb('status');
    expect(stdout).toMatch(/asset 882 (disappeared|answered 40[34]) since \d{4}-\d\d-\d\d \d\d:\d\d\S* .*\(FT-102\)/);
    sandbox.grantPermission({ type: 'Asset', id: 882 });
    await agent.until(async () => ((await agent.status()).holds as unknown[]).length === 0, 'the asset is released');
  });
});

describe('status on a terminal', () => {
  it('uses colours, fits the terminal width, and exits with 0 on Ctrl-C with --watch', async () => {
    const inside = `stty cols 60 rows 24; "${process.execPath}" "${MAIN}" status --watch --every 300ms --config "${agent.config}"; echo "ended $?"`;
    const { NO_COLOR: _, ...environment } = process.env;
    const child = spawn('script', ['-qec', inside, '/dev/null'], {
      cwd: join(import.meta.dirname, '../../..'),
      // dash would exit on the signal, without printing the exit status.
      env: { ...environment, TERM: 'xterm', SHELL: '/bin/bash' },
    });
    let output = '';
    child.stdout.on('data', (chunk) => (output += chunk));
    await agent.until(() => output.split('tagferry 0').length > 3, 'three screens were shown');
    child.stdin.write('\u0003');
    await new Promise((resolve) => child.once('close', resolve));
    expect(output).toContain('\u001b[32monline');
    expect(output).toContain('ended 0');
    // The terminal echoes ^C at the cursor.
    // biome-ignore lint/suspicious/noControlCharactersInRegex: what moves the cursor and colours has no width
    const shown = output.replaceAll(/\u001b\[[0-9;]*[A-Za-z]/g, '').replaceAll('^C', '');
    for (const line of shown.split(/\r?\n/)) expect(line.length, line).toBeLessThanOrEqual(60);
  });
});

describe('tagferry session', () => {
  it('shows the session without tokens', async () => {
    const { status, stdout } = await verb('session', 'show');
    expect(status).toBe(0);
    expect(stdout).toMatch(/state +valid/);
    expect(stdout).toMatch(/renews in +\d+ min/);
    for (const token of tokensAtRest()) expect(stdout).not.toContain(token);
  });

  it('renews the session, and revokes the previous tokens', async () => {
    const [before] = tokensAtRest();
    expect((await verb('session', 'renew')).status).toBe(0);
    const [renewed] = tokensAtRest();
    expect(renewed).not.toBe(before);
    const { issued } = sandbox.tokens.counts();
    const { status, stdout } = await verb('session', 'revoke');
    expect(`${status} ${stdout}`).toMatch(/^0 Tokens revoked/);
    expect(sandbox.tokens.counts().issued).toBe(issued + 1);
    await agent.until(() => sandbox.tokens.counts().alive === 1, 'only the new token is alive');
  });
});

describe('tagferry events', () => {
  it('lists the newest events first, filtered by type and state, up to a limit', async () => {
    const secret = sandbox.webhooks()[0]!.secret;
    for (let i = 0; i < 3; i++) await deliver(thresholdEvent(i), secret);
    await deliver({ event_type: 'nobody_knows', content: {} }, secret);
    const all = await json<{ id: number; event_type: string; unrecognised: boolean }[]>('events', 'ls');
    expect(all[0]).toMatchObject({ event_type: 'nobody_knows', unrecognised: true, state: 'received' });
    expect(all[0]).toHaveProperty('occurred_at');
    expect(all[0]).toHaveProperty('received_at');
    expect(all.map((event) => event.id)).toEqual(all.map((event) => event.id).sort((a, b) => b - a));
    const typed = await json<{ event_type: string }[]>('events', 'ls', '--type', 'threshold_reached', '--limit', '2');
    expect(typed.map((event) => event.event_type)).toEqual(['threshold_reached', 'threshold_reached']);
    const { stdout } = await verb('events', 'ls', '--state', 'received');
    expect(stdout).toMatch(/unrecognised +0 +nobody_knows/);
    const wrong = await verb('events', 'ls', '--state', 'gone');
    expect(`${wrong.status} ${wrong.stderr}`).toMatch(/^2 .*received, running, done, failed, dead/s);
  });

  it('shows an event with the results of its reactions, and replays it', async () => {
    const [event] = await json<{ id: number }[]>('events', 'ls', '--type', 'threshold_reached', '--limit', '1');
    const id = String(event!.id);
    type Sheet = { state: string; payload: { event_type: string }; journal: { reaction: string; at: string }[] };
    await agent.until(async () => (await json<Sheet>('events', 'show', id)).journal.length === 1, 'the reaction ran');
    const sheet = await json<Sheet>('events', 'show', id);
    expect(sheet).toMatchObject({ payload: { event_type: 'threshold_reached' }, journal: [{ reaction: 'note' }] });
    expect((await verb('events', 'replay', id)).status).toBe(0);
    await agent.until(
      async () => (await json<Sheet>('events', 'show', id)).journal.length > 1,
      'the reaction ran again',
    );
    expect((await verb('events', 'show', id)).stdout).toMatch(/note +log/);
  });

  it('shows an event with 9,000 nesting levels unchanged', async () => {
    const nested = `${'['.repeat(9_000)}${']'.repeat(9_000)}`;
    const secret = sandbox.webhooks()[0]!.secret;
    await deliverText(`{"event_type":"event_document_created","content":{"nested":${nested}}}`, secret);
    const [event] = await json<{ id: number }[]>('events', 'ls', '--limit', '1');
    const { status, stdout } = await verb('events', 'show', String(event!.id));
    expect({ status, isWhole: stdout.includes(nested) }).toEqual({ status: 0, isWhole: true });
  });

  it('exits with 1 for an unknown event, and with 2 for an invalid number', async () => {
    const gone = await verb('events', 'show', '99999');
    expect(`${gone.status} ${gone.stderr}`).toMatch(/^1 .*event 99999/s);
    expect((await verb('events', 'replay', 'x')).status).toBe(2);
    expect((await verb('events')).status).toBe(2);
  });

  it('fetches missed events', async () => {
    const { status, stdout } = await verb('events', 'catch-up');
    expect(`${status} ${stdout}`).toMatch(/^0 \d+ deliver(y|ies) listed/);
  });

  it('exits with 1 if the platform rejects the resend of missed events', async () => {
    const path = `/v1/client_applications/3/webhooks/${sandbox.webhooks()[0]!.id}/events`;
    sandbox.faults.add({ method: 'GET', path, status: 200, body: { events: [{ id: 987, status: 'failed' }] } });
    sandbox.faults.add({ method: 'POST', path, status: 422 });
    const { status, stdout } = await verb('events', 'catch-up', '--json');
    sandbox.faults.clear();
    expect({ status, report: JSON.parse(stdout) }).toMatchObject({ status: 1, report: { asked: 0, rejected: 1 } });
  });
});

describe('tagferry webhook', () => {
  it('lists the webhook without its secret', async () => {
    const { stdout } = await verb('webhook', 'ls');
    expect(stdout).toMatch(/^\* +\d+ +enabled +http/m);
    const listed = await json<{ own: boolean; url: string }[]>('webhook', 'ls');
    expect(listed).toMatchObject([{ own: true }]);
    expect(JSON.stringify(listed)).not.toContain(sandbox.webhooks()[0]!.secret);
  });

  it('tests the listener with a single event, locally and at its public URL', async () => {
    const { status, stdout } = await verb('webhook', 'test');
    expect(`${status} ${stdout}`).toMatch(/^0 /);
    expect(stdout.match(/^ok .*unsigned body: status 401$/gm)).toHaveLength(2);
    expect(stdout.match(/^ok .* signed body: status 204$/gm)).toHaveLength(2);
    expect((await verb('webhook', 'test')).status).toBe(0);
    const kept = await json<unknown[]>('events', 'ls', '--type', 'tagferry_self_test');
    expect(kept).toMatchObject([{ unrecognised: true, state: 'received' }]);
    const listed = await json<{ event_type: string }[]>('events', 'ls');
    const { events } = await json<{ events: { event_type: string }[] }>('status');
    expect([...listed, ...events].map((event) => event.event_type)).not.toContain('tagferry_self_test');
    expect(agent.logged('webhook.rejected')).toEqual([]);
  });

  it('rotates the secret, and still passes the self-test', async () => {
    const before = sandbox.webhooks()[0]!.secret;
    expect((await verb('webhook', 'rotate-secret')).status).toBe(0);
    expect(sandbox.webhooks()[0]!.secret).not.toBe(before);
    expect((await verb('webhook', 'test')).status).toBe(0);
  });

  it('disables and enables the webhook', async () => {
    expect((await verb('webhook', 'disable')).status).toBe(0);
    expect(sandbox.webhooks()[0]).toMatchObject({ disabled: true });
    expect((await verb('webhook', 'enable')).status).toBe(0);
    expect(sandbox.webhooks()[0]).toMatchObject({ disabled: false });
  });

  it('deletes the webhook only after confirmation, and can register it again', async () => {
    const unsure = await verb('webhook', 'delete');
    expect(`${unsure.status} ${unsure.stderr}`).toMatch(/^2 .*--yes/s);
    expect(sandbox.webhooks()).toHaveLength(1);
    expect((await verb('webhook', 'delete', '--yes')).status).toBe(0);
    expect(sandbox.webhooks()).toHaveLength(0);
    const test = await verb('webhook', 'test');
    expect(`${test.status} ${test.stdout}`).toMatch(/^1 .*503.*webhook register/s);
    expect((await verb('webhook', 'register')).status).toBe(0);
    expect(sandbox.webhooks()).toHaveLength(1);
  });
});

describe('operator verbs without an agent', () => {
  it('exit with 1 and report the next step, but can still read and replay events', async () => {
    await agent.end('SIGTERM');
    for (const words of [['status'], ['session', 'show'], ['webhook', 'ls'], ['events', 'catch-up']]) {
      const { status, stderr } = await verb(...words);
      expect(`${words.join(' ')}: ${status} ${stderr}`).toMatch(/: 1 .*no agent responds at .*tagferry run --config/s);
    }
    expect(JSON.parse((await verb('status', '--json')).stdout)).toMatchObject({ state: 'not running' });
    const [event] = await json<{ id: number; state: string }[]>('events', 'ls', '--type', 'threshold_reached');
    expect(event).toMatchObject({ state: 'done' });
    const replay = await verb('events', 'replay', String(event!.id));
    expect(`${replay.status} ${replay.stdout}`).toMatch(/^0 .*reactions will run when it starts/);
    const { stdout } = await verb('events', 'show', String(event!.id));
    expect(stdout).toMatch(/state +received/);
    await agent.start();
    await agent.until(
      () => agent.logged('reaction.done').some((line) => line.inboxId === event!.id),
      'the reaction ran',
    );
  });

  it.each([
    ['JSON with an unexpected structure', 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{}\n\n'],
    ['an error page', 'HTTP/1.1 500 Oh\r\nContent-Length: 5\r\n\r\n<html'],
    ['something other than HTTP', 'SSH-2.0-OpenSSH_9.2\r\n'],
  ])('report another program on the control socket that responds with %s', async (_what, response) => {
    await agent.end('SIGKILL');
    const socket = join(agent.state, 'control.sock');
    rmSync(socket, { force: true });
    const foreign = createServer((connection) =>
      connection.on('error', () => {}).once('data', () => connection.end(response)),
    );
    await new Promise<void>((resolve) => foreign.listen(socket, resolve));
    try {
      for (const words of [['status'], ['events', 'ls'], ['session', 'show']]) {
        const { status, stderr } = await verb(...words);
        expect(`${status} ${stderr}`).toMatch(/^1 .*another program is listening on .*control\.sock.*fuser/s);
      }
    } finally {
      foreign.close();
    }
  });

  it('report settings that the current user cannot read', async () => {
    const settings = join(agent.config, 'agent.env');
    const { uid, gid } = statSync(settings);
    chownSync(settings, 65_534, 65_534);
    chmodSync(settings, 0o600);
    // Root without these capabilities has the same access as an ordinary user.
    const user = ['--bounding-set=-dac_override,-dac_read_search', '--', process.execPath, MAIN];
    const outcome = spawnSync('setpriv', [...user, 'reload', '--config', agent.config], { encoding: 'utf8' });
    chownSync(settings, uid, gid);
    expect(`${outcome.status} ${outcome.stderr.replaceAll(/\s+/g, ' ')}`).toMatch(
      /^1 .*This user cannot read \S+agent\.env, .* Use sudo/,
    );
  });

  it('read the inbox of a killed agent', async () => {
    const before = await json<unknown[]>('events', 'ls');
    await agent.end('SIGKILL');
    expect(await json<unknown[]>('events', 'ls')).toHaveLength(before.length);
  });
});

function tokensAtRest(): string[] {
  const body = JSON.parse(agent.file('session.json')) as { tokens: { accessToken: string; refreshToken?: string }[] };
  return body.tokens.flatMap(({ accessToken, refreshToken }) => [accessToken, ...(refreshToken ? [refreshToken] : [])]);
}

function thresholdEvent(value: number) {
  return {
    event_type: 'threshold_reached',
    occurred_at: '2026-11-21T00:00:00Z',
    content: {
      asset: { id: 881, href: 'https://x/v1/assets/881' },
      instrumentation: { id: 4711, href: 'https://x/v1/instrumentations/4711' },
      data: { value, key: 'flow', timestamp: '2026-11-21T00:00:00Z', unit: { code: 'l', symbol: 'l' } },
      threshold: {
        type: 'high',
        name: 'top',
        value: 20,
        unit: { code: 'l', symbol: 'l' },
        thresholdable_type: 'Instrumentation',
        value_in_threshold_unit: null,
      },
    },
  };
}

const deliver = (event: object, secret: string) => deliverText(JSON.stringify(event), secret);

async function deliverText(body: string, secret: string): Promise<void> {
  const signature = `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`;
  const { listener } = (await agent.status()) as { listener: { webhook: string } };
  const answer = await fetch(`http://${listener.webhook}/hook`, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json', 'x-hub-signature-sha256': signature },
  });
  expect(answer.status).toBe(204);
}
