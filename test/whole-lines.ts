import { existsSync, readFileSync } from 'node:fs';

/**
 * The lines of a file that another process writes meanwhile; none where it is not there. Of a line that is being written, and of a file that was
 * just made, nothing is given: a program makes its file before it writes into it.
 */
export function wholeLines(path: string): string[] {
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1) : [];
}
