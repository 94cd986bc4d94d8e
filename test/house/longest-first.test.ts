import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { LONGEST, placeOf } from '../longest-first.ts';

describe('test order', () => {
  it('lists existing files and folders, each once', () => {
    expect(LONGEST.filter((name) => !existsSync(join(import.meta.dirname, '../..', name)))).toEqual([]);
    expect(new Set(LONGEST).size).toBe(LONGEST.length);
  });

  it('starts with the listed files, then the listed folders, then all others', () => {
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
