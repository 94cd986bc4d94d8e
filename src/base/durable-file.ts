import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Writes a small file atomically and durably: syncs a temporary file, renames it over the target and syncs the folder.
 * The file is readable only by its owner unless `mode` is set. The next write removes files left behind by a crash.
 * `ending` is the suffix of the temporary file; it must differ per process if several processes write the file.
 */
export function writeDurably(path: string, content: string | Uint8Array, ending = '.tmp', mode = 0o600): Promise<void> {
  const written = (writing.get(path) ?? Promise.resolve()).then(() => replace(path, content, `${path}${ending}`, mode));
  // Serialize writes to the same file, because they share the temporary file.
  const turn = written
    .catch(() => undefined)
    .finally(() => {
      if (writing.get(path) === turn) writing.delete(path);
    });
  writing.set(path, turn);
  return written;
}

const writing = new Map<string, Promise<void>>();

async function replace(path: string, content: string | Uint8Array, temporary: string, mode: number): Promise<void> {
  try {
    await rm(temporary, { force: true });
    const file = await open(temporary, 'wx', 0o600);
    try {
      await file.writeFile(content);
      // Override the umask.
      await file.chmod(mode);
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

/** Deletes the file and syncs the folder. A missing file is not an error. */
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
