import { closeSync, constants, lstatSync, openSync, writeSync } from 'node:fs';
import { StoreError } from './errors.ts';

/** Opens a file of the state folder to be written, readable by its owner alone. Fails on a link (`ELOOP`). */
export function openOwnFile(path: string, mode: 'append' | 'truncate'): number {
  const { O_WRONLY, O_CREAT, O_NOFOLLOW, O_APPEND, O_TRUNC } = constants;
  return openSync(path, O_WRONLY | O_CREAT | O_NOFOLLOW | (mode === 'append' ? O_APPEND : O_TRUNC), 0o600);
}

/** Writes such a file whole. */
export function writeOwnFile(path: string, text: string): void {
  const file = openOwnFile(path, 'truncate');
  try {
    writeSync(file, text);
  } finally {
    closeSync(file);
  }
}

/** Throws `store.folder_link` where a link stands in the place of a file that a library opens: it would be followed. */
export function demandNoLink(path: string): void {
  const refusal = linkRefusal(path);
  if (refusal) throw refusal;
}

/** What `demandNoLink` throws. */
export function linkRefusal(path: string): StoreError | undefined {
  if (!lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink()) return undefined;
  return new StoreError(`${path} is a symbolic link, and files of the state folder are none`, {
    code: 'store.folder_link',
    hint: 'See who put it there; remove it, or move what it points to into its place.',
  });
}
