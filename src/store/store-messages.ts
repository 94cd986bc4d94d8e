import { join } from 'node:path';
import { codeOf, messageOf, StoreError, TagferryError } from '../base/errors.ts';
import type { Salvage } from '../buffer/recovery/salvage.ts';

/** Where the buffer stands. */
export const bufferPath = (stateDir: string) => join(stateDir, 'buffer.db');

/** Code of an error at opening that another attempt may not meet: the daemon waits instead of ending. */
export const STORE_UNAVAILABLE = 'store.unavailable';

/** What crosses between the main thread and the store thread. */
export interface StoreCall {
  id: number;
  service: string;
  method: string;
  args: unknown[];
}

export type StoreAnswer = { id: number; result: unknown } | { id: number; failure: StoreFailure };

/** What the store thread tells without being asked. */
export interface StoreNotice {
  setAside: SetAside;
}

/** A store that was corrupt and stands aside now. */
export interface SetAside {
  store: string;
  file: string;
  /** What could be carried over: of the buffer by kind, of the inbox in rows. */
  salvaged: Salvage | { rows: number } | undefined;
}

export interface StoreFailure {
  message: string;
  code: string;
  retryable: boolean;
  hint: string | undefined;
}

/** An error of the store thread as plain data. What SQLite and the file system say becomes one of ours here. */
export function failureOf(error: unknown): StoreFailure {
  if (error instanceof TagferryError) {
    return { message: error.message, code: error.code, retryable: error.retryable, hint: error.hint };
  }
  const code = codeOf(error) ?? '';
  if (code.startsWith('SQLITE_CORRUPT') || code.startsWith('SQLITE_NOTADB')) {
    return { message: `the store is corrupt (${code})`, code: 'store.corrupt', retryable: false, hint: undefined };
  }
  if (code.startsWith('SQLITE_') || /^E[A-Z]+$/.test(code)) {
    const hint = /^E(ACCES|PERM)$/.test(code)
      ? 'Give STATE_DIR and everything in it to the user of the service: sudo chown -R.'
      : 'Free space on the file system of STATE_DIR, or look at its disk.';
    return { message: `the disk refuses writes (${code})`, code: 'store.unwritable', retryable: true, hint };
  }
  return { message: messageOf(error), code: 'store.failed', retryable: false, hint: undefined };
}

export function errorOf(failure: StoreFailure): StoreError {
  const { message, code, retryable, hint } = failure;
  return new StoreError(message, { code, retryable, ...(hint === undefined ? {} : { hint }) });
}
