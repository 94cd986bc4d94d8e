/** The files of a watched folder: which are there, and how they are opened. Links are not followed, what is no file is left alone. */
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf } from '../../base/errors.ts';

export interface FolderFile {
  name: string;
  size: number;
  mtimeMs: number;
  /** Tells a file from another one that took its name. */
  identity: string;
}

/** More names than these at once are looked at later: those that came first go first. */
const MAX_FILES = 10_000;

/** Files whose names fit, the oldest first. Rejects where the folder cannot be read. */
export async function filesOf(folder: string, fits: (name: string) => boolean): Promise<FolderFile[]> {
  const names = (await readdir(folder)).filter(fits).slice(0, MAX_FILES);
  const files: FolderFile[] = [];
  for (const name of names) {
    const file = await statOf(join(folder, name), name);
    if (file) files.push(file);
  }
  return files.sort((one, other) => one.mtimeMs - other.mtimeMs || (one.name < other.name ? -1 : 1));
}

async function statOf(path: string, name: string): Promise<FolderFile | undefined> {
  try {
    const found = await lstat(path);
    if (!found.isFile()) return undefined;
    return { name, size: found.size, mtimeMs: found.mtimeMs, identity: `${found.dev}:${found.ino}` };
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** Opens a file to be read; never waits for the other end of a pipe. */
export function openFile(path: string): Promise<FileHandle> {
  return open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
}

/** `*` stands for any letters, `?` for one. A name that begins with a dot is hidden, and of a file that is still being made. */
export function patternOf(pattern: string): (name: string) => boolean {
  const escaped = pattern
    .replaceAll(/[.+^${}()|[\]\\]/g, '\\$&')
    .replaceAll('*', '.*')
    .replaceAll('?', '.');
  const expression = new RegExp(`^${escaped}$`, 's');
  return (name) => !name.startsWith('.') && expression.test(name);
}
