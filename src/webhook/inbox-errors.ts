import { saysUnreadable } from '../base/database.ts';
import { codeOf, StoreError } from '../base/errors.ts';

export function inboxFull(maxBytes: number): StoreError {
  return new StoreError(`inbox is full: ${maxBytes} bytes of events are still pending`, {
    code: 'inbox.full',
    retryable: true,
    hint: 'Run `tagferry events ls` to find the events whose reactions never finish.',
  });
}

function translateStoreError(error: unknown): StoreError {
  const cause = codeOf(error) ?? '';
  if (cause.startsWith('SQLITE_FULL')) {
    return new StoreError('cannot write the inbox: the disk is full', {
      code: 'inbox.disk_full',
      retryable: true,
      hint: 'Free up space on the file system of STATE_DIR.',
      cause: error,
    });
  }
  if (cause.startsWith('SQLITE_CORRUPT') || cause === 'SQLITE_NOTADB') {
    return new StoreError('inbox is damaged', { code: 'inbox.corrupt', cause: error });
  }
  if (saysUnreadable(error)) {
    return new StoreError('cannot read part of the inbox: disk error', {
      code: 'inbox.unreadable',
      retryable: true,
      cause: error,
    });
  }
  return new StoreError('inbox is not available', { code: 'inbox.unavailable', retryable: true, cause: error });
}

/** Runs `work` and converts SQLite errors to `StoreError`. */
export function guarded<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw error instanceof StoreError ? error : translateStoreError(error);
  }
}
