// Long: 1 min
import { execFile, execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');

/** Jest is 190 packages: they have a lock of their own, and are fetched for this test alone. */
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandbox-jest-'));
  cpSync(join(import.meta.dirname, 'jest'), folder, { recursive: true });
  execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: folder });
  const packed = execFileSync(process.execPath, [join(ROOT, 'scripts/pack-sandbox.ts'), folder], { encoding: 'utf8' });
  const install = ['install', '--offline', '--no-save', '--ignore-scripts', '--no-audit', '--no-fund', packed.trim()];
  execFileSync('npm', install, { cwd: folder });
  for (const name of ['client.js', 'jest.test.js']) {
    cpSync(join(ROOT, 'test/sandbox/examples', name), join(folder, name));
  }
}, 300_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('the example of docs/sandbox.md runs in Jest', async () => {
  const own = Object.entries(process.env).filter(([name]) => !/^(VITEST|NODE_OPTIONS|NODE_ENV|TEST|CI$)/.test(name));
  const env = { ...Object.fromEntries(own), NODE_OPTIONS: '--experimental-vm-modules', NO_COLOR: '1' };
  const command = [join(folder, 'node_modules/jest/bin/jest.js'), '--ci', '--rootDir', folder, 'jest.test.js'];
  const ran = promisify(execFile)(process.execPath, command, { cwd: folder, env });
  const { stderr } = await ran.catch((error) => error);
  expect(stderr).toMatch(/Tests: +2 passed, 2 total/);
}, 120_000);
