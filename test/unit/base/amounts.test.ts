import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { counted, nounFor } from '../../../src/base/amounts.ts';
import { RejectedValues } from '../../../src/sources/intake/problem-list.ts';

const SRC = join(import.meta.dirname, '../../../src');

describe('formatted count', () => {
  it('is followed by a matching singular or plural noun and verb', () => {
    const said = (count: number, what: string) => counted(count, what, 'is', 'are');
    expect([0, 1, 2, 1204].map((count) => said(count, 'value'))).toEqual([
      '0 values are',
      '1 value is',
      '2 values are',
      '1,204 values are',
    ]);
    expect([counted(1, 'delivery'), counted(2, 'delivery'), counted(1, 'day'), counted(2, 'day')]).toEqual([
      '1 delivery',
      '2 deliveries',
      '1 day',
      '2 days',
    ]);
    expect([counted(1, 'series'), counted(3, 'series'), nounFor(1, 'credential')]).toEqual([
      '1 series',
      '3 series',
      'credential',
    ]);
  });

  it('uses the singular for one rejected value', () => {
    const problems = { listed: [{ index: 0, field: 'value', problem: 'is not a number' }], count: 1 };
    expect(new RejectedValues(problems).message).toBe('1 value is invalid; nothing in the request was stored');
  });

  it('is used for every count in messages', () => {
    const nouns =
      'value|event|request|post|token|webhook|deliver|problem|reaction|row|tag|asset|source|message|time|answer';
    // An inline plural, the form "(s)", or a variable number before a fixed plural.
    const wrong = [
      /=== 1 \? '' : 's'/,
      /[a-z]\(s\)(?!:)/,
      new RegExp(
        `\\$\\{(?!counted|countText|kind\\b|[A-Z_]+\\})[^}]*\\} (?:${nouns})(?:s|ies) (?:is|are|was|were|has|have|do|does)\\b`,
      ),
    ];
    const found: string[] = [];
    for (const entry of readdirSync(SRC, { recursive: true, withFileTypes: true })) {
      if (!entry.name.endsWith('.ts')) continue;
      const path = join(entry.parentPath, entry.name);
      for (const line of readFileSync(path, 'utf8').split('\n')) {
        const isText = !/^\s*(\/\/|\/?\*)/.test(line) && /['"`]/.test(line);
        if (isText && wrong.some((pattern) => pattern.test(line))) found.push(`${entry.name}: ${line.trim()}`);
      }
    }
    expect(found).toEqual([]);
  });
});
