import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { defaultSeed, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { readSeedFile } from '../../../src/sandbox/seed/seed.ts';
import { Visitor } from '../../unit/sandbox/visitor.ts';

const COMMAND = `
  const { Command } = await import('commander');
  const { define } = await import(${JSON.stringify(join(import.meta.dirname, '../../../src/sandbox/program/verbs.ts'))});
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
    cwd: join(import.meta.dirname, '../../..'),
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
    'prints its credentials and the requests it receives, and exits with 0 on %s',
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

  it('warns if it is reachable from the network', async () => {
    const open = run('--listen', '0.0.0.0:0');
    await urlIn(open.output);
    expect(open.output.text).toContain('reachable from the network');
    open.started.kill('SIGTERM');
    await open.ended;
    const own = run('--listen', '127.0.0.1:0');
    await urlIn(own.output);
    expect(own.output.text).not.toContain('reachable from the network');
  });

  it('remains reachable at its second address while the platform is offline', async () => {
    const { started, output, ended } = run('--listen', '127.0.0.1:0', '--admin-port', '0');
    const url = await urlIn(output);
    const admin = /Page: (\S+)\/sandbox\//.exec(output.text)![1]!;
    expect((await fetch(`${admin}/sandbox/offline`, { method: 'POST' })).status).toBe(202);
    await vi.waitFor(() => expect(fetch(url)).rejects.toThrow(), { timeout: 5000 });
    expect((await fetch(`${admin}/sandbox/online`, { method: 'POST' })).status).toBe(204);
    expect((await fetch(`${url}/v1/assets/881`)).status).not.toBe(0);
    started.kill('SIGTERM');
    expect((await ended)[0]).toBe(0);
  });

  it('repeats outages and token expiry if configured', async () => {
    const { output } = run('--listen', '127.0.0.1:0', '--away', '300ms/100ms', '--expire-every', '250ms');
    const url = await urlIn(output);
    const count = (text: string) => output.text.split(text).length - 1;
    await vi.waitFor(() => expect(count('platform available')).toBeGreaterThanOrEqual(2), { timeout: 20_000 });
    expect(count('platform unavailable')).toBeGreaterThanOrEqual(2);
    expect(count('all access tokens and refresh tokens expired')).toBeGreaterThanOrEqual(2);
    await vi.waitFor(() => expect(fetch(`${url}/v1/units/12`)).rejects.toThrow(), { timeout: 20_000, interval: 5 });
  });

  it('prints the default site as a reusable seed file', async () => {
    const { output, ended } = run('seed');
    expect((await ended)[0]).toBe(0);
    const file = join(folder, 'site.yaml');
    writeFileSync(file, output.text);
    const { siteOf } = await import('../../../src/sandbox/seed/seed.ts');
    expect(siteOf(readSeedFile(file))).toEqual(siteOf(defaultSeed));
  });

  it('reads a custom seed and rejects an invalid one', async () => {
    const file = join(folder, 'seed.yaml');
    writeFileSync(file, 'pumps:\n  - id: 1\n');
    const wrong = run('--listen', '127.0.0.1:0', '--seed', file);
    expect((await wrong.ended)[0]).toBe(2);
    expect(wrong.output.text).toContain('unknown member pumps');
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

  it('exits with 1 if its address is already in use', async () => {
    const other = new Sandbox();
    await other.start();
    const { ended, output } = run('--listen', new URL(other.url).host);
    expect((await ended)[0]).toBe(1);
    expect(output.text).toContain('cannot listen on');
    await other.stop();
  });

  it('applies --identity-port, --now and --strict', async () => {
    const { output } = run(
      ...['--listen', '127.0.0.1:0', '--identity-port', '0', '--now', '2027-05-02T00:00:00Z'],
      '--strict',
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
    // After the sunset of section 9.
    expect((await visitor.get('/v1/permissions')).status).toBe(410);
    const hook = { url: 'https://10.1.2.3/hook', event_types: ['asset_updated'] };
    expect((await visitor.call('POST', '/v1/client_applications/3/webhooks', hook)).status).toBe(400);
  });

  it('exits with 2 for invalid options', async () => {
    for (const args of [
      ['--listen', 'nowhere'],
      ['--speed', 'fast'],
      ['--values', 'some'],
      ['--away', '30s/5m'],
      ['--now', 'soon'],
      ['--identity-port', 'another'],
    ]) {
      expect((await run(...args).ended)[0]).toBe(2);
    }
  });
});
