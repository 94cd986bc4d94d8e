import { closeSync, constants, lstatSync, openSync, writeFileSync } from 'node:fs';
import { StoreError } from './errors.ts';

/** Opens a state file for writing, readable only by its owner. Fails if the path is a link (`ELOOP`). */
export function openOwnFile(path: string, mode: 'append' | 'truncate'): number {
  const { O_WRONLY, O_CREAT, O_NOFOLLOW, O_APPEND, O_TRUNC } = constants;
  return openSync(path, O_WRONLY | O_CREAT | O_NOFOLLOW | (mode === 'append' ? O_APPEND : O_TRUNC), 0o600);
}

/** Replaces the content of a state file that is opened with `openOwnFile`. */
export function writeOwnFile(path: string, text: string): void {
  const file = openOwnFile(path, 'truncate');
  try {
    writeFileSync(file, text);
  } finally {
    closeSync(file);
  }
}

/** Throws `store.folder_link` if the file is a symbolic link, which a library would follow. */
export function demandNoLink(path: string): void {
  const refusal = linkRefusal(path);
  if (refusal) throw refusal;
}

/** Returns the error that `demandNoLink` throws. */
export function linkRefusal(path: string): StoreError | undefined {
  if (!lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink()) return undefined;
  return new StoreError(`${path} is a symbolic link, which is not allowed in the state folder`, {
    code: 'store.folder_link',
    hint: 'Check who created the link. Remove it, or replace it with the file it points to.',
  });
}
