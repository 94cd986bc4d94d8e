import {
  chownSync,
  closeSync,
  cpSync,
  existsSync,
  fchmodSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { SHIPPED_CONFIGURATION } from '../../base/installation.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
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
 * Replaces a file atomically (temporary file, sync, rename, folder sync), so that either the old or the new file exists
 * after a power failure. An existing file keeps its owner and mode. Throws `setup.unwritable` if writing fails.
 */
export function writeWhole(path: string, text: string | Uint8Array, mode: number): void {
  const temporary = `${path}.new`;
  try {
    mkdirSync(dirname(path), { recursive: true });
    const before = existsSync(path) ? statSync(path) : undefined;
    rmSync(temporary, { force: true });
    const file = openSync(temporary, 'wx', 0o600);
    try {
      writeSync(file, typeof text === 'string' ? Buffer.from(text) : text);
      fchmodSync(file, before ? before.mode & 0o777 : mode);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    if (before && process.getuid?.() === 0) chownSync(temporary, before.uid, before.gid);
    renameSync(temporary, path);
    syncFolder(dirname(path));
  } catch (error) {
    throw new TagferryError(`cannot write ${path} (${codeOf(error)})`, {
      code: 'setup.unwritable',
      hint: 'Use sudo, or specify a folder that this user can write with --config.',
      cause: error,
    });
  }
}

/** Adds missing shipped files: reactions.yaml and the schemas for editors. */
export function addShippedFiles(directory: string): void {
  if (!existsSync(join(directory, 'reactions.yaml'))) {
    const text = shippedText('reactions.yaml');
    writeWhole(join(directory, 'reactions.yaml'), text === '' ? 'reactions: []\n' : text, 0o644);
  }
  addShippedSchemas(directory);
}

/** Adds the schemas for editors if the folder does not contain any. */
export function addShippedSchemas(directory: string): void {
  const schemas = new URL('schema/', SHIPPED_CONFIGURATION).pathname;
  if (!existsSync(join(directory, 'schema')) && existsSync(schemas)) {
    cpSync(schemas, join(directory, 'schema'), { recursive: true });
  }
}

/** Syncs a folder, so that renames and removals in it are durable. */
export function syncFolder(path: string): void {
  const folder = openSync(path, 'r');
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
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
