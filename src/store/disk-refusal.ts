import { statfsSync } from 'node:fs';
import { codeOf, StoreError } from '../base/errors.ts';
import { saysFull } from '../buffer/space/reserve.ts';
import { whyNot } from './state-lock.ts';
import { STORE_UNAVAILABLE } from './store-messages.ts';

/**
 * What an attempt at opening the stores failed with, where the disk does not take writes now: `store.unavailable`, which
 * names the folder. `undefined` for what only a person can mend: permissions, another file in the place of ours, another
 * daemon. The codes of all causes count, for the stores wrap what SQLite says in words of their own.
 */
export function diskRefusal(stateDir: string, error: unknown): StoreError | undefined {
  const codes = codesOf(error);
  if (codes.includes('store.locked') || codes.includes('store.lock_garbled')) return undefined;
  if (codes.includes('EROFS') || whyNot(stateDir) === 'EROFS') {
    const hint = 'Look with `dmesg` why it is, and mount it to be written.';
    return unavailable(stateDir, 'its file system is read-only', hint, error);
  }
  if (codes.some((code) => saysFull({ code })) && !(codes.includes(SHARED_MEMORY) && hasRoom(stateDir))) {
    return unavailable(stateDir, 'its disk is full', 'Free space on its file system.', error);
  }
  if (codes.includes(EUCLEAN)) {
    const hint = 'Look with `dmesg` what it says, and have the file system checked (fsck) before it is mounted again.';
    return unavailable(stateDir, 'its file system is damaged (EUCLEAN)', hint, error);
  }
  const failed = codes.find((code) => code === 'EIO' || code.startsWith('SQLITE_IOERR'));
  if (failed === undefined) return undefined;
  return unavailable(stateDir, `its disk fails (${failed})`, 'Look with `dmesg` what is wrong with the disk.', error);
}

/** "Structure needs cleaning", for which Node has no name. */
const EUCLEAN = 'Unknown system error -117';
/** What SQLite says where its shared memory cannot be made, for want of room or for any other reason. */
const SHARED_MEMORY = 'SQLITE_IOERR_SHMSIZE';
/** More than the shared memory and the first pages of a WAL take. */
const ROOM_BYTES = 1 << 20;

function hasRoom(stateDir: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(stateDir);
    return bavail * bsize >= ROOM_BYTES;
  } catch {
    return false;
  }
}

function unavailable(stateDir: string, why: string, hint: string, cause: unknown): StoreError {
  const message = `the state folder ${stateDir} cannot be written: ${why}`;
  return new StoreError(message, { code: STORE_UNAVAILABLE, retryable: true, hint, cause });
}

function codesOf(error: unknown): string[] {
  const codes: string[] = [];
  for (let each = error; each instanceof Error; each = each.cause) codes.push(codeOf(each) ?? '');
  return codes;
}

/** What an attempt of the daemon at opening a state folder failed with, in words that say whether another may not meet it. */
export function failureOfAttempt(stateDir: string, error: unknown): unknown {
  if (codeOf(error) !== 'store.held') return diskRefusal(stateDir, error) ?? error;
  const { message, hint } = error as StoreError;
  return new StoreError(message, {
    code: STORE_UNAVAILABLE,
    retryable: true,
    ...(hint === undefined ? {} : { hint }),
    cause: error,
  });
}
