import { realpathSync, rmSync } from 'node:fs';
import { afterEach, beforeEach } from 'vitest';
import { memoryFolder } from './memory-folder.ts';

/** A folder of its own in memory for each test of a file, under the name that the kernel has for it; gone after what the test closes. */
export function freshFolder(prefix: string): { readonly path: string } {
  const folder = { path: '' };
  beforeEach(() => {
    folder.path = realpathSync(memoryFolder(prefix));
  });
  afterEach(() => rmSync(folder.path, { recursive: true, force: true }));
  return folder;
}
