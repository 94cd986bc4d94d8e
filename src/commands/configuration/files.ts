import { existsSync, mkdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { writeDurably } from '../../base/durable-file.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { SHIPPED_CONFIGURATION } from '../../base/installation.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { isDiskFull } from '../../buffer/space/reserve.ts';
import { envText, parseEnvFile } from '../../config/env-file.ts';
import { Problems } from '../../config/problem.ts';
import { AGENT_ENV_KEYS } from '../../config/setting-keys.ts';

const MAX_BYTES = 64_000_000;

/** Returns the text of a shipped file; `''` if it is missing. */
export function shippedText(name: string): string {
  return readText(new URL(name, SHIPPED_CONFIGURATION).pathname) ?? '';
}

/** Returns the text of a file; `undefined` if it does not exist. Throws `setup.unreadable` if it cannot be read. */
export function readText(path: string): string | undefined {
  try {
    return readRegularFileSync(path, MAX_BYTES).bytes.toString();
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw new TagferryError(`cannot read ${path} (${codeOf(error)})`, {
      code: 'setup.unreadable',
      hint: 'Run `sudo tagferry setup`.',
      cause: error,
    });
  }
}

/**
 * Writes a file durably, and creates its folder if necessary. An existing file keeps its owner and mode. Throws
 * `setup.unwritable` if writing fails; in this case, an existing file is unchanged.
 */
export async function writeWhole(path: string, content: string | Uint8Array, mode: number): Promise<void> {
  try {
    mkdirSync(dirname(path), { recursive: true });
    const before = statSync(path, { throwIfNoEntry: false });
    await writeDurably(path, content, before ? { mode: before.mode & 0o777, owner: before } : { mode });
  } catch (error) {
    throw unwritable(path, error);
  }
}

/** Creates a folder and its parents. Throws `setup.unwritable`. */
export function makeFolder(path: string, mode: number): void {
  try {
    mkdirSync(path, { recursive: true, mode });
  } catch (error) {
    throw unwritable(path, error);
  }
}

function unwritable(path: string, cause: unknown): TagferryError {
  const isFull = isDiskFull(cause);
  return new TagferryError(`cannot write ${path}${isFull ? ': the disk is full' : ` (${codeOf(cause)})`}`, {
    code: 'setup.unwritable',
    hint: isFull
      ? 'Free up space on its file system, then run the command again.'
      : 'Use sudo, or specify a folder that this user can write to (--config).',
    cause,
  });
}

/** Adds missing shipped files: reactions.yaml and the schemas for editors. */
export async function addShippedFiles(directory: string): Promise<void> {
  const reactions = join(directory, 'reactions.yaml');
  if (!existsSync(reactions)) await writeWhole(reactions, shippedText('reactions.yaml') || 'reactions: []\n', 0o644);
  await addShippedSchemas(directory);
}

/** Adds missing schemas for editors. */
export async function addShippedSchemas(directory: string): Promise<void> {
  for (const name of ['schema/tags.schema.json', 'schema/reactions.schema.json']) {
    const path = join(directory, name);
    const text = shippedText(name);
    if (text !== '' && !existsSync(path)) await writeWhole(path, text, 0o644);
  }
}

/**
 * Sets keys in the text of agent.env and retains all other lines. Replaces the key's existing line. If there is no such
 * line, inserts a line after the commented default or at the end. An empty value clears the value in an existing line.
 * `notes`: comments to append to the lines, by key.
 */
export function setEnvLines(
  text: string,
  values: ReadonlyMap<string, string>,
  notes: ReadonlyMap<string, string> = new Map(),
): string {
  const lines = text.replace(/\n+$/, '').split('\n');
  for (const [key, value] of values) {
    const note = notes.get(key);
    const written = `${key}=${envText(value)}${note === undefined ? '' : ` # ${note}`}`;
    const set = lines.findIndex((line) => lineOf(line) === key);
    const commented = lines.findIndex((line) => lineOf(line.replace(/^\s*#+\s*/, '')) === key);
    if (set >= 0) lines[set] = written;
    else if (value === '' && note === undefined) continue;
    else if (commented >= 0) lines.splice(commented + 1, 0, written);
    else lines.push(written);
  }
  return `${lines.join('\n')}\n`;
}

/** Returns the value of a key as the agent reads it, before placeholders are replaced; `''` if there is none. */
export function envValue(text: string, key: string): string {
  return parseEnvFile(text, 'agent.env', AGENT_ENV_KEYS, new Problems()).lines.get(key)?.value ?? '';
}

function lineOf(line: string): string | undefined {
  return /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=/.exec(line)?.[1];
}
