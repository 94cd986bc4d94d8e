import { realpathSync, rmSync } from 'node:fs';
import { afterEach, beforeEach } from 'vitest';
import { memoryFolder } from './memory-folder.ts';

/** Returns a new in-memory folder for each test of a file, under its real path. It is deleted after the test. */
export function freshFolder(prefix: string): { readonly path: string } {
  const folder = { path: '' };
  beforeEach(() => {
    folder.path = realpathSync(memoryFolder(prefix));
  });
  afterEach(() => rmSync(folder.path, { recursive: true, force: true }));
  return folder;
}
