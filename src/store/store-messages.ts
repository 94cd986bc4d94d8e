import { join } from 'node:path';
import { codeOf, messageOf, StoreError, TagferryError } from '../base/errors.ts';
import type { Salvage } from '../buffer/recovery/salvage.ts';

export const bufferPath = (stateDir: string) => join(stateDir, 'buffer.db');

/** Error code for failures at startup that a retry can resolve. */
export const STORE_UNAVAILABLE = 'store.unavailable';

/** Messages between the main thread and the store thread. */
export interface StoreCall {
  id: number;
  service: string;
  method: string;
  args: unknown[];
}

export type StoreAnswer = { id: number; result: unknown } | { id: number; failure: StoreFailure };

/** Unsolicited message from the store thread. */
export interface StoreNotice {
  setAside: SetAside;
}

/** A corrupt database that was set aside. */
export interface SetAside {
  store: string;
  file: string;
  /** Content copied into the replacement: buffer values or inbox rows. */
  salvaged: Salvage | { rows: number } | undefined;
}

export interface StoreFailure {
  message: string;
  code: string;
  retryable: boolean;
  hint: string | undefined;
}

/** Returns an error as plain data; SQLite and file system errors are converted to store errors. */
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
      ? 'Make the service user the owner of STATE_DIR: sudo chown -R.'
      : 'Free up space on the file system of STATE_DIR, or check its disk with `dmesg`.';
    return { message: `the disk rejects writes (${code})`, code: 'store.unwritable', retryable: true, hint };
  }
  return { message: messageOf(error), code: 'store.failed', retryable: false, hint: undefined };
}

export function errorOf(failure: StoreFailure): StoreError {
  const { message, code, retryable, hint } = failure;
  return new StoreError(message, { code, retryable, ...(hint === undefined ? {} : { hint }) });
}
