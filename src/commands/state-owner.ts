import { chownSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** What root made anew in the service's folder must still open for the service. */
export function giveToOwner(stateDir: string): void {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = statSync(stateDir, { throwIfNoEntry: false }) ?? { uid: 0, gid: 0 };
  if (uid === 0) return;
  for (const name of readdirSync(stateDir, { recursive: true, encoding: 'utf8' })) {
    const path = join(stateDir, name);
    if (statSync(path).uid === 0) chownSync(path, uid, gid);
  }
}
