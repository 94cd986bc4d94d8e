import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Writes a small file that must be complete after a power cut: a temporary file is synced and renamed over the old one, then the folder is
 * synced, without which the rename itself may be lost. Only the owner can read the file unless `mode` says otherwise. The next write
 * removes what a crash left behind. `ending` differs only for files that several processes write.
 */
export function writeDurably(path: string, content: string | Uint8Array, ending = '.tmp', mode = 0o600): Promise<void> {
  const written = (writing.get(path) ?? Promise.resolve()).then(() => replace(path, content, `${path}${ending}`, mode));
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

async function replace(path: string, content: string | Uint8Array, temporary: string, mode: number): Promise<void> {
  try {
    await rm(temporary, { force: true });
    const file = await open(temporary, 'wx', 0o600);
    try {
      await file.writeFile(content);
      // Whatever the umask.
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
