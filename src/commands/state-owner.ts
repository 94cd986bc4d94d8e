import { lchownSync, lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Gives files that root created in the state folder to the service. The service can put links there: they are changed themselves, never
 * what they point to, and files with several names are left alone.
 */
export function giveToOwner(stateDir: string): void {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = lstatSync(stateDir, { throwIfNoEntry: false }) ?? { uid: 0, gid: 0 };
  if (uid === 0) return;
  for (const name of readdirSync(stateDir, { recursive: true, encoding: 'utf8' })) {
    const path = join(stateDir, name);
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found?.uid === 0 && (found.isDirectory() || found.nlink === 1)) lchownSync(path, uid, gid);
  }
}
