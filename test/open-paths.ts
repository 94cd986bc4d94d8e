import { readdirSync, readlinkSync } from 'node:fs';

/** Returns the paths of all files that this process has open. */
export function openPaths(): string[] {
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/self/fd/${fd}`)];
    } catch {
      // The descriptor of the listing itself is closed by now.
      return [];
    }
  });
}
