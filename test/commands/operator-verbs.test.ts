import { spawn, spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { chmodSync, chownSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { MAIN } from '../built-agent.ts';
import { AgentProcess } from '../process/agent-process.ts';
import { runVerb, type VerbOutcome } from './verb-run.ts';

/** One daemon and one sandbox for the whole file; the tests run in this order. */
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
  // The first start tells which port is free; the public address then names it.
  await agent.start();
  const { listener } = (await agent.status()) as { listener: { webhook: string } };
  await agent.end('SIGTERM');
  agent.write(sandbox.url, {
    tags: TAGS,
    reactions: REACTIONS,
    env: {
      WEBHOOK_LISTEN: listener.webhook,
      WEBHOOK_URL: `http://${listener.webhook}/hook`,
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
  it('shows one plain screen of 80 columns when piped', async () => {
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
    for (const label of ['session', 'buffer', 'posts', 'requests', 'listener', 'holds', 'events']) {
      expect(stdout).toMatch(new RegExp(`^${label} `, 'm'));
    }
    expect(stdout).toMatch(/posts +last tried \d+ s ago, delivered/);
  });

  it('prints the same report as JSON that OPS_LISTEN gives', async () => {
    const told = await json<{ state: string; requests: object; uplink: object }>('status');
    expect(told).toMatchObject({
      state: 'online',
      pid: agent.pid,
      session: { usable: true, state: 'valid' },
      requests: { day_limit: 50_000_000 },
      rates: { drained_in_seconds: 0 },
      uplink: { state: 'online', delivered_values: 1 },
    });
    expect(await agent.status()).toMatchObject({ state: 'online', pid: agent.pid });
  });

  it('says how long the platform has been away and how much waits for it', async () => {
    await sandbox.goOffline('refuse');
    await agent.push([{ tag: 'FT-101', key: 'flow', value: 2.5 }]);
    await agent.until(async () => (await agent.status()).state === 'platform away', 'the agent noticed');
    const { stdout } = await verb('status');
    expect(stdout.split('\n')[0]).toContain('platform away');
    expect(stdout).toMatch(/^away +for /m);
    expect(stdout).toMatch(/^buffer +1 value /m);
    await sandbox.goOnline();
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty', 80_000);
  });

  it('names an asset that is held, since when and why', async () => {
    sandbox.takePermission({ type: 'Asset', id: 882 });
    await agent.until(async () => ((await agent.status()).holds as unknown[]).length > 0, 'the asset is held');
    const { stdout } = await verb('status');
    expect(stdout).toMatch(/asset 882 (disappeared|answered 40[34]) since \d{4}-\d\d-\d\d \d\d:\d\d\S* .*\(FT-102\)/);
    sandbox.grantPermission({ type: 'Asset', id: 882 });
    await agent.until(async () => ((await agent.status()).holds as unknown[]).length === 0, 'the asset is released');
  });
});

describe('status on a terminal', () => {
  it('is coloured, as wide as the terminal at most, and ends with 0 at Ctrl-C while it watches', async () => {
    const inside = `stty cols 60 rows 24; "${process.execPath}" "${MAIN}" status --watch --every 300ms --config "${agent.config}"; echo "ended $?"`;
    const { NO_COLOR: _, ...environment } = process.env;
    const child = spawn('script', ['-qec', inside, '/dev/null'], {
      cwd: join(import.meta.dirname, '../..'),
      // dash would end with the signal itself instead of going on to say how the verb ended.
      env: { ...environment, TERM: 'xterm', SHELL: '/bin/bash' },
    });
    let output = '';
    child.stdout.on('data', (chunk) => (output += chunk));
    await agent.until(() => output.split('tagferry 0').length > 3, 'it has shown three screens');
    child.stdin.write('\u0003');
    await new Promise((resolve) => child.once('close', resolve));
    expect(output).toContain('\u001b[32monline');
    expect(output).toContain('ended 0');
    // The terminal echoes ^C wherever the cursor stands.
    // biome-ignore lint/suspicious/noControlCharactersInRegex: what moves the cursor and colours has no width
    const shown = output.replaceAll(/\u001b\[[0-9;]*[A-Za-z]/g, '').replaceAll('^C', '');
    for (const line of shown.split(/\r?\n/)) expect(line.length, line).toBeLessThanOrEqual(60);
  });
});

describe('session', () => {
  it('shows the session and never a whole token', async () => {
    const { status, stdout } = await verb('session', 'show');
    expect(status).toBe(0);
    expect(stdout).toMatch(/state +valid/);
    expect(stdout).toMatch(/renews in +\d+ min/);
    for (const token of tokensAtRest()) expect(stdout).not.toContain(token);
  });

  it('renews, and revokes what was there', async () => {
    const [before] = tokensAtRest();
    expect((await verb('session', 'renew')).status).toBe(0);
    const [renewed] = tokensAtRest();
    expect(renewed).not.toBe(before);
    const { issued } = sandbox.tokens.counts();
    const { status, stdout } = await verb('session', 'revoke');
    expect(`${status} ${stdout}`).toMatch(/^0 The tokens were revoked/);
    expect(sandbox.tokens.counts().issued).toBe(issued + 1);
    await agent.until(() => sandbox.tokens.counts().alive === 1, 'only the new token is alive');
  });
});

describe('events', () => {
  it('lists the newest first, by type and state, as many as asked for', async () => {
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

  it('shows an event with what its reactions did, and runs them again', async () => {
    const [event] = await json<{ id: number }[]>('events', 'ls', '--type', 'threshold_reached', '--limit', '1');
    const id = String(event!.id);
    type Sheet = { state: string; payload: { event_type: string }; journal: { reaction: string; at: string }[] };
    await agent.until(async () => (await json<Sheet>('events', 'show', id)).journal.length === 1, 'it ran');
    const sheet = await json<Sheet>('events', 'show', id);
    expect(sheet).toMatchObject({ payload: { event_type: 'threshold_reached' }, journal: [{ reaction: 'note' }] });
    expect((await verb('events', 'replay', id)).status).toBe(0);
    await agent.until(async () => (await json<Sheet>('events', 'show', id)).journal.length > 1, 'it ran again');
    expect((await verb('events', 'show', id)).stdout).toMatch(/note +log/);
  });

  it('shows an event with 9,000 levels as it came', async () => {
    const nested = `${'['.repeat(9_000)}${']'.repeat(9_000)}`;
    const secret = sandbox.webhooks()[0]!.secret;
    await deliverText(`{"event_type":"event_document_created","content":{"nested":${nested}}}`, secret);
    const [event] = await json<{ id: number }[]>('events', 'ls', '--limit', '1');
    const { status, stdout } = await verb('events', 'show', String(event!.id));
    expect({ status, isWhole: stdout.includes(nested) }).toEqual({ status: 0, isWhole: true });
  });

  it('fails with 1 on an event that is not there, with 2 on what is no number', async () => {
    const gone = await verb('events', 'show', '99999');
    expect(`${gone.status} ${gone.stderr}`).toMatch(/^1 .*there is no event 99999/s);
    expect((await verb('events', 'replay', 'x')).status).toBe(2);
    expect((await verb('events')).status).toBe(2);
  });

  it('fetches what was missed', async () => {
    const { status, stdout } = await verb('events', 'catch-up');
    expect(`${status} ${stdout}`).toMatch(/^0 \d+ deliver(y|ies) listed/);
  });

  it('fails with 1 if the platform rejects a resend of missed events', async () => {
    const path = `/v1/client_applications/3/webhooks/${sandbox.webhooks()[0]!.id}/events`;
    sandbox.faults.add({ method: 'GET', path, status: 200, body: { events: [{ id: 987, status: 'failed' }] } });
    sandbox.faults.add({ method: 'POST', path, status: 422 });
    const { status, stdout } = await verb('events', 'catch-up', '--json');
    sandbox.faults.clear();
    expect({ status, report: JSON.parse(stdout) }).toMatchObject({ status: 1, report: { asked: 0, rejected: 1 } });
  });
});

describe('webhook', () => {
  it('lists the own webhook and shows no secret', async () => {
    const { stdout } = await verb('webhook', 'ls');
    expect(stdout).toMatch(/^\* +\d+ +enabled +http/m);
    const listed = await json<{ own: boolean; url: string }[]>('webhook', 'ls');
    expect(listed).toMatchObject([{ own: true }]);
    expect(JSON.stringify(listed)).not.toContain(sandbox.webhooks()[0]!.secret);
  });

  it('tests the listener here and at its public address without leaving a second event', async () => {
    const { status, stdout } = await verb('webhook', 'test');
    expect(`${status} ${stdout}`).toMatch(/^0 /);
    expect(stdout.match(/^ok .*unsigned body answered 401$/gm)).toHaveLength(2);
    expect(stdout.match(/^ok .* signed body answered 204$/gm)).toHaveLength(2);
    expect((await verb('webhook', 'test')).status).toBe(0);
    const kept = await json<unknown[]>('events', 'ls', '--type', 'tagferry_self_test');
    expect(kept).toMatchObject([{ unrecognised: true, state: 'received' }]);
    const listed = await json<{ event_type: string }[]>('events', 'ls');
    const { events } = await json<{ events: { event_type: string }[] }>('status');
    expect([...listed, ...events].map((event) => event.event_type)).not.toContain('tagferry_self_test');
    expect(agent.logged('webhook.rejected')).toEqual([]);
  });

  it('rotates the secret, and the test still passes', async () => {
    const before = sandbox.webhooks()[0]!.secret;
    expect((await verb('webhook', 'rotate-secret')).status).toBe(0);
    expect(sandbox.webhooks()[0]!.secret).not.toBe(before);
    expect((await verb('webhook', 'test')).status).toBe(0);
  });

  it('disables and enables', async () => {
    expect((await verb('webhook', 'disable')).status).toBe(0);
    expect(sandbox.webhooks()[0]).toMatchObject({ disabled: true });
    expect((await verb('webhook', 'enable')).status).toBe(0);
    expect(sandbox.webhooks()[0]).toMatchObject({ disabled: false });
  });

  it('deletes only when told that it is meant, and registers again', async () => {
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

describe('help', () => {
  it.each(['status', 'events', 'events ls', 'webhook', 'webhook test', 'session', 'session show', 'check', 'sandbox'])(
    'tells about %s and exits with 0',
    async (words) => {
      const { status, stdout } = await runVerb([...words.split(' '), '--help']);
      expect(status).toBe(0);
      expect(stdout).toContain(`Usage: tagferry ${words}`);
    },
  );
});

describe('without a daemon', () => {
  it('says so, what to do, and fails with 1; the inbox can still be read and an event marked', async () => {
    await agent.end('SIGTERM');
    for (const words of [['status'], ['session', 'show'], ['webhook', 'ls'], ['events', 'catch-up']]) {
      const { status, stderr } = await verb(...words);
      expect(`${words.join(' ')}: ${status} ${stderr}`).toMatch(/: 1 .*no agent responds at .*tagferry run --config/s);
    }
    expect(JSON.parse((await verb('status', '--json')).stdout)).toMatchObject({ state: 'not running' });
    const [event] = await json<{ id: number; state: string }[]>('events', 'ls', '--type', 'threshold_reached');
    expect(event).toMatchObject({ state: 'done' });
    const replay = await verb('events', 'replay', String(event!.id));
    expect(`${replay.status} ${replay.stdout}`).toMatch(/^0 .*when it starts/);
    const { stdout } = await verb('events', 'show', String(event!.id));
    expect(stdout).toMatch(/state +received/);
    await agent.start();
    await agent.until(() => agent.logged('reaction.done').some((line) => line.inboxId === event!.id), 'it ran');
  });

  it.each([
    ['JSON of another shape', 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{}\n\n'],
    ['an error page', 'HTTP/1.1 500 Oh\r\nContent-Length: 5\r\n\r\n<html'],
    ['no HTTP', 'SSH-2.0-OpenSSH_9.2\r\n'],
  ])('names a foreign program on the control socket that responds with %s', async (_what, response) => {
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
        expect(`${status} ${stderr}`).toMatch(/^1 .*another program answers at .*control\.sock.*fuser/s);
      }
    } finally {
      foreign.close();
    }
  });

  it('names settings that this user cannot read', async () => {
    const settings = join(agent.config, 'agent.env');
    const { uid, gid } = statSync(settings);
    chownSync(settings, 65_534, 65_534);
    chmodSync(settings, 0o600);
    // Root without these capabilities is a user like others.
    const user = ['--bounding-set=-dac_override,-dac_read_search', '--', process.execPath, MAIN];
    const said = spawnSync('setpriv', [...user, 'reload', '--config', agent.config], { encoding: 'utf8' });
    chownSync(settings, uid, gid);
    expect(`${said.status} ${said.stderr.replaceAll(/\s+/g, ' ')}`).toMatch(
      /^1 .*This user cannot read \S+agent\.env, .* Use sudo/,
    );
  });

  it('reads the inbox of one that was killed', async () => {
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
