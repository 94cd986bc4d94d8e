import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { defaultSeed, Sandbox } from '../../src/sandbox/sandbox.ts';
import { readSeedFile } from '../../src/sandbox/seed/seed-file.ts';
import { Visitor } from './visitor.ts';

const COMMAND = `
  const { Command } = await import('commander');
  const { define } = await import(${JSON.stringify(join(import.meta.dirname, '../../src/sandbox/program/verbs.ts'))});
  const program = new Command('tagferry').exitOverride();
  define(program);
  await program.parseAsync(process.argv.slice(1), { from: 'user' }).catch((error) => {
    process.stderr.write(error.message + '\\n');
    process.exitCode = error.code === 'usage' ? 2 : 1;
  });
`;
let folder: string;
let child: ChildProcess | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandbox-'));
});
afterEach(() => {
  child?.kill('SIGKILL');
  rmSync(folder, { recursive: true });
});

function run(...args: string[]) {
  const started = spawn(process.execPath, ['--input-type=module', '-e', COMMAND, '--', 'sandbox', ...args], {
    cwd: join(import.meta.dirname, '../..'),
  });
  child = started;
  const output = { text: '' };
  started.stdout.on('data', (chunk: Buffer) => {
    output.text += chunk;
  });
  started.stderr.on('data', (chunk: Buffer) => {
    output.text += chunk;
  });
  return { started, output, ended: once(started, 'exit') as Promise<[number | null]> };
}

const urlIn = async (output: { text: string }) => {
  await vi.waitFor(() => expect(output.text).toContain('PLATFORM_URL='), { timeout: 20_000, interval: 20 });
  return /PLATFORM_URL=(\S+)/.exec(output.text)![1]!;
};

describe('tagferry sandbox', () => {
  it.each(['SIGINT', 'SIGTERM'] as const)(
    'tells its credentials and a story, and ends with 0 on %s',
    async (signal) => {
      const { started, output, ended } = run('--listen', '127.0.0.1:0');
      const visitor = new Visitor({ url: await urlIn(output) } as Sandbox);
      visitor.token = (await visitor.login()).body.access_token;
      await visitor.post(881, 'flow', [{ value: 1 }]);
      await vi.waitFor(() => expect(output.text).toContain('Gateway: 1 value for FT-101 (flow): 204'), {
        timeout: 5000,
      });
      expect(output.text).toContain('CLIENT_ID=sandbox-client');
      expect(output.text).not.toContain(visitor.token);
      started.kill(signal);
      expect((await ended)[0]).toBe(0);
    },
  );

  it('warns where it is open to the network, and not on loopback', async () => {
    const open = run('--listen', '0.0.0.0:0');
    await urlIn(open.output);
    expect(open.output.text).toContain('warning: the sandbox is open to the network');
    open.started.kill('SIGTERM');
    await open.ended;
    const own = run('--listen', '127.0.0.1:0');
    await urlIn(own.output);
    expect(own.output.text).not.toContain('open to the network');
  });

  it('stays alive and reachable at its second address while the platform is offline', async () => {
    const { started, output, ended } = run('--listen', '127.0.0.1:0', '--admin-port', '0');
    const url = await urlIn(output);
    const admin = /Behind the scenes: (\S+)\/sandbox/.exec(output.text)![1]!;
    expect((await fetch(`${admin}/sandbox/offline`, { method: 'POST' })).status).toBe(202);
    await vi.waitFor(() => expect(fetch(url)).rejects.toThrow(), { timeout: 5000 });
    expect((await fetch(`${admin}/sandbox/online`, { method: 'POST' })).status).toBe(204);
    expect((await fetch(`${url}/v1/assets/881`)).status).not.toBe(0);
    started.kill('SIGTERM');
    expect((await ended)[0]).toBe(0);
  });

  it('goes away and comes back, and lets tokens expire, again and again where its flags say so', async () => {
    const { output } = run('--listen', '127.0.0.1:0', '--away', '300ms/100ms', '--expire-every', '250ms', '--no-keys');
    const url = await urlIn(output);
    const count = (text: string) => output.text.split(text).length - 1;
    await vi.waitFor(() => expect(count('the platform is back')).toBeGreaterThanOrEqual(2), { timeout: 20_000 });
    expect(count('the platform goes away')).toBeGreaterThanOrEqual(2);
    expect(count('every access token and refresh token expires')).toBeGreaterThanOrEqual(2);
    await vi.waitFor(() => expect(fetch(`${url}/openapi.json`)).rejects.toThrow(), { timeout: 20_000, interval: 5 });
  });

  it('prints the default site as a seed file that makes the same site', async () => {
    const { output, ended } = run('seed');
    expect((await ended)[0]).toBe(0);
    const file = join(folder, 'site.yaml');
    writeFileSync(file, output.text);
    const { siteOf } = await import('../../src/sandbox/seed/seed.ts');
    expect(siteOf(readSeedFile(file))).toEqual(siteOf(defaultSeed));
  });

  it('reads a seed of its own and says what is wrong with one', async () => {
    const file = join(folder, 'seed.yaml');
    writeFileSync(file, 'pumps:\n  - id: 1\n');
    const wrong = run('--listen', '127.0.0.1:0', '--seed', file);
    expect((await wrong.ended)[0]).toBe(2);
    expect(wrong.output.text).toContain('holds pumps, which no sandbox knows');
    writeFileSync(file, 'instrumentations:\n  - { id: 1, tag: T, assets: all }\n');
    const misshapen = run('--listen', '127.0.0.1:0', '--seed', file);
    expect((await misshapen.ended)[0]).toBe(2);
    expect(misshapen.output.text).toContain('assets of instrumentations 1');
    writeFileSync(
      file,
      `users:
  - { id: 1, email: gateway@sandbox.example, password: gateway-password, technical: true }
client_applications:
  - { id: 3, name: mine, client_id: sandbox-client, client_secret: sandbox-secret, technical_user: 1 }
assets:
  - { id: 7, serial_number: S7 }
permissions:
  - { user: 1, on: { Asset: 7 }, types: [can_read, can_update] }
`,
    );
    const { output } = run('--listen', '127.0.0.1:0', '--seed', file);
    const visitor = new Visitor({ url: await urlIn(output) } as Sandbox);
    visitor.token = (await visitor.login()).body.access_token;
    expect((await visitor.post(7, 'flow', [{ value: 1 }])).status).toBe(204);
    expect((await visitor.post(881, 'flow', [{ value: 1 }])).status).toBe(404);
  });

  it('says at once that its address is taken, and ends with 1', async () => {
    const other = new Sandbox();
    await other.start();
    const { ended, output } = run('--listen', new URL(other.url).host);
    expect((await ended)[0]).toBe(1);
    expect(output.text).toContain('cannot listen on');
    await other.stop();
  });

  it('has an address for {web_url}, a time, pages of an origin and the letter of the specification by its flags', async () => {
    const { output } = run(
      ...['--listen', '127.0.0.1:0', '--identity-port', '0', '--now', '2027-05-02T00:00:00Z'],
      ...['--cors', 'https://page.example', '--strict', '--assume', 'json-type=any'],
    );
    const url = await urlIn(output);
    const identityUrl = /IDENTITY_URL=(\S+)/.exec(output.text)![1]!;
    expect(identityUrl).not.toBe(url);
    const signIn =
      '/app/id/sign_in?response_type=code&client_id=sandbox-client&redirect_uri=https://client.example/callback';
    expect((await fetch(`${url}${signIn}`)).status).toBe(404);
    const page = await fetch(`${identityUrl}${signIn}`);
    expect([page.status, await page.text()]).toEqual([400, expect.stringContaining('state is missing')]);

    const visitor = new Visitor({ url } as Sandbox);
    visitor.token = (await visitor.login()).body.access_token;
    // Behind the sunset of section 9.
    expect((await visitor.get('/v1/permissions')).status).toBe(410);
    const origin = { origin: 'https://page.example' };
    const asked = await visitor.call('GET', '/v2/permissions', undefined, origin);
    expect(asked.headers.get('access-control-allow-origin')).toBe('https://page.example');
    const hook = { url: 'https://10.1.2.3/hook', event_types: ['asset_updated'] };
    expect((await visitor.call('POST', '/v1/client_applications/3/webhooks', hook)).status).toBe(400);
    // What --assume says comes on top of --strict.
    const plain = { 'content-type': 'text/plain' };
    const values = { values: [{ key: 'flow', data: [{ value: 1 }] }] };
    expect((await visitor.call('POST', '/v1/assets/881/values', values, plain)).status).toBe(204);
  });

  it('refuses what it cannot understand with 2', async () => {
    for (const args of [
      ['--listen', 'nowhere'],
      ['--speed', 'fast'],
      ['--values', 'some'],
      ['--away', '30s/5m'],
      ['--assume', 'moon=cheese'],
      ['--now', 'soon'],
      ['--identity-port', 'another'],
    ]) {
      expect((await run(...args).ended)[0]).toBe(2);
    }
  });
});

describe('the state file', () => {
  it('brings back values, tokens, permissions, webhooks, labels and time', async () => {
    const stateFile = join(folder, 'state.json');
    const first = new Sandbox({ stateFile });
    await first.start();
    const visitor = await Visitor.signedIn(first);
    await visitor.post(881, 'flow', [{ timestamp: '2026-11-21T00:00:00.000Z', value: 1.5 }]);
    await visitor.call('PATCH', '/v2/assets/881/display_labels', { flow: { name: 'Inlet' } });
    await visitor.call('POST', '/v1/client_applications/3/webhooks', {
      url: 'https://client.example/hook',
      event_types: ['asset_appeared'],
    });
    first.takePermission({ type: 'Asset', id: 882 });
    first.clock.advance(300_000);
    const timeMs = first.clock.wallMs();
    await first.stop();

    const second = new Sandbox({ stateFile });
    await second.start();
    const again = new Visitor(second);
    again.token = visitor.token;
    expect((await again.get('/v1/client_applications/current')).status).toBe(200);
    expect((await again.post(882, 'flow', [{ value: 1 }])).status).toBe(404);
    expect(second.values.list(881, 'flow')).toMatchObject([{ value: 1.5, times: 1 }]);
    expect(second.values.counts().posts).toBe(1);
    expect(second.webhooks()).toHaveLength(1);
    expect(second.labels.get('assets/881')).toEqual({ flow: { name: 'Inlet' } });
    expect(second.clock.wallMs()).toBeGreaterThanOrEqual(timeMs);
    await second.stop();
  });

  it('goes on with deliveries where their schedule stood, with the quota that is spent and the notices', async () => {
    const stateFile = join(folder, 'state.json');
    const first = new Sandbox({ stateFile, sendWebhook: async () => 500 });
    await first.start();
    const visitor = await Visitor.signedIn(first);
    await visitor.call('POST', '/v1/client_applications/3/webhooks', {
      url: 'https://client.example/hook',
      event_types: ['asset_disappeared'],
    });
    first.takePermission({ type: 'Asset', id: 881 });
    await vi.waitFor(() => expect(first.deliveries()[0]?.attempts).toBe(1));
    first.notices.push({ at: 'then', contact: 'anna@sandbox.example', text: 'a notice' });
    const { nextMs } = first.deliveries()[0]!;
    const spent = first.usage.spent(3);
    await first.stop();

    const answers: number[] = [];
    const second = new Sandbox({
      stateFile,
      sendWebhook: async () => {
        answers.push(second.clock.wallMs());
        return 204;
      },
    });
    await second.start();
    expect(second.usage.spent(3)).toEqual(spent);
    expect(second.notices).toEqual(first.notices);
    expect(second.isDeliveryIdle).toBe(true);
    second.clock.advance(nextMs! - second.clock.wallMs() + 1);
    await vi.waitFor(() => expect(second.deliveries()[0]?.status).toBe('delivered'));
    expect(second.deliveries()[0]?.attempts).toBe(2);
    expect(answers[0]).toBeGreaterThanOrEqual(Math.floor(nextMs!));
    await second.stop();
  });

  it('keeps a code that was given and not yet exchanged', async () => {
    const stateFile = join(folder, 'state.json');
    const first = new Sandbox({ stateFile });
    await first.start();
    const grant = { user: 6, application: 3, redirectUri: 'http://127.0.0.1/callback', challenge: undefined };
    const code = first.codes.give(grant);
    await first.stop();
    const second = new Sandbox({ stateFile });
    await second.start();
    expect(second.codes.take(code)).toMatchObject({ user: 6, application: 3 });
    await second.stop();
  });

  it('of before, whose applications held their API keys, is read as well', async () => {
    const stateFile = join(folder, 'state.json');
    const first = new Sandbox({ stateFile });
    await first.start();
    await first.stop();
    const state = JSON.parse(readFileSync(stateFile, 'utf8'));
    const [{ client_id, client_secret }] = state.site.api_keys;
    Object.assign(state.site.client_applications[0], { client_id, client_secret });
    delete state.site.api_keys;
    for (const name of ['usage', 'notices', 'beyond']) delete state[name];
    writeFileSync(stateFile, JSON.stringify(state));
    const second = new Sandbox({ stateFile });
    await second.start();
    expect((await new Visitor(second).login()).status).toBe(200);
    await second.stop();
  });

  it('that cannot be read stops the start and is left as it is', async () => {
    const stateFile = join(folder, 'state.json');
    writeFileSync(stateFile, '{"version":');
    await expect(new Sandbox({ stateFile }).start()).rejects.toMatchObject({ code: 'sandbox.state_unreadable' });
  });
});
