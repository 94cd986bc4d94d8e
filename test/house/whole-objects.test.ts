import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { expect, it } from 'vitest';

const SRC = join(import.meta.dirname, '../../src');
/** A field that its constructor does not set, or a value cast to any type: using it too early fails at run time. */
const LATE = /^\s*(?:(?:public|private|protected|static|readonly|declare)\s+)*#?\w+!:|\bas never\b/;

it('no object in the source code is used before open() has initialized it', () => {
  const found = readdirSync(SRC, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .flatMap((entry) => {
      const path = join(entry.parentPath, entry.name);
      const lines = readFileSync(path, 'utf8').split('\n');
      return lines.filter((line) => LATE.test(line)).map((line) => `${relative(SRC, path)}: ${line.trim()}`);
    });
  expect(found).toEqual([]);
  expect(
    ['  #facts!: Facts;', '  readonly stamps!: Stamps;', 'x as never', 'a !== b', '// never was seen: it'].map((line) =>
      LATE.test(line),
    ),
  ).toEqual([true, true, true, false, false]);
});
