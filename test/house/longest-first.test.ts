import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { LONGEST, placeOf } from '../longest-first.ts';

describe('the order of the tests', () => {
  it('names files and folders that are there, each once', () => {
    expect(LONGEST.filter((name) => !existsSync(join(import.meta.dirname, '../..', name)))).toEqual([]);
    expect(new Set(LONGEST).size).toBe(LONGEST.length);
  });

  it('begins with what is named, then the rest of named folders, then all others', () => {
    const files = [
      'base/table.test.ts',
      'process/kill.test.ts',
      'process/small-memory.test.ts',
      'system/gateway.test.ts',
    ];
    expect(files.sort((a, b) => placeOf(a) - placeOf(b))).toEqual([
      'system/gateway.test.ts',
      'process/small-memory.test.ts',
      'process/kill.test.ts',
      'base/table.test.ts',
    ]);
  });
});
