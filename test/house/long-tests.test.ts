import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const LONG = join(import.meta.dirname, '../long');
const files = readdirSync(LONG).filter((name) => name.endsWith('.test.ts'));

describe('long tests', () => {
  it.each(files)('include %s, whose first line states its duration for scripts/test', (name) => {
    expect(readFileSync(join(LONG, name), 'utf8')).toMatch(/^\/\/ Long: [1-9]\d* min\b.*\n/);
  });
});
