// Long: 14 min
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { suiteOfThisMachine } from '../host/debian-tree.ts';
import { CHECKOUT } from '../host/made-once.ts';

const run = promisify(execFile);
const SUITES = ['bookworm', 'trixie'];

/** Runs tests of test/host and c-operated under systemd in the other supported Debian release. */
describe.for(SUITES.filter((suite) => suite !== suiteOfThisMachine()))('gateway on Debian %s', (suite) => {
  it('passes all system tests', { timeout: 1_800_000 }, async () => {
    const names = ['host/gateway', 'prove/c-operated', 'host/purge', 'host/terminal'];
    const stories = names.map((name) => `test/${name}.test.ts`);
    const env = { ...process.env, TAGFERRY_SYSTEM_SUITE: suite, VITEST: '', NO_COLOR: '1' };
    const told = await run(join(CHECKOUT, 'node_modules/.bin/vitest'), ['run', ...stories], {
      cwd: CHECKOUT,
      env,
      maxBuffer: 64_000_000,
    }).catch((error: { stdout: string; stderr: string }) => error);
    expect('code' in told ? `${told.stdout}${told.stderr}` : '').toBe('');
    expect(told.stdout).toMatch(new RegExp(`Test Files +${stories.length} passed`));
  });
});
