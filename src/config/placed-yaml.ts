import { createRequire } from 'node:module';
import type * as Yaml from 'yaml';
import type { PlainYamlLimits } from './plain-yaml.ts';
import { type Place, type Problems, printable } from './problem.ts';

/** A YAML file as plain data, with the place of everything in it by JSON pointer. */
export interface YamlFile {
  name: string;
  /** `undefined` where the file holds nothing. */
  data: unknown;
  /** Pointers of texts that placeholders were filled into: what the schema wants as a number is one. */
  filled?: ReadonlySet<string>;
  /** Pointers of texts and names whose placeholders could not be filled in: reported, and nothing more is said of them. */
  unfilled?: ReadonlySet<string>;
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

const MAX_SYNTAX_PROBLEMS = 20;
/** Characters of a line that are looked at for what a mistake may come from. */
const MAX_LINE_SHOWN = 1_000;

interface Words {
  reason: string;
  instead: string;
}

/** Every mistake of syntax in our words: the parser's are for people who know how it works, and may quote a secret. */
const WORDS: Readonly<Record<string, Words>> = {
  TAB_AS_INDENT: { reason: 'a tab stands where YAML wants spaces', instead: 'indent with spaces' },
  BAD_INDENT: {
    reason: 'this line is indented otherwise than its neighbours',
    instead: 'line it up with the members above',
  },
  MISSING_CHAR: {
    reason: 'a quote, comma or colon is missing',
    instead: 'close the quote or bracket that stands open',
  },
  MULTIPLE_DOCS: { reason: 'a second document begins here', instead: 'remove the --- line' },
  BLOCK_AS_IMPLICIT_KEY: {
    reason: 'a member stands where the value of the one above belongs',
    instead: 'check the indentation here and the colon above',
  },
  BLOCK_IN_FLOW: {
    reason: 'members on lines of their own stand inside brackets',
    instead: 'write them between commas',
  },
  MULTILINE_IMPLICIT_KEY: { reason: 'this line is no name: value', instead: 'check for a missing colon or quote' },
  TAG_RESOLVE_FAILED: {
    reason: 'a word that begins with ! means nothing here',
    instead: 'remove the word that begins with !',
  },
  MULTIPLE_TAGS: { reason: 'two words that begin with ! stand here', instead: 'remove them' },
  BAD_SCALAR_START: {
    reason: 'a text begins with a character that YAML keeps for itself',
    instead: 'put quotes around the text',
  },
  BAD_DQ_ESCAPE: { reason: 'a backslash stands in double quotes', instead: "write it in single quotes: 'C:\\x'" },
  BAD_ALIAS: { reason: 'a * stands before a name', instead: 'put quotes around the text' },
  BAD_DIRECTIVE: { reason: 'a line begins with %', instead: 'put quotes around the text, or # before a comment' },
  BAD_PROP_ORDER: { reason: 'a & or ! stands at the wrong place', instead: 'put quotes around the text' },
  MULTIPLE_ANCHORS: { reason: 'two words that begin with & stand here', instead: 'put quotes around the text' },
  ALIAS_PROPS: { reason: 'a & or ! stands before a *', instead: 'put quotes around the text' },
  KEY_OVER_1024_CHARS: { reason: 'a name is longer than 1,024 characters', instead: 'check for a missing quote' },
  RESOURCE_EXHAUSTION: { reason: 'the YAML is nested too deeply', instead: 'check that it is the right file' },
};
const UNKNOWN_MISTAKE: Words = {
  reason: 'YAML cannot make sense of this',
  instead: 'check this line and the one above',
};
const UNQUOTED_PLACEHOLDER: Words = {
  reason: `a \${…} stands between brackets without quotes`,
  instead: `put quotes around the text: "\${NAME}"`,
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
  // A file of commas has a mistake at each, and where the parser stood is in none of our words.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
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
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
  const mistakes: Yaml.YAMLError[] = [...document.errors, ...document.warnings];
  if (mistakes.length > 0) {
    for (const mistake of causes(mistakes, counter)) reportSyntax(mistake, text, placeAt, problems);
    return undefined;
  }
  try {
    const walk = new Walk(limits, placeAt);
    const data = walk.take(document.contents, '', 0);
    for (const [offset, key] of [...walk.repeated].slice(0, MAX_SYNTAX_PROBLEMS)) {
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
    .slice(0, MAX_SYNTAX_PROBLEMS);
}

/** Spaces that come with what is copied from a web page or a letter: they look like indentation, and are part of a name. */
function reportOddSpaces(text: string, name: string, problems: Problems): boolean {
  let count = 0;
  for (const [index, line] of text.split('\n').entries()) {
    const column = /^[ \t]*\u00a0/.exec(line)?.[0].length;
    if (column === undefined || ++count > MAX_SYNTAX_PROBLEMS) continue;
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
  if (/closing .?quote/.test(mistake.message)) {
    problems.error(placeAt(offset), 'a quote that was opened is not closed', 'close it, on its line');
    return;
  }
  const start = text.lastIndexOf('\n', offset - 1) + 1;
  // The whole of a line of a megabyte would be looked through for each of its brackets.
  const line = text.slice(start, start + MAX_LINE_SHOWN).split('\n', 1)[0]!;
  const { reason, instead } = /[{[].*?[^"'$]\$\{/.test(line)
    ? UNQUOTED_PLACEHOLDER
    : (WORDS[mistake.code] ?? UNKNOWN_MISTAKE);
  problems.error(placeAt(offset), reason, instead);
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
  readonly #limits: PlainYamlLimits;
  readonly #placeAt: (offset: number) => Place;
  /** The last of each name so far. The parser's own look goes through the whole file for each alias. */
  readonly #anchors = new Map<string, unknown>();
  #aliases = 0;
  #nodes = 0;

  constructor(limits: PlainYamlLimits, placeAt: (offset: number) => Place) {
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
      const target = this.#anchors.get(node.source);
      if (target === undefined)
        throw new Unreadable(
          `there is no &${printable(node.source)} before this`,
          'write the value itself',
          this.#placeAt(offset),
        );
      if (!this.values.has(pointer)) this.values.set(pointer, offset);
      this.#aliases++;
      const taken = this.take(target, pointer, depth + 1);
      this.#aliases--;
      return taken;
    }
    const { anchor } = node as Yaml.Scalar;
    if (anchor && this.#aliases === 0) this.#anchors.set(anchor, node);
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
      if (key.length > this.#limits.nameLength) {
        const max = this.#limits.nameLength.toLocaleString('en');
        throw new Unreadable(
          `a name is longer than ${max} characters`,
          'check for a missing quote',
          this.#placeAt(offset),
        );
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
