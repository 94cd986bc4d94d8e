import { closeSync, openSync, readSync } from 'node:fs';
import { codeOf, UsageError } from '../../base/errors.ts';
import {
  DISPLAY_LABEL_MEMBERS,
  type DisplayLabel,
  type DisplayLabelsV1,
  type DisplayLabelsV2,
} from '../../contract/labels.ts';
import { KEY_PATTERN } from '../../contract/values.ts';

/** Display labels as they are written on the command line and in a file, checked against platform 2.6 before they are sent. */

export const MEMBERS_TEXT = Object.keys(DISPLAY_LABEL_MEMBERS).join(', ');
const MAX_FILE_BYTES = 1024 * 1024;

/** `flow name="Inlet flow" precision=2`: one key. */
export function labelsInWords(words: readonly string[]): DisplayLabelsV2 {
  const [key = '', ...rest] = words;
  checkKey(key);
  if (rest.length === 0)
    throw new UsageError(`nothing is said of ${key}`, `Write name="…" or more of ${MEMBERS_TEXT}.`);
  const label = Object.fromEntries(
    rest.map((word) => {
      const { name, value } = assignment(word);
      return [name, memberValue(name, value)];
    }),
  );
  return { [key]: label as DisplayLabel };
}

/** v1: `flow="Inlet flow" temperature=…`. */
export function namesInWords(words: readonly string[]): DisplayLabelsV1 {
  if (words.length === 0) throw new UsageError('no label is named', 'Write key=label.');
  return Object.fromEntries(
    words.map((word) => {
      const { name, value } = assignment(word);
      checkKey(name);
      return [name, value];
    }),
  );
}

/** A JSON file of several keys. Throws `UsageError` with the place of what is wrong. */
export function labelsInFile(path: string, words: readonly string[]): DisplayLabelsV2 {
  if (words.length > 0) throw new UsageError('--file and labels on the command line exclude each other');
  let body: unknown;
  try {
    body = JSON.parse(readBounded(path));
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`${path} ${codeOf(error) ? `cannot be read (${codeOf(error)})` : 'is not JSON'}`);
  }
  if (!isObject(body)) throw new UsageError(`${path} holds no JSON object`, 'Write {"flow":{"name":"Inlet flow"}}.');
  for (const [key, label] of Object.entries(body)) {
    checkKey(key);
    if (!isObject(label)) throw new UsageError(`${key} is no object`, 'Write {"flow":{"name":"Inlet flow"}}.');
    for (const [name, value] of Object.entries(label)) checkMember(name, value, `${key}.${name}`);
  }
  return body as DisplayLabelsV2;
}

function assignment(word: string): { name: string; value: string } {
  const at = word.indexOf('=');
  if (at > 0) return { name: word.slice(0, at), value: word.slice(at + 1) };
  throw new UsageError(`${JSON.stringify(word)} is no name=value`, `For example name="Inlet flow".`);
}

function memberValue(name: string, text: string): string | number | boolean {
  const kind = (DISPLAY_LABEL_MEMBERS as Record<string, string | undefined>)[name];
  const value =
    kind === 'string'
      ? text
      : kind === 'boolean'
        ? { true: true, false: false }[text]
        : text === ''
          ? undefined
          : Number(text);
  checkMember(name, value, name);
  return value as string | number | boolean;
}

function checkMember(name: string, value: unknown, place: string): void {
  const kind = Object.hasOwn(DISPLAY_LABEL_MEMBERS, name)
    ? DISPLAY_LABEL_MEMBERS[name as keyof DisplayLabel]
    : undefined;
  if (kind === undefined) throw new UsageError(`${place} is no member of a label`, `Members: ${MEMBERS_TEXT}.`);
  const fits =
    kind === 'integer'
      ? Number.isSafeInteger(value)
      : kind === 'number'
        ? Number.isFinite(value)
        : typeof value === kind;
  if (!fits) throw new UsageError(`${place} wants ${kind === 'boolean' ? 'true or false' : `a ${kind}`}`);
}

function checkKey(key: string): void {
  if (!KEY_PATTERN.test(key)) {
    throw new UsageError(`${JSON.stringify(key)} is no value key`, 'Keys have letters, digits, `.`, `-`, `_`.');
  }
}

function readBounded(path: string): string {
  const descriptor = path === '-' ? 0 : openSync(path, 'r');
  try {
    const chunks: Buffer[] = [];
    let size = 0;
    for (;;) {
      const chunk = Buffer.alloc(65_536);
      const count = readSync(descriptor, chunk, 0, chunk.length, null);
      if (count === 0) return Buffer.concat(chunks).toString('utf8');
      size += count;
      if (size > MAX_FILE_BYTES) throw new UsageError(`${path} is larger than 1 MiB`);
      chunks.push(chunk.subarray(0, count));
    }
  } finally {
    if (descriptor !== 0) closeSync(descriptor);
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
