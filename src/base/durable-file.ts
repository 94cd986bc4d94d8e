import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

export interface DurableOptions {
  /** Suffix of the temporary file; it must differ per process if several processes write the file. Default: `.tmp`. */
  ending?: string;
  /** File mode. Default: 0600, readable only by the owner. */
  mode?: number;
  /** Owner of the file, if this process may set it. */
  owner?: { uid: number; gid: number };
}

/**
 * Writes a small file atomically and durably: syncs a temporary file, renames it over the target and syncs the folder.
 * If a step before the rename fails, the target is unchanged. The next write removes files left behind by a crash.
 */
export function writeDurably(path: string, content: string | Uint8Array, options: DurableOptions = {}): Promise<void> {
  const written = (writing.get(path) ?? Promise.resolve()).then(() => replace(path, content, options));
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

async function replace(path: string, content: string | Uint8Array, options: DurableOptions): Promise<void> {
  const { ending = '.tmp', mode = 0o600, owner } = options;
  const temporary = `${path}${ending}`;
  try {
    await rm(temporary, { force: true });
    const file = await open(temporary, 'wx', 0o600);
    try {
      // Unlike `write`, `writeFile` continues after a partial write.
      await file.writeFile(content);
      if (owner && process.getuid?.() === 0) await file.chown(owner.uid, owner.gid);
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

/** Syncs a folder, so that renames and removals in it are durable. */
export async function syncFolder(folder: string): Promise<void> {
  const directory = await open(folder, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
