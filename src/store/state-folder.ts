import { chmodSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { StoreError } from '../base/errors.ts';
import { demandNoLink } from '../base/own-file.ts';

const WRITABLE_BY_OTHERS = 0o022;
const STICKY = 0o1000;

/**
 * Makes the folder (0700), or sees that nobody else can plant anything in it: one that others may write is narrowed to its owner,
 * and links in it are not followed but refused, for what is written to `buffer.db` would overwrite what a link points to. The
 * folder itself may be reached by a link. Gives the mode that it had where it was narrowed. Throws `store.folder_open` or
 * `store.folder_link`.
 */
export function guardStateFolder(stateDir: string): string | undefined {
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  const narrowedFrom = narrow(stateDir);
  const link = readdirSync(stateDir, { withFileTypes: true }).find((entry) => entry.isSymbolicLink());
  if (link) demandNoLink(join(stateDir, link.name));
  return narrowedFrom;
}

function narrow(stateDir: string): string | undefined {
  const { mode, uid } = statSync(stateDir);
  if ((mode & WRITABLE_BY_OTHERS) === 0) return undefined;
  const text = (mode & 0o7777).toString(8).padStart(4, '0');
  // A sticky folder is shared on purpose, as /tmp is: it must not become ours.
  if ((mode & STICKY) !== 0 || uid !== process.geteuid?.()) {
    throw new StoreError(`others may write in the state folder ${stateDir} (mode ${text})`, {
      code: 'store.folder_open',
      hint: `Name a folder of its own in STATE_DIR, or give it to this user alone: chown, then chmod 700 ${stateDir}`,
    });
  }
  chmodSync(stateDir, 0o700);
  return text;
}
