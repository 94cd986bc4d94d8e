import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');

it.each([
  ['is used by nothing', []],
  ['is used by tests alone', ['--production']],
] as const)('no file, export, type or dependency %s (knip.ts says what is started by its name)', (_, options) => {
  const knip = join(ROOT, 'node_modules/.bin/knip');
  const { status, stdout, stderr } = spawnSync(knip, ['--no-progress', '--no-config-hints', ...options], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  expect(stdout + stderr).toBe('');
  expect(status).toBe(0);
});
