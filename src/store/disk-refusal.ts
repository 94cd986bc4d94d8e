import { statfsSync } from 'node:fs';
import { codeOf, StoreError } from '../base/errors.ts';
import { isDiskFull } from '../buffer/space/reserve.ts';
import { foreignOwnerHint } from './state-folder.ts';
import { writeError } from './state-lock.ts';
import { STORE_UNAVAILABLE } from './store-messages.ts';

/**
 * Returns `store.unavailable` if opening the stores failed because the disk currently rejects writes, and `undefined`
 * for failures that require intervention (permissions, a foreign file, another agent). Checks the codes of all causes.
 */
export function diskRefusal(stateDir: string, error: unknown): StoreError | undefined {
  const codes = codesOf(error);
  if (codes.includes('store.locked') || codes.includes('store.lock_garbled')) return undefined;
  if (codes.includes('EROFS') || writeError(stateDir) === 'EROFS') {
    const hint = 'Find the cause with `dmesg` and remount the file system read-write.';
    return unavailable(stateDir, 'its file system is read-only', hint, error);
  }
  if (codes.some((code) => isDiskFull({ code })) && !(codes.includes(SHARED_MEMORY) && hasRoom(stateDir))) {
    return unavailable(stateDir, 'its disk is full', 'Free up space on its file system.', error);
  }
  if (codes.includes(EUCLEAN)) {
    const hint = 'Check `dmesg`, and run fsck before mounting the file system again.';
    return unavailable(stateDir, 'its file system is damaged (EUCLEAN)', hint, error);
  }
  const failed = codes.find((code) => code === 'EIO' || code.startsWith('SQLITE_IOERR'));
  if (failed === undefined) return undefined;
  return unavailable(stateDir, `its disk failed (${failed})`, 'Find the cause with `dmesg`.', error);
}

/** "Structure needs cleaning"; Node has no name for this error. */
const EUCLEAN = 'Unknown system error -117';
/** SQLite reports this code if its shared memory cannot be created, for lack of space or any other reason. */
const SHARED_MEMORY = 'SQLITE_IOERR_SHMSIZE';
/** More than the shared memory and the first WAL pages require. */
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
  const message = `cannot write to the state folder ${stateDir}: ${why}`;
  return new StoreError(message, { code: STORE_UNAVAILABLE, retryable: true, hint, cause });
}

function codesOf(error: unknown): string[] {
  const codes: string[] = [];
  for (let each = error; each instanceof Error; each = each.cause) codes.push(codeOf(each) ?? '');
  return codes;
}

/** Translates the agent's failure to open the state folder; `store.unavailable` means that the agent retries. */
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

const NOT_OURS = new Set(['SQLITE_CANTOPEN', 'SQLITE_READONLY', 'EPERM', 'EACCES', 'EROFS']);

/** Returns `store.unwritable` for a database that exists and cannot be opened, and `undefined` for other failures. */
export function unopenable(path: string, cause: unknown): StoreError | undefined {
  const code = codeOf(cause) ?? '';
  if (!NOT_OURS.has(code)) return undefined;
  const hint =
    foreignOwnerHint(path) ??
    `Check that ${path} is a file and that its file system is writable: \`ls -ld ${path}\`, \`mount\`.`;
  const message = `cannot open ${path} for writing (${code})`;
  return new StoreError(message, { code: 'store.unwritable', retryable: true, hint, cause });
}
