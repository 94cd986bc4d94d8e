import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { counted, nounFor } from '../../src/base/amounts.ts';
import { ProblemList, RefusedValues } from '../../src/sources/problem-list.ts';

const SRC = join(import.meta.dirname, '../../src');

describe('a count that people read', () => {
  it('agrees with its noun and its verb', () => {
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

  it('agrees where a single value is refused', () => {
    const problems = new ProblemList();
    problems.add(0, 'value', 'is no number');
    expect(new RefusedValues(problems).message).toBe('1 value is wrong; nothing of the request is stored');
  });

  it('is written nowhere by hand', () => {
    const nouns =
      'value|event|request|post|token|webhook|deliver|problem|reaction|row|tag|asset|source|message|time|answer';
    // A plural by hand, the shrug "(s)", or a number that varies before a plural with its verb.
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
        const isWords = !/^\s*(\/\/|\/?\*)/.test(line) && /['"`]/.test(line);
        if (isWords && wrong.some((pattern) => pattern.test(line))) found.push(`${entry.name}: ${line.trim()}`);
      }
    }
    expect(found).toEqual([]);
  });
});
