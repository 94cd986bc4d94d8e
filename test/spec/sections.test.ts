import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

/** The sections of the spec; section 5 numbers its sentences. */
const SECTIONS = [
  ...[
    '1',
    '2.1',
    '2.2',
    '2.3',
    '2.4',
    '2.5',
    '2.6',
    '2.7',
    '3.1',
    '3.2',
    '3.3',
    '3.4',
    '4.1',
    '4.2',
    '4.3',
    '4.4',
    '4.5',
  ],
  ...['5.1', '5.2', '5.3', '5.4', '5.5', '5.6', '5.7', '5.8', '5.9', '6.1', '6.2', '6.3', '7', '8', '9'],
];
/** These two say "not shown" and no more: the fields of other resources, and the scopes of tokens. */
const NOT_SHOWN = ['2.7', '5.9'];

it('every section of the spec has a test that is named after it, and every test is of a section', () => {
  const named = readdirSync(import.meta.dirname)
    .filter((name) => name.endsWith('.test.ts') && name !== 'sections.test.ts')
    .flatMap((name) => {
      const text = readFileSync(join(import.meta.dirname, name), 'utf8');
      const titles = [...text.matchAll(/\bit(?:\.each\([\s\S]*?\))?\(\s*(['`])(.+?)\1,/g)].map((found) => found[2]!);
      const calls = [...text.matchAll(/^\s*it[(.]/gm)].length;
      expect(titles.length, `${name}: a title that this test cannot read`).toBe(calls);
      return titles.map((title) => /^(\d(?:\.\d)?) \S/.exec(title)?.[1] ?? `${name}: ${title}`);
    });
  const wanted = SECTIONS.filter((section) => !NOT_SHOWN.includes(section));
  expect([...new Set(named)].sort()).toEqual(wanted.sort());
});
