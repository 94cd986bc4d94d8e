import { insteadOf, nearestName } from '../base/nearest.ts';
import type { FileIdentity } from './configuration-digest.ts';
import type { Place, Problems } from './problem.ts';
import { KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';

/** One `KEY=value` line of agent.env. */
export interface EnvLine {
  value: string;
  /** Of the key. */
  place: Place;
  /** Of the value. */
  valuePlace: Place;
  /** The value could not be read; that has been reported. */
  broken?: true;
}

export interface EnvFile {
  lines: ReadonlyMap<string, EnvLine>;
  /** Where to write a key that is missing: its commented line, else the end of the file. */
  placeFor(key: string): Place;
  /** The files that it was read from. */
  files?: readonly FileIdentity[];
  /** There is no file. */
  missing?: true;
  /** The file is there but cannot be read: what is missing from it is not known. */
  unreadable?: true;
}

const MAX_PROBLEMS = 100;

/**
 * Reads agent.env: `KEY=value` lines, blank lines, comments (`#` or `;` at the start, ` #` after a value), values bare or in
 * single quotes (taken as they are) or double quotes (`\"`, `\\`, `\n`, `\$`). A value stays on its line.
 * No problem shows a value: at this point nobody knows which text is a secret.
 */
export function parseEnvFile(text: string, file: string, knownKeys: readonly string[], problems: Problems): EnvFile {
  const lines = new Map<string, EnvLine>();
  const commented = new Map<string, number>();
  const rows = text.split(/\r\n|\n|\r/);
  const before = problems.list.length;
  for (const [index, row] of rows.entries()) {
    const place: Place = { file, line: index + 1, column: 1 + row.length - row.trimStart().length };
    const content = row.trim();
    const comment = /^[#;]+\s*([A-Z][A-Z0-9_]*)\s*=/.exec(content);
    if (comment !== null && !commented.has(comment[1]!)) commented.set(comment[1]!, index + 1);
    if (content === '' || content.startsWith('#') || content.startsWith(';')) continue;
    // A file of something else: looking for the key that each of its lines may mean costs.
    if (problems.list.length - before >= MAX_PROBLEMS) {
      problems.error(place, 'there are more problems from here on', 'mend those above first');
      break;
    }
    parseRow(content, place, lines, knownKeys, problems);
  }
  const lastLine = Math.max(1, rows.at(-1)?.trim() === '' ? rows.length - 1 : rows.length);
  return {
    lines,
    placeFor: (key) => lines.get(key)?.place ?? { file, line: commented.get(key) ?? lastLine, column: 1 },
  };
}

function parseRow(
  content: string,
  place: Place,
  lines: Map<string, EnvLine>,
  knownKeys: readonly string[],
  problems: Problems,
): void {
  const match = /^(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=(.*)$/s.exec(content);
  if (match === null) {
    problems.error(place, 'this is no KEY=value line', 'write KEY=value, or # before a comment');
    return;
  }
  const key = match[1]!;
  if (!knownKeys.includes(key)) {
    // A line that is the rest of a secret (base64 ends with `=`) also looks like a key: such text is not repeated.
    const named = /^[A-Z][A-Z0-9_]*$/.test(key) || nearestName(key, knownKeys)?.likely === true;
    const reason = named ? `${key} is not a known key` : 'the line begins with no known key';
    problems.error(place, reason, insteadOf(key, knownKeys, ''), named ? key : '');
    return;
  }
  const earlier = lines.get(key);
  if (earlier !== undefined) {
    problems.error(place, `${key} stands already on line ${earlier.place.line}`, 'keep one of the two', key);
    return;
  }
  const raw = match[2]!;
  const before = content.length - raw.length + (/^\s*["']?/.exec(raw)?.[0].length ?? 0);
  const valuePlace: Place = { ...place, column: (place.column ?? 1) + before };
  const value = parseValue(raw);
  if ('reason' in value) {
    lines.set(key, { value: '', place, valuePlace, broken: true });
    problems.error(place, `${key}: ${value.reason}`, value.instead, key);
    return;
  }
  lines.set(key, { value: value.value, place, valuePlace });
  if (CUT_OFF.test(raw) && holdsFreeText(key)) {
    const reason = `${key}: what follows " #" is taken for a comment`;
    problems.warning(
      place,
      reason,
      `write ${key}='…' where it belongs to the value, else give it a line of its own`,
      key,
    );
  }
}

/** A bare value that ends at ` #`. */
const CUT_OFF = /^\s*[^\s"'#].*?\s#/;

/** Keys whose text may well hold a ` #`; of an address or a number nobody could mean it. */
function holdsFreeText(key: string): boolean {
  return KEY_NAMES.includes(key as KeyName) && settingKey(key as KeyName).form.as === 'text';
}

function parseValue(raw: string): { value: string } | { reason: string; instead: string } {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a value with one cannot be meant
  if (/[\u0000-\u0008\u000b-\u001f\u007f]/.test(raw)) {
    return { reason: 'the value holds a control character', instead: 'remove it' };
  }
  const text = raw.trim();
  if (/^[“”„«‘’‚]/.test(text)) {
    return { reason: 'the value begins with a typographic quote', instead: 'write " or \', or no quotes' };
  }
  const quote = text[0];
  if (quote !== '"' && quote !== "'") return { value: raw.replace(/\s#.*$/, '').trim() };
  const pattern = quote === '"' ? /^"((?:[^"\\]|\\.)*)"\s*(#.*)?$/ : /^'([^']*)'\s*(#.*)?$/;
  const quoted = pattern.exec(text);
  if (quoted === null) {
    return {
      reason: 'the quotes do not close at the end of the value',
      instead: 'quote the whole value, or none of it',
    };
  }
  if (quote === "'") return { value: quoted[1]! };
  return { value: quoted[1]!.replaceAll(/\\(["\\$n])/g, (_, letter: string) => (letter === 'n' ? '\n' : letter)) };
}

/** Returns a value as `parseEnvFile` reads it: without quotes if possible, else in single or double ones. */
export function envText(value: string): string {
  if (/^[^\s'"#;$\\]*$/.test(value)) return value;
  if (!value.includes("'")) return `'${value}'`;
  return `"${value.replaceAll(/["\\$]/g, '\\$&')}"`;
}
