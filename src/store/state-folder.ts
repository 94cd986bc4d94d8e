import { chmodSync, existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { codeOf, StoreError } from '../base/errors.ts';
import { linkRefusal } from '../base/own-file.ts';

const WRITABLE_BY_OTHERS = 0o022;
const STICKY = 0o1000;

/**
 * Makes the folder (0700), or sees that nobody else can plant anything in it: one that others may write is narrowed to its owner,
 * and links in it are not followed but refused, for what is written to `buffer.db` would overwrite what a link points to. The
 * folder itself may be reached by a link. Gives the mode that it had where it was narrowed. Throws `store.folder_open` or
 * `store.folder_link`.
 */
export function guardStateFolder(stateDir: string): string | undefined {
  makeFolder(stateDir);
  const { refusal, narrowsFrom } = lookAtStateFolder(stateDir);
  if (refusal) throw refusal;
  if (narrowsFrom !== undefined) chmodSync(stateDir, 0o700);
  return narrowsFrom;
}

/** `mkdirSync` with `recursive` never returns where a file system refuses new folders with `ENOENT`, as `/proc` does. */
function makeFolder(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const code = codeOf(error);
    if (code === 'EEXIST' && statSync(path).isDirectory()) return;
    if (code !== 'ENOENT' || existsSync(dirname(path))) throw error;
    makeFolder(dirname(path));
    mkdirSync(path, { mode: 0o700 });
  }
}

/** What gives the files in a state folder back to their user, most often after root created some. */
export function ownerHint(stateDir: string, user: string): string {
  return `Run \`sudo chown -R ${user}: ${stateDir}\`.`;
}

/** The same if a file belongs to another user than this one; `undefined` otherwise. */
export function foreignOwnerHint(path: string): string | undefined {
  try {
    return statSync(path).uid === process.geteuid?.() ? undefined : ownerHint(dirname(path), userInfo().username);
  } catch {
    return undefined;
  }
}

interface StateFolderLook {
  /** Why a start would end. */
  refusal?: StoreError;
  /** The mode that a start would narrow. */
  narrowsFrom?: string;
}

/** What a start of this user would do about the folder, which is left as it is; nothing where it may not be looked at. Never throws. */
export function foreseeStateFolder(stateDir: string): StateFolderLook {
  try {
    return lookAtStateFolder(stateDir);
  } catch {
    return {};
  }
}

function lookAtStateFolder(stateDir: string): StateFolderLook {
  const stats = statSync(stateDir, { throwIfNoEntry: false });
  if (!stats) return {};
  const { mode, uid } = stats;
  const isOpen = (mode & WRITABLE_BY_OTHERS) !== 0;
  const narrowsFrom = (mode & 0o7777).toString(8).padStart(4, '0');
  // A sticky folder is shared on purpose, as /tmp is: it must not become ours.
  if (isOpen && ((mode & STICKY) !== 0 || uid !== process.geteuid?.())) {
    const refusal = new StoreError(`others may write in the state folder ${stateDir} (mode ${narrowsFrom})`, {
      code: 'store.folder_open',
      hint: `Name a folder of its own in STATE_DIR, or give it to this user alone: chown, then chmod 700 ${stateDir}`,
    });
    return { refusal };
  }
  const link = readdirSync(stateDir, { withFileTypes: true }).find((entry) => entry.isSymbolicLink());
  const refusal = link && linkRefusal(join(stateDir, link.name));
  return { ...(refusal ? { refusal } : {}), ...(isOpen ? { narrowsFrom } : {}) };
}
