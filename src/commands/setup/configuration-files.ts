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

const MAX_BYTES = 64_000_000;

/** A shipped file's text; `''` where this installation has none. */
export function shippedText(name: string): string {
  return readText(new URL(name, SHIPPED_CONFIGURATION).pathname) ?? '';
}

/** A file's text; `undefined` where there is none. Throws `setup.unreadable`. */
export function readText(path: string): string | undefined {
  try {
    return readRegularFileSync(path, MAX_BYTES).bytes.toString();
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw new TagferryError(`${path} cannot be read (${codeOf(error)})`, {
      code: 'setup.unreadable',
      hint: 'Run `sudo tagferry setup`.',
      cause: error,
    });
  }
}

/**
 * Puts a file in place as a whole: temporary file, sync, rename, sync of the folder, so that a power cut leaves the old or the new
 * one. An existing file keeps its owner and, unless `mode` is narrower, its mode. Throws `setup.unwritable`.
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
    throw new TagferryError(`${path} cannot be written (${codeOf(error)})`, {
      code: 'setup.unwritable',
      hint: 'Use sudo, or name a folder of your own with --config.',
      cause: error,
    });
  }
}

/** What is shipped beside agent.env and is missing: rules and the schemas for editors. */
export function addShippedFiles(directory: string): void {
  if (!existsSync(join(directory, 'reactions.yaml'))) {
    const text = shippedText('reactions.yaml');
    writeWhole(join(directory, 'reactions.yaml'), text === '' ? 'reactions: []\n' : text, 0o644);
  }
  addShippedSchemas(directory);
}

/** The schemas for editors, where the folder has none. */
export function addShippedSchemas(directory: string): void {
  const schemas = new URL('schema/', SHIPPED_CONFIGURATION).pathname;
  if (!existsSync(join(directory, 'schema')) && existsSync(schemas)) {
    cpSync(schemas, join(directory, 'schema'), { recursive: true });
  }
}

/** What was renamed or removed in it is so after a blackout too. */
export function syncFolder(path: string): void {
  const folder = openSync(path, 'r');
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
