import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { EVENT_TYPES } from '../../../src/contract/events.ts';
import { CLAUSES } from './clauses.ts';

/** Sections of the specification; section 5 numbers its sentences. */
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
/** Sections that contain only "not shown": fields of other resources, and token scopes. */
const NOT_SHOWN = ['2.7', '5.9'];

const ROOT = join(import.meta.dirname, '../../..');

function titlesIn(file: string): string[] {
  const text = readFileSync(file, 'utf8');
  return [...text.matchAll(/\bit(?:\.each\([\s\S]*?\))?\(\s*(['`])(.+?)\1,/g)].map((found) => found[2]!);
}

it('every document section has a test named after it, and every test is named after a section', () => {
  const named = readdirSync(import.meta.dirname)
    .filter((name) => name.endsWith('.test.ts') && name !== 'sections.test.ts')
    .flatMap((name) => {
      const text = readFileSync(join(import.meta.dirname, name), 'utf8');
      const titles = titlesIn(join(import.meta.dirname, name));
      const calls = [...text.matchAll(/^\s*it[(.]/gm)].length;
      expect(titles.length, `${name}: a title that this test cannot read`).toBe(calls);
      return titles.map((title) => /^(\d(?:\.\d)?) \S/.exec(title)?.[1] ?? `${name}: ${title}`);
    });
  const wanted = SECTIONS.filter((section) => !NOT_SHOWN.includes(section));
  expect([...new Set(named)].sort()).toEqual(wanted.sort());
});

interface Row {
  clause: string;
  words: string;
  files: string[];
  test: string;
}

/** Rows of the table in docs/reference/platform.md, section 11. */
function tableOfPage(): Row[] {
  const page = readFileSync(join(ROOT, 'docs/reference/platform.md'), 'utf8');
  const lines = page.slice(page.indexOf('\n## 11 ')).split('\n');
  const rows = lines.filter((line) => /^\| \d/.test(line));
  return rows.map((line) => {
    const [clause, words, , code, test] = line.slice(2, -2).split(' | ');
    const files = [...code!.matchAll(/\]\(\.\.\/\.\.\/([^)]+)\)/g)].map(([, file]) => file!);
    return { clause: clause!, words: words!.replaceAll('`', ''), files, test: test!.replaceAll('`', '') };
  });
}

describe('clause table in docs/reference/platform.md', () => {
  it('has one row per clause of the document, in the document’s order', () => {
    const clauses = CLAUSES.flatMap(([section, all]) => all.map((words, at) => [`${section}.${at + 1}`, words]));
    expect(clauses.length).toBeGreaterThan(150);
    expect(tableOfPage().map(({ clause, words }) => [clause, words])).toEqual(clauses);
  });

  it('cites an existing test for each clause', () => {
    const missing = tableOfPage().filter(({ test }) => {
      const [, file, title] = /^(\S+): (.+)$/.exec(test) ?? [];
      const path = join(ROOT, `test/unit/${file}.test.ts`);
      return !existsSync(path) || !titlesIn(path).includes(title!);
    });
    expect(missing).toEqual([]);
  });

  it('cites existing code for each clause', () => {
    const missing = tableOfPage().filter(
      ({ files }) => files.length === 0 || files.some((file) => !existsSync(join(ROOT, file))),
    );
    expect(missing).toEqual([]);
  });

  it('has a clause for every event type', () => {
    const [, types] = CLAUSES.find(([section]) => section === '6.3')!;
    expect(types.filter((words) => /^\w+_\w+$/.test(words)).sort()).toEqual([...EVENT_TYPES].sort());
  });
});
