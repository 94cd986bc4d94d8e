import { existsSync, readFileSync } from 'node:fs';

/**
 * Returns the complete lines of a file that another process is writing, or none if it does not exist. An incomplete
 * last line is ignored.
 */
export function wholeLines(path: string): string[] {
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1) : [];
}
