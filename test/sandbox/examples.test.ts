import { execFile, execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const EXAMPLES = join(import.meta.dirname, 'examples');

/** What stands in docs/sandbox.md, beside the package as others install it. Jest has its turn in test/long. */
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandbox-examples-'));
  const packed = execFileSync(process.execPath, [join(ROOT, 'scripts/pack-sandbox.ts'), folder], { encoding: 'utf8' });
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}');
  execFileSync('npm', ['install', '--offline', '--no-audit', '--no-fund', packed.trim()], { cwd: folder });
  symlinkSync(join(ROOT, 'node_modules/vitest'), join(folder, 'node_modules/vitest'));
  for (const name of readdirSync(EXAMPLES)) cpSync(join(EXAMPLES, name), join(folder, name), { recursive: true });
}, 300_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the examples of docs/sandbox.md', () => {
  it('are the files that run here, letter by letter', () => {
    const page = readFileSync(join(ROOT, 'docs/sandbox.md'), 'utf8');
    const files = readdirSync(EXAMPLES).filter((name) => /\.(js|py)$/.test(name));
    expect(files.length).toBe(5);
    for (const name of files) expect(page, name).toContain(`\n${readFileSync(join(EXAMPLES, name), 'utf8')}\`\`\`\n`);
  });

  it('run in vitest', async () => {
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
    const command = [vitest, 'run', '--root', folder, 'vitest.test.js'];
    const { stdout } = await promisify(execFile)(process.execPath, command, { cwd: folder, env: clean() });
    expect(stdout).toMatch(/Tests\s+3 passed/);
  });

  it('run in pytest', async () => {
    const path = [join(folder, 'node_modules/.bin'), process.env.PATH].join(delimiter);
    const env = { ...clean(), PATH: path, PYTHONDONTWRITEBYTECODE: '1' };
    const command = ['-m', 'pytest', '-q', '-p', 'no:cacheprovider', folder];
    const ran = promisify(execFile)('/usr/bin/python3', command, { cwd: folder, env });
    const { stdout } = await ran.catch((error) => error);
    expect(stdout).toMatch(/3 passed/);
  });
});

/** Without what the runner around this test tells its own children. */
function clean(): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(([name]) => !/^(VITEST|NODE_OPTIONS|NODE_ENV|TEST|CI$)/.test(name));
  return { ...Object.fromEntries(own), NO_COLOR: '1' };
}
