import { insteadOf, nearestName } from '../base/nearest.ts';
import type { FileIdentity } from './configuration-digest.ts';
import type { Place, Problems } from './problem.ts';
import { KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';

/** A `KEY=value` line in agent.env. */
export interface EnvLine {
  value: string;
  /** Location of the key. */
  place: Place;
  /** Location of the value. */
  valuePlace: Place;
  /** The value is invalid. The problem has been reported. */
  broken?: true;
}

export interface EnvFile {
  lines: ReadonlyMap<string, EnvLine>;
  /** Returns where to add a missing key: its commented-out line or the end of the file. */
  placeFor(key: string): Place;
  /** Files from which the lines were read. */
  files?: readonly FileIdentity[];
  /** The file does not exist. */
  missing?: true;
  /** The file exists but cannot be read, so its keys are unknown. */
  unreadable?: true;
}

const MAX_PROBLEMS = 100;

/**
 * Parses agent.env: `KEY=value` lines, blank lines and comments (`#` or `;` at the start of a line, ` #` after a
 * value). Values are unquoted, in single quotes (literal) or in double quotes (with `\"`, `\\`, `\n` and `\$`). Values
 * cannot span multiple lines. Problems never show a value, because it could be a secret.
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
    // The file is probably not an env file. Suggesting a key for each line would be slow.
    if (problems.list.length - before >= MAX_PROBLEMS) {
      problems.error(place, 'further problems are not listed', 'fix the problems above first');
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
    problems.error(place, 'this is not a KEY=value line', 'use KEY=value, or # before a comment');
    return;
  }
  const key = match[1]!;
  if (!knownKeys.includes(key)) {
    // Do not quote the name, because it may be part of a multi-line secret: base64 text can end with `=`.
    const named = /^[A-Z][A-Z0-9_]*$/.test(key) || nearestName(key, knownKeys)?.likely === true;
    const reason = named ? `${key} is not a known key` : 'the line does not begin with a known key';
    problems.error(place, reason, insteadOf(key, knownKeys, ''), named ? key : '');
    return;
  }
  const earlier = lines.get(key);
  if (earlier !== undefined) {
    problems.error(place, `${key} is already set on line ${earlier.place.line}`, 'keep only one', key);
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
    const reason = `${key}: the text after " #" is a comment`;
    problems.warning(
      place,
      reason,
      `use ${key}='…' if it belongs to the value, otherwise move it to a separate line`,
      key,
    );
  }
}

/** Matches an unquoted value that ends at ` #`. */
const CUT_OFF = /^\s*[^\s"'#].*?\s#/;

/** Whether the value of a key may contain ` #`. Addresses and numbers cannot. */
function holdsFreeText(key: string): boolean {
  return KEY_NAMES.includes(key as KeyName) && settingKey(key as KeyName).form.as === 'text';
}

function parseValue(raw: string): { value: string } | { reason: string; instead: string } {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: values must not contain control characters
  if (/[\u0000-\u0008\u000b-\u001f\u007f]/.test(raw)) {
    return { reason: 'the value contains a control character', instead: 'remove it' };
  }
  const text = raw.trim();
  if (/^[“”„«‘’‚]/.test(text)) {
    return { reason: 'the value begins with a typographic quote', instead: 'use " or \', or no quotes' };
  }
  const quote = text[0];
  if (quote !== '"' && quote !== "'") return { value: raw.replace(/\s#.*$/, '').trim() };
  const pattern = quote === '"' ? /^"((?:[^"\\]|\\.)*)"\s*(#.*)?$/ : /^'([^']*)'\s*(#.*)?$/;
  const quoted = pattern.exec(text);
  if (quoted === null) {
    if (!text.includes(quote, 1)) return { reason: 'the closing quote is missing', instead: 'add it' };
    return {
      reason: 'the closing quote is not at the end of the value',
      instead: 'quote the whole value, or none of it',
    };
  }
  if (quote === "'") return { value: quoted[1]! };
  return { value: quoted[1]!.replaceAll(/\\(["\\$n])/g, (_, letter: string) => (letter === 'n' ? '\n' : letter)) };
}

/** Formats a value for `parseEnvFile`: unquoted if possible, otherwise in single or double quotes. */
export function envText(value: string): string {
  if (/^[^\s'"#;$\\]*$/.test(value)) return value;
  if (!value.includes("'")) return `'${value}'`;
  return `"${value.replaceAll(/["\\$]/g, '\\$&')}"`;
}
