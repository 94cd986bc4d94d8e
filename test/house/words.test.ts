import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findLogEvents } from './log-events.ts';

const SRC = join(import.meta.dirname, '../../src');

/**
 * Words of our own that the field's words took the place of (the glossary in docs/architecture.md has those). Each matches whole words
 * of a name: `waiting room` is WaitingRoom, waitingRoom, waiting-room.
 */
const RETIRED = [
  'fold',
  'folds',
  'folded',
  'folding',
  'tidy',
  'course',
  'works',
  'stretch',
  'troubles',
  'forgive',
  'waiting room',
  'disk room',
  'loss log',
  'failure voice',
  'mending',
  'held bytes',
  'wish',
  'wishes',
  'bring about',
  'door',
  'doors',
  'stretched',
  'courses',
  'told',
  'nobody',
];

/** Words that the prose of documents and comments must not use in our old sense; each has one sense alone there. */
const RETIRED_PROSE =
  /\b(?:fold(?:s|ed|ing)?|doors?|stretched|waiting rooms?|disk rooms?|loss logs?|failure voices?|held bytes)\b/i;

/** Of a name's beginning: how much there may be of something is its `max` or `min`. */
const RETIRED_FIRST = ['most', 'least', 'longest', 'shortest'];
/** And no name of anything, alone. */
const RETIRED_ALONE = ['most', 'least', 'longest'];

/** Words that are another's in one room, by what a file there declares. */
const RETIRED_IN: Readonly<Record<string, readonly string[]>> = {
  uplink: ['trouble', 'troubled', 'book', 'books', 'rejections', 'away'],
  platform: ['away'],
  sandbox: ['plant', 'wish', 'book'],
};

/** `MAX_SOCKET_PATH`, `socketPath` and `socket-path.ts` in words. */
function wordsOf(name: string): string {
  const apart = name.replaceAll(/([a-z0-9])([A-Z])/g, '$1 $2').replaceAll(/([A-Z])([A-Z][a-z])/g, '$1 $2');
  return apart.replaceAll(/[^A-Za-z]+/g, ' ').toLowerCase();
}

function isRetired(name: string): boolean {
  const words = wordsOf(name);
  const [first, ...rest] = words.trim().split(' ');
  if ((rest.length > 0 ? RETIRED_FIRST : RETIRED_ALONE).includes(first!)) return true;
  return RETIRED.some((retired) => ` ${words} `.includes(` ${retired} `));
}

/** What a file declares, exported or not: classes, functions, types, constants, members and methods. */
function declaredIn(text: string): string[] {
  const declared = text.matchAll(
    /^\s*(?:export |static |readonly |async |private |get |set |declare )*(?:(?:class|function\*?|interface|type|const|let)\s+)?(#?[A-Za-z_]\w*)\s*[(:<={?;]/gm,
  );
  return [...declared].map((match) => match[1]!);
}

/** A file, or every text file below a folder. */
function textsOf(path: string): { path: string; text: string }[] {
  if (!statSync(path).isDirectory()) return [{ path, text: readFileSync(path, 'utf8') }];
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(?:md|tsx?|ya?ml|conf|env|tag|hint)$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .map((file) => ({ path: file, text: readFileSync(file, 'utf8') }));
}

describe('the words', () => {
  const files = readdirSync(SRC, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => relative(SRC, join(entry.parentPath, entry.name)));

  it('are told apart in each way of writing a name', () => {
    const names = [
      'waitingRoom',
      'WaitingRoomOptions',
      'MOST_BYTES',
      'mostBytes',
      'foldAfterMs',
      'src/disk-room.ts',
      'log.fold_late',
    ];
    expect(names.filter((name) => !isRetired(name))).toEqual([]);
    expect(['mostly', 'diskSpace', 'HTTPServer', 'scaffold', 'courseless', 'manifold.ts'].filter(isRetired)).toEqual(
      [],
    );
    const text = 'export const MOST_BYTES = 1;\nclass LossLog {\n  readonly #tidy: number;\n  foldNow(): void {}\n}\n';
    expect(declaredIn(text).filter(isRetired)).toEqual(['MOST_BYTES', 'LossLog', '#tidy', 'foldNow']);
  });

  it('that are retired name no file', () => {
    expect(files.length).toBeGreaterThan(100);
    expect(files.filter(isRetired)).toEqual([]);
  });

  it('that are retired name nothing that a file declares', () => {
    const found = files.flatMap((file) =>
      declaredIn(readFileSync(join(SRC, file), 'utf8'))
        .filter(isRetired)
        .map((name) => `${file}: ${name}`),
    );
    expect(found).toEqual([]);
  });

  it('that mean something else in one room name nothing that a file there declares', () => {
    const found = Object.entries(RETIRED_IN).flatMap(([room, words]) =>
      files
        .filter((file) => file.startsWith(`${room}/`))
        .flatMap((file) => [
          file,
          ...declaredIn(readFileSync(join(SRC, file), 'utf8')).map((name) => `${file}: ${name}`),
        ])
        .filter((name) => words.some((word) => ` ${wordsOf(name.split(': ').at(-1)!)} `.includes(` ${word} `))),
    );
    expect(found).toEqual([]);
  });

  it('that are retired stand in no comment, no message and no document', () => {
    const documents = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'docs', 'config'].flatMap((name) =>
      textsOf(join(SRC, '..', name)),
    );
    expect(documents.length).toBeGreaterThan(20);
    const found = [...documents, ...textsOf(SRC)].flatMap(({ path, text }) =>
      text.split('\n').flatMap((line, at) => {
        // The changelog says what a name was before; code that folds text or YAML is about something else.
        const said = line.replaceAll(/\(was `[^`]*`\)|>-?|case.?fold\w*/gi, '');
        return RETIRED_PROSE.test(said) ? [`${relative(join(SRC, '..'), path)}:${at + 1}: ${line.trim()}`] : [];
      }),
    );
    expect(found).toEqual([]);
  });

  it('of a line of the log are the same in every line: a text is `error`, its code `code`', () => {
    const lines = textsOf(SRC).flatMap(({ path, text }) =>
      [...text.matchAll(/\{[^{}]*\bevent: '[\w.]+'[^{}]*\}/g)].map(([line]) => ({ path: relative(SRC, path), line })),
    );
    expect(lines.length).toBeGreaterThan(150);
    const others = /\b(?:reason|message|problem|cause|why): (?:this\.#problem|codeOf|messageOf|error\b|reason\b)/;
    expect(others.test("{ event: 'a.b', reason: messageOf(error) }")).toBe(true);
    // The sandbox is a program of its own.
    expect(lines.filter(({ path, line }) => !path.startsWith('sandbox/') && others.test(line))).toEqual([]);
  });

  it('that are retired name no event of the log', () => {
    const events = [...findLogEvents().events.keys()];
    expect(events.length).toBeGreaterThan(50);
    expect(events.filter(isRetired)).toEqual([]);
  });
});
