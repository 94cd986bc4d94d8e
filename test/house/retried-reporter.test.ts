import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
/** Inside the repository, so that test files there can import vitest. */
const CACHE = join(ROOT, '.cache');

it('the reporter lists exactly the tests that passed after a retry', () => {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, 'retried-'));
  try {
    writeFileSync(
      join(folder, 'late.test.ts'),
      `import { expect, it } from 'vitest';
let tries = 0;
it('is late once', () => expect(++tries).toBe(2));
it('is in time', () => expect(1).toBe(1));
`,
    );
    const reporter = join(ROOT, 'test/retried-reporter.ts');
    const config = join(folder, 'vitest.config.ts');
    writeFileSync(
      config,
      `export default { test: { retry: 1, include: ['late.test.ts'], reporters: [${JSON.stringify(reporter)}, 'default'] } };\n`,
    );
    const own = Object.entries(process.env).filter(([name]) => !/^(VITEST|TEST$|NODE_ENV$)/.test(name));
    const vitest = join(ROOT, 'node_modules/.bin/vitest');
    const { status, stdout } = spawnSync(vitest, ['run', '--root', folder, '--config', config, '--maxWorkers=1'], {
      env: { ...Object.fromEntries(own), NO_COLOR: '1' },
      encoding: 'utf8',
    });
    expect(status).toBe(0);
    const end = stdout.slice(stdout.indexOf('\nPassed only on the second try:\n'));
    expect(end).toMatch(/^\nPassed only on the second try:\n {2}late\.test\.ts > is late once\n[^>]*$/);
    expect(end).toMatch(/Tests +2 passed/);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
