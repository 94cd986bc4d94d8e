import { createRequire } from 'node:module';
import type * as Yaml from 'yaml';
import type { PlainYamlLimits } from './plain-yaml.ts';
import { type Place, type Problems, printable } from './problem.ts';

/** A YAML file as plain data, with the place of everything in it by JSON pointer. */
export interface YamlFile {
  name: string;
  /** `undefined` where the file holds nothing. */
  data: unknown;
  /** Where a value stands; where a member is missing, the place of what lacks it. */
  placeOf(pointer: string): Place;
  /** Where the name of a member stands. */
  placeOfName(pointer: string): Place;
}

/**
 * YAML with the place of everything in it, and every mistake of syntax in words. The parser is loaded when it is first needed: a sound
 * configuration needs none of this.
 */
const load = createRequire(import.meta.url);
let loaded: typeof Yaml | undefined;

function yaml(): typeof Yaml {
  loaded ??= load('yaml') as typeof Yaml;
  return loaded;
}

const MOST_SYNTAX_PROBLEMS = 20;

/** The mistakes that people make: what to write instead, and what is wrong where the parser's words would not help. */
const WORDS: Readonly<Record<string, { reason?: string; instead: string }>> = {
  TAB_AS_INDENT: { reason: 'a tab stands where YAML wants spaces', instead: 'indent with spaces' },
  BAD_INDENT: { instead: 'line it up with the members above' },
  MISSING_CHAR: { instead: 'close the quote or bracket that stands open' },
  MULTIPLE_DOCS: { reason: 'a second document begins here', instead: 'remove the --- line' },
  BLOCK_AS_IMPLICIT_KEY: { instead: 'check the indentation here and the colon above' },
  MULTILINE_IMPLICIT_KEY: { instead: 'check for a missing colon or quote' },
  TAG_RESOLVE_FAILED: { instead: 'remove the word that begins with !' },
  BAD_SCALAR_START: { instead: 'put quotes around the text' },
  RESOURCE_EXHAUSTION: { reason: 'the YAML is nested too deeply', instead: 'check that it is the right file' },
};

/** Parses text; every mistake of syntax is reported with its line, none is thrown. */
export function parsePlacedYaml(
  text: string,
  name: string,
  limits: PlainYamlLimits,
  problems: Problems,
): YamlFile | undefined {
  const { LineCounter, parseDocument } = yaml();
  const counter = new LineCounter();
  const placeAt = (offset: number): Place => {
    const { line, col } = counter.linePos(offset);
    return { file: name, line: Math.max(1, line), column: Math.max(1, col) };
  };
  if (reportOddSpaces(text, name, problems)) return undefined;
  let document: Yaml.Document.Parsed;
  try {
    document = parseDocument(text, { lineCounter: counter, prettyErrors: false, uniqueKeys: false });
  } catch (error) {
    // The parser throws only where nesting exhausts the stack.
    const why = error instanceof RangeError ? 'it is nested too deeply' : 'the parser gave up';
    problems.error(
      { file: name, line: 1, column: 1 },
      `the file is not YAML: ${why}`,
      'check that it is the right file',
    );
    return undefined;
  }
  const mistakes: Yaml.YAMLError[] = [...document.errors, ...document.warnings];
  if (mistakes.length > 0) {
    for (const mistake of causes(mistakes, counter)) reportSyntax(mistake, text, placeAt, problems);
    return undefined;
  }
  try {
    const walk = new Walk(document, limits, placeAt);
    const data = walk.take(document.contents, '', 0);
    for (const [offset, key] of [...walk.repeated].slice(0, MOST_SYNTAX_PROBLEMS)) {
      problems.error(placeAt(offset), `"${printable(key)}" stands here a second time`, 'keep one of the two', key);
    }
    return {
      name,
      data: data ?? undefined,
      placeOf: (pointer) => placeAt(nearestOffset(walk.values, pointer)),
      placeOfName: (pointer) => placeAt(walk.names.get(pointer) ?? nearestOffset(walk.values, pointer)),
    };
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    problems.error(error.place, error.message, error.instead);
    return undefined;
  }
}

/** One a line; and not what only follows from an earlier mistake: the parser then no longer knows where it is. */
function causes(mistakes: readonly Yaml.YAMLError[], counter: Yaml.LineCounter): Yaml.YAMLError[] {
  const sorted = [...mistakes].sort((one, other) => one.pos[0] - other.pos[0]);
  const lines = new Set<number>();
  return sorted
    .filter((mistake, index) => {
      const { line } = counter.linePos(mistake.pos[0]);
      if (lines.has(line) || (index > 0 && mistake.message.includes('in YAML stream'))) return false;
      lines.add(line);
      return true;
    })
    .slice(0, MOST_SYNTAX_PROBLEMS);
}

/** Spaces that come with what is copied from a web page or a letter: they look like indentation, and are part of a name. */
function reportOddSpaces(text: string, name: string, problems: Problems): boolean {
  let count = 0;
  for (const [index, line] of text.split('\n').entries()) {
    const column = /^[ \t]*\u00a0/.exec(line)?.[0].length;
    if (column === undefined || ++count > MOST_SYNTAX_PROBLEMS) continue;
    const reason = 'a no-break space stands where YAML wants spaces';
    problems.error({ file: name, line: index + 1, column }, reason, 'delete it and type a space');
  }
  return count > 0;
}

function reportSyntax(
  mistake: Yaml.YAMLError,
  text: string,
  placeAt: (offset: number) => Place,
  problems: Problems,
): void {
  const offset = mistake.pos[0];
  const tight = /^\s*(?:- +)?[\w.-]+:(?=[^\s/])/.exec(text.slice(text.lastIndexOf('\n', offset - 1) + 1, offset + 200));
  if (mistake.code === 'MULTILINE_IMPLICIT_KEY' && tight !== null) {
    problems.error(placeAt(offset), 'there is no space after the colon', 'write name: value');
    return;
  }
  const closing = /\bend with a ([}\]])/.exec(mistake.message)?.[1];
  if (closing !== undefined) {
    problems.error(placeAt(offset), 'a bracket that was opened is not closed', `close it with ${closing}`);
    return;
  }
  // The parser quotes what it met, which may be part of a secret.
  const words = printable(mistake.message.split('\n')[0]!.replace(/: ".*$/, ''), 120);
  const known = WORDS[mistake.code];
  const reason = known?.reason ?? `the YAML cannot be read: ${words}`;
  problems.error(placeAt(offset), reason, known?.instead ?? 'check this line and the one above');
}

class Unreadable extends Error {
  readonly place: Place;
  readonly instead: string;

  constructor(message: string, instead: string, place: Place) {
    super(message);
    this.place = place;
    this.instead = instead;
  }
}

/** One walk over the nodes of a document: plain data, and where each part stands. Aliases and `<<` are followed, in bounds. */
class Walk {
  readonly values = new Map<string, number>();
  readonly names = new Map<string, number>();
  /** Names that stand twice in one mapping. Looked for here, because the parser's own search grows with the square. */
  readonly repeated = new Map<number, string>();
  readonly #document: Yaml.Document.Parsed;
  readonly #limits: PlainYamlLimits;
  readonly #placeAt: (offset: number) => Place;
  #nodes = 0;

  constructor(document: Yaml.Document.Parsed, limits: PlainYamlLimits, placeAt: (offset: number) => Place) {
    this.#document = document;
    this.#limits = limits;
    this.#placeAt = placeAt;
  }

  take(node: unknown, pointer: string, depth: number): unknown {
    const { isAlias, isMap, isScalar, isSeq } = yaml();
    if (node === null || node === undefined) return null;
    const offset = (node as Yaml.Node).range?.[0] ?? 0;
    if (++this.#nodes > this.#limits.nodes || depth > this.#limits.depth) {
      const reason =
        depth > this.#limits.depth ? 'the YAML is nested too deeply' : 'the YAML grows too large with its aliases';
      throw new Unreadable(reason, 'write it without aliases (*name)', this.#placeAt(offset));
    }
    if (isAlias(node)) {
      const target = node.resolve(this.#document);
      if (target === undefined)
        throw new Unreadable(
          `there is no &${printable(node.source)} before this`,
          'write the value itself',
          this.#placeAt(offset),
        );
      if (!this.values.has(pointer)) this.values.set(pointer, offset);
      return this.take(target, pointer, depth + 1);
    }
    if (!this.values.has(pointer)) this.values.set(pointer, offset);
    if (isScalar(node)) return typeof node.value === 'bigint' ? Number(node.value) : node.value;
    if (isSeq(node)) return node.items.map((item, index) => this.take(item, `${pointer}/${index}`, depth + 1));
    if (!isMap(node))
      throw new Unreadable('the YAML holds something that is no value', 'remove it', this.#placeAt(offset));
    return this.#takeMap(node, pointer, depth);
  }

  #takeMap(node: { items: readonly unknown[] }, pointer: string, depth: number): Record<string, unknown> {
    const { isPair, isScalar } = yaml();
    const own = new Map<string, unknown>();
    const merged = new Map<string, unknown>();
    for (const pair of node.items) {
      if (!isPair(pair)) continue;
      const offset = (pair.key as Yaml.Node | null)?.range?.[0] ?? 0;
      const key = isScalar(pair.key) ? String(pair.key.value) : undefined;
      if (key === undefined) throw new Unreadable('a name here is no text', 'write name: value', this.#placeAt(offset));
      if (key === '<<') {
        for (const part of this.#partsToMerge(pair.value, pointer, depth, offset)) {
          for (const [name, value] of Object.entries(part)) if (!merged.has(name)) merged.set(name, value);
        }
        continue;
      }
      const below = `${pointer}/${escapePointer(key)}`;
      if (own.has(key)) {
        this.repeated.set(offset, key);
        continue;
      }
      this.names.set(below, offset);
      this.values.delete(below);
      const value = this.take(pair.value, below, depth + 1);
      if (!this.values.has(below)) this.values.set(below, offset);
      own.set(key, value);
    }
    // No prototype: a tag may be called __proto__.
    const data: Record<string, unknown> = Object.create(null);
    for (const [key, value] of [...merged, ...own]) data[key] = value;
    return data;
  }

  #partsToMerge(node: unknown, pointer: string, depth: number, offset: number): Record<string, unknown>[] {
    const taken = this.take(node, pointer, depth + 1);
    const parts = Array.isArray(taken) ? taken : [taken];
    if (parts.every((part) => typeof part === 'object' && part !== null && !Array.isArray(part))) return parts;
    throw new Unreadable(
      '<< takes in something that is no mapping',
      'name an anchor of a mapping: <<: *name',
      this.#placeAt(offset),
    );
  }
}

function nearestOffset(offsets: ReadonlyMap<string, number>, pointer: string): number {
  for (let part = pointer; ; part = part.slice(0, part.lastIndexOf('/'))) {
    const offset = offsets.get(part);
    if (offset !== undefined) return offset;
    if (part === '') return 0;
  }
}

/** RFC 6901. */
export function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}
