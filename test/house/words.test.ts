import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findLogEvents } from './log-events.ts';

const ROOT = join(import.meta.dirname, '../..');
const COVERED = ['src', 'test', 'docs', 'config', 'README.md', 'CONTRIBUTING.md'];

/**
 * Discouraged words and their replacements. A word is listed once the repository no longer contains it: rewrite the
 * remaining sentences before adding the word. Each key is a regular expression for whole words in any case.
 */
const PREFERRED: Readonly<Record<string, string>> = {
  mending: 'fixing',
  'stands (?:already|ready)': 'is already defined, is ready',
  'gave it up': 'cancelled',
  'as is right': 'as expected',
  'what it came to': 'result',
  'the eyes of': 'as the user',
  whomever: 'the user who',
  'thereof|therein|thereby': 'of it, in it',
  'whence|hence|thus': 'because, so',
  'whilst|ere|lest': 'while, before, so that … not',
  'hither|thither|nowise': 'here, there, not',
  'folds?|folding': 'flush, compact',
  'tidy|tidied': 'maintenance',
  'waiting rooms?': 'queue',
  'disk rooms?': 'disk space',
  'loss logs?': 'drop log',
  'failure voices?': 'failure log',
  'held bytes': 'reserved bytes',
  'mends|mended': 'fixes, fixed',
  'as it should be': 'as expected',
  'by and by': 'later',
  'the one before last': 'next to last',
  'so to speak': 'remove it',
  'ought|shall': 'must, should',
  'upon|amongst?|till': 'on, among, until',
  'wherein|whereof|whereby|herein|therefor': 'in which, of which, by which, here',
  'bygone|dearly|heed(?:s|ed)?': 'former, expensively, observe',
  'nought|naught|aught|mayhap|perchance|forsooth': 'nothing, perhaps',
  'bade|bids': 'requested, requests',
};

const DISCOURAGED = Object.entries(PREFERRED).map(([words, preferred]) => ({
  pattern: new RegExp(`\\b(?:${words})\\b`, 'i'),
  preferred,
}));

/** Paths of the text files below a path, except this file. */
function textFiles(path: string): string[] {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(?:md|tsx?|ya?ml|conf|env|tag|hint)$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => file !== import.meta.filename);
}

/** Returns one message with `file:line` per discouraged word. */
function discouragedIn(file: string, text: string): string[] {
  return text.split('\n').flatMap((line, index) => {
    // Case folding and line folding are technical terms.
    const prose = line.replaceAll(/(?:case|line).?fold\w*/gi, '');
    return DISCOURAGED.flatMap(({ pattern, preferred }) => {
      const word = pattern.exec(prose)?.[0];
      return word === undefined
        ? []
        : [`${file}:${index + 1}: write "${preferred}" instead of "${word}": ${line.trim()}`];
    });
  });
}

/** `waitingRoom`, `WAITING_ROOM` and `waiting-room.ts` as words. */
function wordsOf(name: string): string {
  return name.replaceAll(/([a-z0-9])([A-Z])/g, '$1 $2').replaceAll(/[^A-Za-z]+/g, ' ');
}

describe('vocabulary check', () => {
  it('finds no discouraged word in sources, tests, documents and configuration', () => {
    const files = COVERED.flatMap((name) => textFiles(join(ROOT, name)));
    expect(files.length).toBeGreaterThan(500);
    expect(files.flatMap((file) => discouragedIn(relative(ROOT, file), readFileSync(file, 'utf8')))).toEqual([]);
  });

  it('reports file, line and the preferred word', () => {
    expect(discouragedIn('a.md', 'fine\nThe Waiting room is full')).toEqual([
      'a.md:2: write "queue" instead of "Waiting room": The Waiting room is full',
    ]);
  });

  it('finds no discouraged word in source file names and log event names', () => {
    const files = textFiles(join(ROOT, 'src')).map((file) => relative(ROOT, file));
    const events = [...findLogEvents().events.keys()];
    expect(events.length).toBeGreaterThan(50);
    expect([...files, ...events].flatMap((name) => discouragedIn(name, wordsOf(name)))).toEqual([]);
  });

  it('finds no discouraged word in source identifiers', () => {
    const found = textFiles(join(ROOT, 'src')).flatMap((file) => {
      const names = new Set(readFileSync(file, 'utf8').match(/\b[A-Za-z]+(?:[A-Z]|_)\w*/g));
      return [...names].flatMap((name) => discouragedIn(`${relative(ROOT, file)} ${name}`, wordsOf(name)));
    });
    expect(found).toEqual([]);
  });

  it('requires `error` and `code` as the names of error fields in log lines', () => {
    const src = join(ROOT, 'src');
    const lines = textFiles(src).flatMap((path) =>
      [...readFileSync(path, 'utf8').matchAll(/\{[^{}]*\bevent: '[\w.]+'[^{}]*\}/g)].map(([line]) => ({
        path: relative(src, path),
        line,
      })),
    );
    expect(lines.length).toBeGreaterThan(150);
    const others = /\b(?:reason|message|problem|cause|why): (?:this\.#problem|codeOf|messageOf|error\b|reason\b)/;
    expect(others.test("{ event: 'a.b', reason: messageOf(error) }")).toBe(true);
    // The sandbox is a separate program.
    expect(lines.filter(({ path, line }) => !path.startsWith('sandbox/') && others.test(line))).toEqual([]);
  });
});
