import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { EVENT_TYPES } from '../../src/contract/events.ts';
import { NO_ROWS, ROWS } from './rows.ts';

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

const ROOT = join(import.meta.dirname, '../..');

function titlesIn(file: string): string[] {
  const text = readFileSync(file, 'utf8');
  return [...text.matchAll(/\bit(?:\.each\([\s\S]*?\))?\(\s*(['`])(.+?)\1,/g)].map((found) => found[2]!);
}

it('every section of the spec has a test that is named after it, and every test is of a section', () => {
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

it('every row of docs/platform.md has a test that names it, and every test that is named is there', () => {
  const rows = rowsOfPage();
  expect(rows.length).toBeGreaterThan(90);
  expect([...Object.keys(ROWS), ...NO_ROWS].sort()).toEqual([...new Set(rows)].sort());
  const gone = Object.entries(ROWS).filter(([, test]) => {
    const [, file, title] = /^(\S+): (.+)$/.exec(test)!;
    return !titlesIn(join(ROOT, `test/${file}.test.ts`)).includes(title!);
  });
  expect(gone).toEqual([]);
});

it('every event type of the interface is a row', () => {
  const named = rowsOfPage().flatMap((row) => /^6\.3 (\w+)$/.exec(row)?.[1] ?? []);
  expect(named.sort()).toEqual([...EVENT_TYPES].sort());
});

/** Sections, rows of tables and points of lists of docs/platform.md, by name. A section that has others below it is none itself. */
function rowsOfPage(): string[] {
  const rows: string[] = [];
  let section: string | undefined;
  let isBelowHead = false;
  for (const line of readFileSync(join(ROOT, 'docs/platform.md'), 'utf8').split('\n')) {
    const [, heading] = /^#{2,3} (\d+(?:\.\d+)?) /.exec(line) ?? [];
    if (heading !== undefined) rows.push(heading);
    section = heading ?? section;
    isBelowHead = line.startsWith('|') && (isBelowHead || line.startsWith('|-'));
    if (section === undefined) continue;
    const cells = line.split('|').map((cell) => cell.trim().replaceAll('`', ''));
    if (isBelowHead && !line.startsWith('|-')) {
      const name = section === '4.1' ? `${cells[1]} ${cells[2]}` : cells[1]!;
      // `a_created`, `…_destroyed` are two.
      const [first, ...more] = name.split(', ');
      const spelled = more.map((other) => other.replace('…', first!.replace(/_[a-z]+$/, '')));
      rows.push(...[first, ...spelled].map((one) => `${section} ${one}`));
    } else if (line.startsWith('- ')) {
      rows.push(`${section} ${line.slice(2).replaceAll(/[*`]/g, '').split(' ').slice(0, 4).join(' ')}`);
    }
  }
  return rows.filter((row) => !rows.some((other) => /^\d+\.\d+$/.test(other) && other.startsWith(`${row}.`)));
}
