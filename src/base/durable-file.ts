import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Small files that must be whole after a blackout: a temporary file, synced, renamed over the old one, and the folder
 * synced, without which the rename itself may be lost with the power. Readable by the owner alone. What a crash left
 * half-written is taken away by the next write: `ending` differs only where several processes write the same file.
 */
export function writeDurably(path: string, text: string, ending = '.tmp'): Promise<void> {
  const written = (writing.get(path) ?? Promise.resolve()).then(() => replace(path, text, `${path}${ending}`));
  // Writers of one file follow one another: they share the temporary one.
  const turn = written
    .catch(() => undefined)
    .finally(() => {
      if (writing.get(path) === turn) writing.delete(path);
    });
  writing.set(path, turn);
  return written;
}

const writing = new Map<string, Promise<void>>();

async function replace(path: string, text: string, temporary: string): Promise<void> {
  try {
    await rm(temporary, { force: true });
    const file = await open(temporary, 'wx', 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
    await syncFolder(dirname(path));
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => undefined);
    throw error;
  }
}

/** Removes the file; resolves when that is on disk. One that is not there is no error. */
export async function removeDurably(path: string): Promise<void> {
  await rm(path, { force: true });
  await syncFolder(dirname(path));
}

async function syncFolder(folder: string): Promise<void> {
  const directory = await open(folder, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
