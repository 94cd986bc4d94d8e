import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';

/** Creates a temporary folder. The caller deletes it. */
export function newFolder(prefix: string): string {
  return mkdtempSync(join(realpathSync(tmpdir()), prefix));
}

/** Returns a new temporary folder for each test of a file, under its real path. It is deleted after the test. */
export function freshFolder(prefix: string): { readonly path: string } {
  const folder = { path: '' };
  beforeEach(() => {
    folder.path = newFolder(prefix);
  });
  afterEach(() => rmSync(folder.path, { recursive: true, force: true }));
  return folder;
}
