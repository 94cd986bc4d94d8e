import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');

it('page code type-checks with browser types', () => {
  const tsc = join(ROOT, 'node_modules/.bin/tsc');
  expect(execFileSync(tsc, ['--noEmit', '-p', 'src/page/tsconfig.json'], { cwd: ROOT, encoding: 'utf8' })).toBe('');
});
