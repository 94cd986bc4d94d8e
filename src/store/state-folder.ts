import { chmodSync, existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { codeOf, StoreError } from '../base/errors.ts';
import { linkRefusal } from '../base/own-file.ts';

const WRITABLE_BY_OTHERS = 0o022;
const STICKY = 0o1000;

/**
 * Creates the folder (mode 0700). If other users can write to an existing folder, restricts it to its owner and returns
 * the previous mode. Symbolic links in the folder are rejected, because writing `buffer.db` would overwrite their
 * target; the folder itself may be a link. Throws `store.folder_open` or `store.folder_link`.
 */
export function guardStateFolder(stateDir: string): string | undefined {
  makeFolder(stateDir);
  const { refusal, narrowsFrom } = inspectStateFolder(stateDir);
  if (refusal) throw refusal;
  if (narrowsFrom !== undefined) chmodSync(stateDir, 0o700);
  return narrowsFrom;
}

/** Recursive `mkdirSync` never returns on a file system that rejects new folders with `ENOENT`, such as `/proc`. */
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

/** Hint for restoring the owner of a state folder's files, usually after root created some of them. */
export function ownerHint(stateDir: string, user: string): string {
  return `Run \`sudo chown -R ${user}: ${stateDir}\`.`;
}

/** Returns the same hint if a file belongs to another user; otherwise `undefined`. */
export function foreignOwnerHint(path: string): string | undefined {
  try {
    return statSync(path).uid === process.geteuid?.() ? undefined : ownerHint(dirname(path), userInfo().username);
  } catch {
    return undefined;
  }
}

interface StateFolderReport {
  /** Reason why startup would fail. */
  refusal?: StoreError;
  /** Current mode that startup would restrict. */
  narrowsFrom?: string;
}

/** Returns how startup as this user would handle the folder, without changing the folder. Never throws. */
export function previewStateFolder(stateDir: string): StateFolderReport {
  try {
    return inspectStateFolder(stateDir);
  } catch {
    return {};
  }
}

function inspectStateFolder(stateDir: string): StateFolderReport {
  const stats = statSync(stateDir, { throwIfNoEntry: false });
  if (!stats) return {};
  const { mode, uid } = stats;
  const isOpen = (mode & WRITABLE_BY_OTHERS) !== 0;
  const narrowsFrom = (mode & 0o7777).toString(8).padStart(4, '0');
  // A sticky folder such as /tmp is shared on purpose.
  if (isOpen && ((mode & STICKY) !== 0 || uid !== process.geteuid?.())) {
    const refusal = new StoreError(`the state folder ${stateDir} is writable by others (mode ${narrowsFrom})`, {
      code: 'store.folder_open',
      hint: `Set STATE_DIR to a dedicated folder, or make this user its owner and run \`chmod 700 ${stateDir}\`.`,
    });
    return { refusal };
  }
  const link = readdirSync(stateDir, { withFileTypes: true }).find((entry) => entry.isSymbolicLink());
  const refusal = link && linkRefusal(join(stateDir, link.name));
  return { ...(refusal ? { refusal } : {}), ...(isOpen ? { narrowsFrom } : {}) };
}
