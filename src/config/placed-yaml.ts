import { createRequire } from 'node:module';
import type * as Yaml from 'yaml';
import type { PlainYamlLimits } from './plain-yaml.ts';
import { type Place, type Problems, printable } from './problem.ts';

/** YAML file as plain data, with locations by JSON pointer. */
export interface YamlFile {
  name: string;
  /** `undefined` if the file is empty. */
  data: unknown;
  /** Pointers to strings with replaced placeholders. If the schema requires a number, such strings are converted. */
  filled?: ReadonlySet<string>;
  /**
   * Pointers to strings and names whose placeholders could not be replaced. These problems have been reported, so
   * further ones are suppressed.
   */
  unfilled?: ReadonlySet<string>;
  /** Returns the location of a value, or the location of its parent if the member is missing. */
  placeOf(pointer: string): Place;
  /** Returns the location of a member name. */
  placeOfName(pointer: string): Place;
  /** Returns the text of a number or boolean as written, such as 0815. */
  textOf(pointer: string): string | undefined;
}

/**
 * Parses YAML, records locations and describes syntax errors. The parser is loaded on demand, because valid files do
 * not need it.
 */
const load = createRequire(import.meta.url);
let loaded: typeof Yaml | undefined;

function yaml(): typeof Yaml {
  loaded ??= load('yaml') as typeof Yaml;
  return loaded;
}

const MAX_SYNTAX_PROBLEMS = 20;
/** Maximum number of characters searched for the cause of a syntax error. */
const MAX_LINE_SHOWN = 1_000;

interface Words {
  reason: string;
  instead: string;
}

/** Messages for syntax errors. The parser's own messages assume knowledge of its internals and may quote a secret. */
const WORDS: Readonly<Record<string, Words>> = {
  TAB_AS_INDENT: { reason: 'YAML does not allow tabs for indentation', instead: 'indent with spaces' },
  BAD_INDENT: {
    reason: 'the indentation differs from the lines around it',
    instead: 'align it with the members above',
  },
  MISSING_CHAR: {
    reason: 'a quote, comma or colon is missing',
    instead: 'close the open quote or bracket',
  },
  MULTIPLE_DOCS: { reason: 'a second document begins here', instead: 'remove the --- line' },
  BLOCK_AS_IMPLICIT_KEY: {
    reason: 'expected the value of the member above, found another member',
    instead: 'check the indentation here and the colon above',
  },
  BLOCK_IN_FLOW: {
    reason: 'members inside brackets must be separated by commas',
    instead: 'add commas between the members',
  },
  MULTILINE_IMPLICIT_KEY: { reason: 'expected name: value', instead: 'check for a missing colon or quote' },
  TAG_RESOLVE_FAILED: {
    reason: 'YAML tags (words that begin with !) are not supported',
    instead: 'remove the word that begins with !',
  },
  MULTIPLE_TAGS: { reason: 'found two YAML tags (words that begin with !)', instead: 'remove them' },
  BAD_SCALAR_START: {
    reason: 'a string begins with a character that YAML reserves',
    instead: 'put quotes around the string',
  },
  BAD_DQ_ESCAPE: { reason: 'invalid backslash in double quotes', instead: "use single quotes: 'C:\\x'" },
  BAD_ALIAS: { reason: 'invalid alias (* before a name)', instead: 'put quotes around the string' },
  BAD_DIRECTIVE: { reason: 'a line begins with %', instead: 'put quotes around the string, or # before a comment' },
  BAD_PROP_ORDER: { reason: 'misplaced & or !', instead: 'put quotes around the string' },
  MULTIPLE_ANCHORS: { reason: 'found two anchors (words that begin with &)', instead: 'put quotes around the string' },
  ALIAS_PROPS: {
    reason: 'an alias (*name) cannot have an anchor (&) or tag (!)',
    instead: 'put quotes around the string',
  },
  KEY_OVER_1024_CHARS: { reason: 'a name is longer than 1,024 characters', instead: 'check for a missing quote' },
  RESOURCE_EXHAUSTION: { reason: 'the YAML is nested too deeply', instead: 'check that this is the correct file' },
};
const UNKNOWN_MISTAKE: Words = {
  reason: 'invalid YAML',
  instead: 'check this line and the one above',
};
const UNQUOTED_PLACEHOLDER: Words = {
  reason: `a \${…} in brackets requires quotes`,
  instead: `put quotes around the string: "\${NAME}"`,
};

/** Parses text and reports each syntax error with its line. Never throws. */
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
  // Disable stack traces, because a malformed file can cause one error per character.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    document = parseDocument(text, { lineCounter: counter, prettyErrors: false, uniqueKeys: false });
  } catch (error) {
    // The parser throws only if nesting exhausts the stack.
    const why = error instanceof RangeError ? 'it is nested too deeply' : 'the parser gave up';
    problems.error(
      { file: name, line: 1, column: 1 },
      `the file is not YAML: ${why}`,
      'check that this is the correct file',
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
      problems.error(placeAt(offset), `duplicate name "${printable(key)}"`, 'keep only one', key);
    }
    return {
      name,
      data: data ?? undefined,
      placeOf: (pointer) => placeAt(nearestOffset(walk.values, pointer)),
      placeOfName: (pointer) => placeAt(walk.names.get(pointer) ?? nearestOffset(walk.values, pointer)),
      textOf: (pointer) => walk.texts.get(pointer),
    };
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    problems.error(error.place, error.message, error.instead);
    return undefined;
  }
}

/** Returns at most one error per line and skips errors that are only consequences of an earlier one. */
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

/**
 * Reports non-standard spaces, such as those copied from web pages and documents. Such spaces look like indentation but
 * are part of a name.
 */
function reportOddSpaces(text: string, name: string, problems: Problems): boolean {
  let count = 0;
  for (const [index, line] of text.split('\n').entries()) {
    const column = /^[ \t]*\u00a0/.exec(line)?.[0].length;
    if (column === undefined || ++count > MAX_SYNTAX_PROBLEMS) continue;
    const reason = 'found a no-break space, YAML requires an ordinary space';
    problems.error({ file: name, line: index + 1, column }, reason, 'replace it with a space');
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
    problems.error(placeAt(offset), 'missing space after the colon', 'use name: value');
    return;
  }
  const closing = /\bend with a ([}\]])/.exec(mistake.message)?.[1];
  if (closing !== undefined) {
    // The parser reports the next token, which may be several lines further down.
    const end = text.slice(0, offset).trimEnd().length;
    problems.error(placeAt(end), 'missing closing bracket', `close it with ${closing}`);
    return;
  }
  if (/closing .?quote/.test(mistake.message)) {
    problems.error(placeAt(offset), 'missing closing quote', 'close it on the same line');
    return;
  }
  const start = text.lastIndexOf('\n', offset - 1) + 1;
  // Limit the search, because it runs once per bracket in the line.
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

/** Converts the nodes of a document to plain data and records locations. Follows aliases and `<<` within limits. */
class Walk {
  readonly values = new Map<string, number>();
  readonly names = new Map<string, number>();
  /** Texts of numbers and booleans as written. */
  readonly texts = new Map<string, string>();
  /** Duplicate names by mapping. The parser's duplicate check takes quadratic time. */
  readonly repeated = new Map<number, string>();
  readonly #limits: PlainYamlLimits;
  readonly #placeAt: (offset: number) => Place;
  /** Latest anchor by name. The parser's alias lookup scans the whole file. */
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
        depth > this.#limits.depth
          ? 'the YAML is nested too deeply'
          : 'the YAML is too large after its aliases are expanded';
      throw new Unreadable(reason, 'remove the aliases (*name)', this.#placeAt(offset));
    }
    if (isAlias(node)) {
      const target = this.#anchors.get(node.source);
      if (target === undefined)
        throw new Unreadable(
          `unknown anchor &${printable(node.source)}`,
          'use the value itself',
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
    if (isScalar(node)) {
      const hasOtherText = ['number', 'bigint', 'boolean'].includes(typeof node.value);
      if (hasOtherText && node.source !== undefined) this.texts.set(pointer, node.source);
      return typeof node.value === 'bigint' ? Number(node.value) : node.value;
    }
    if (isSeq(node)) return node.items.map((item, index) => this.take(item, `${pointer}/${index}`, depth + 1));
    if (!isMap(node)) throw new Unreadable('unsupported YAML node', 'remove it', this.#placeAt(offset));
    return this.#takeMap(node, pointer, depth);
  }

  #takeMap(node: { items: readonly unknown[] }, pointer: string, depth: number): Record<string, unknown> {
    const { isPair, isScalar } = yaml();
    const own = new Map<string, unknown>();
    const merged = new Map<string, unknown>();
    for (const pair of node.items) {
      if (!isPair(pair)) continue;
      const offset = (pair.key as Yaml.Node | null)?.range?.[0] ?? 0;
      // Names are used as written: 0815 and 1.50 are not numbers.
      const key = isScalar(pair.key) ? (pair.key.source ?? String(pair.key.value)) : undefined;
      if (key === undefined) throw new Unreadable('a name must be text', 'use name: value', this.#placeAt(offset));
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
    // No prototype, because a tag may be named __proto__.
    const data: Record<string, unknown> = Object.create(null);
    for (const [key, value] of [...merged, ...own]) data[key] = value;
    return data;
  }

  #partsToMerge(node: unknown, pointer: string, depth: number, offset: number): Record<string, unknown>[] {
    const taken = this.take(node, pointer, depth + 1);
    const parts = Array.isArray(taken) ? taken : [taken];
    if (parts.every((part) => typeof part === 'object' && part !== null && !Array.isArray(part))) return parts;
    throw new Unreadable('<< requires a mapping', 'use the anchor of a mapping: <<: *name', this.#placeAt(offset));
  }
}

function nearestOffset(offsets: ReadonlyMap<string, number>, pointer: string): number {
  for (let part = pointer; ; part = part.slice(0, part.lastIndexOf('/'))) {
    const offset = offsets.get(part);
    if (offset !== undefined) return offset;
    if (part === '') return 0;
  }
}

/** Escapes a name for use in a JSON pointer (RFC 6901). */
export function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}

export function isMapping(data: unknown): data is Record<string, unknown> {
  return typeof data === 'object' && data !== null && !Array.isArray(data);
}
