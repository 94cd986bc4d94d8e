import { execFile, execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
/** The machine's own Node, whatever version it is: without what `npm ci` brought along. */
const PATH = (process.env.PATH ?? '')
  .split(delimiter)
  .filter((folder) => !folder.includes('node_modules'))
  .join(delimiter);
const env = { ...process.env, PATH };

let folder: string;
let installed: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandbox-package-'));
  const packed = execFileSync(process.execPath, [join(ROOT, 'scripts/pack-sandbox.ts'), folder], { encoding: 'utf8' });
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}');
  // Without a registry: what it needs is inside.
  execFileSync('npm', ['install', '--offline', '--no-audit', '--no-fund', packed.trim()], { cwd: folder, env });
  installed = join(folder, 'node_modules/tagferry-sandbox');
}, 300_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the package tagferry-sandbox', () => {
  it('holds no native module and needs no other package', () => {
    const files = readdirSync(installed, { recursive: true, encoding: 'utf8' });
    expect(files.filter((name) => name.endsWith('.node'))).toEqual([]);
    expect(readdirSync(join(folder, 'node_modules')).filter((name) => !name.startsWith('.'))).toEqual([
      'tagferry-sandbox',
    ]);
    expect(JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'))).not.toHaveProperty('dependencies');
  });

  it('is a program that listens, has a page, takes a verb from another shell, and ends with 0, on the Node of this machine', async () => {
    const bin = join(folder, 'node_modules/.bin/tagferry-sandbox');
    const child = spawn(bin, ['--listen', '127.0.0.1:0', '--quiet'], { env, stdio: ['ignore', 'pipe', 'inherit'] });
    const exit = new Promise<number | null>((done) => child.once('exit', done));
    try {
      let url: string | undefined;
      for await (const line of createInterface({ input: child.stdout })) {
        url = /PLATFORM_URL=(\S+)/.exec(line)?.[1];
        if (url !== undefined) break;
      }
      const page = await (await fetch(`${url}/sandbox/`)).text();
      const script = /src="(page\/main-\w+\.js)"/.exec(page)![1];
      expect((await fetch(`${url}/sandbox/${script}`)).headers.get('content-type')).toMatch(/^text\/javascript/);
      const { stdout } = await promisify(execFile)(bin, ['cause', 'asset_updated', '881', '--url', url!], { env });
      expect(stdout).toContain('asset_updated (asset 881), sent to no webhook');
    } finally {
      child.kill('SIGTERM');
    }
    expect(await exit).toBe(0);
  });

  it('names itself as it is called, in help and in errors', async () => {
    const bin = join(folder, 'node_modules/.bin/tagferry-sandbox');
    const help = execFileSync(bin, ['--help'], { env, encoding: 'utf8' });
    expect(help).toContain('tagferry-sandbox cause threshold_reached FT-101 --value 25');
    const { stderr, code } = await promisify(execFile)(bin, ['cuase'], { env }).catch((error) => error);
    expect(code).toBe(2);
    expect(stderr).toContain('tagferry-sandbox: sandbox cuase is unknown');
    expect(`${help}${stderr}`).not.toContain('tagferry sandbox');
  });

  it('is a module: a sandbox within the process of a test', () => {
    const script = join(folder, 'one.mjs');
    writeFileSync(
      script,
      `import { Sandbox, SANDBOX_CREDENTIALS as c } from 'tagferry-sandbox';
      const sandbox = new Sandbox();
      await sandbox.start();
      const body = new URLSearchParams({ grant_type: 'password', username: c.technicalUsername, password: c.technicalPassword,
        client_id: c.clientId, client_secret: c.clientSecret });
      const reply = await fetch(sandbox.url + '/oauth/token', { method: 'POST', body });
      console.log(reply.status, (await reply.json()).expires_in);
      await sandbox.stop();`,
    );
    expect(execFileSync('node', [script], { env, encoding: 'utf8' })).toBe('200 660\n');
  });
});
