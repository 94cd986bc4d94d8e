import { saysUnreadable } from '../base/database.ts';
import { codeOf, StoreError } from '../base/errors.ts';

/** What the inbox throws, by a code that outlives the change of the driver: the listener answers 503 to each of them. */

export function inboxFull(maxBytes: number): StoreError {
  return new StoreError(`the inbox holds ${maxBytes} bytes of events that have not run`, {
    code: 'inbox.full',
    retryable: true,
    hint: 'Look with `tagferry events ls` which events wait, and why their reactions do not end.',
  });
}

function translateStoreError(error: unknown): StoreError {
  const cause = codeOf(error) ?? '';
  if (cause.startsWith('SQLITE_FULL')) {
    return new StoreError('the disk is full: the inbox cannot be written', {
      code: 'inbox.disk_full',
      retryable: true,
      hint: 'Free space on the file system of STATE_DIR.',
      cause: error,
    });
  }
  if (cause.startsWith('SQLITE_CORRUPT') || cause === 'SQLITE_NOTADB') {
    return new StoreError('the inbox is damaged', { code: 'inbox.corrupt', cause: error });
  }
  if (saysUnreadable(error)) {
    return new StoreError('the disk does not read a part of the inbox', {
      code: 'inbox.unreadable',
      retryable: true,
      cause: error,
    });
  }
  return new StoreError('the inbox cannot be used', { code: 'inbox.unavailable', retryable: true, cause: error });
}

/** What SQLite throws arrives as a `StoreError`. */
export function guarded<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw error instanceof StoreError ? error : translateStoreError(error);
  }
}
