import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const FOLDER = join(import.meta.dirname, '../e2e');

/** Returns the index behind the group that opens at `at`, such as the cases of `it.each`. */
function endOfGroup(text: string, at: number): number {
  let depth = 0;
  for (const { 0: token, index } of text.slice(at).matchAll(/'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|[()]/g)) {
    if (token === '(') depth++;
    if (token === ')' && --depth === 0) return at + index + 1;
  }
  return at;
}

interface Test {
  file: string;
  /** Title of the block that contains the test. */
  block: string;
  title: string;
}

function testsOf(file: string): Test[] {
  const text = readFileSync(join(FOLDER, file), 'utf8');
  let block = '';
  return [...text.matchAll(/^ *(describe|it|test)(\.\w+)?(?=\()/gm)].flatMap(
    ({ 0: begin, 1: word, 2: each, index }) => {
      const behind = index + begin.length;
      const title = /^\(\s*(['"`])(.*?)(?<!\\)\1,/s.exec(text.slice(each ? endOfGroup(text, behind) : behind))?.[2];
      if (title === undefined) return [];
      if (word !== 'describe') return [{ file, block, title }];
      block = title;
      return [];
    },
  );
}

const tests = globSync('**/*.test.ts', { cwd: FOLDER }).sort().flatMap(testsOf);
const page = readFileSync(join(FOLDER, 'README.md'), 'utf8');
const rows = [...page.matchAll(/^\| \[[^\]]+\]\(([^)]+)\) \| (.+?) \| (.+) \|$/gm)].map(([, file, name, defects]) => ({
  file: file!,
  name: name!,
  defects: defects!,
}));
const describes = (row: { file: string; name: string }, { file, block, title }: Test) =>
  row.file === file && (row.name === block || title.startsWith(row.name));

describe('table of defects in test/e2e/README.md', () => {
  it('has a row for each end-to-end test', () => {
    expect(tests.length).toBeGreaterThan(150);
    expect(tests.filter((test) => !rows.some((row) => describes(row, test)))).toEqual([]);
  });

  it('has no row without a test', () => {
    expect(rows.filter((row) => !tests.some((test) => describes(row, test)))).toEqual([]);
  });
});
