import { statfsSync } from 'node:fs';
import { saysFull } from '../buffer/reserve.ts';
import { codeOf, messageOf, StoreError } from '../errors.ts';
import { whyNot } from './state-lock.ts';
import { STORE_UNAVAILABLE } from './store-messages.ts';

/** A verb on a stopped buffer is done by then; whoever holds the folder longer is a daemon. */
const HELD_PATIENCE_MS = 120_000;

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
  const failed = codes.find((code) => code === 'EIO' || code.startsWith('SQLITE_IOERR'));
  if (failed === undefined) return undefined;
  return unavailable(stateDir, `its disk fails (${failed})`, 'Look with `dmesg` what is wrong with the disk.', error);
}

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

/**
 * Attempts at opening one state folder, one after the other. Between two of them the folder is free, for verbs that read or
 * purge what is there: such a verb ends no wait. At the first attempt a folder that is held is another daemon's.
 */
export class Attempts {
  readonly #monotonicMs: () => number;
  #isWaiting = false;
  #heldSinceMs: number | undefined;

  constructor(monotonicMs: () => number) {
    this.#monotonicMs = monotonicMs;
  }

  /** What to fail with in place of `error`. */
  failed(stateDir: string, error: unknown): unknown {
    const refusal = diskRefusal(stateDir, error);
    if (!refusal) return this.#held(error) ?? error;
    this.#isWaiting = true;
    this.#heldSinceMs = undefined;
    return refusal;
  }

  #held(error: unknown): StoreError | undefined {
    if (!this.#isWaiting || codeOf(error) !== 'store.locked') return undefined;
    const nowMs = this.#monotonicMs();
    this.#heldSinceMs ??= nowMs;
    if (nowMs - this.#heldSinceMs >= HELD_PATIENCE_MS) return undefined;
    const hint = 'If it is another tagferry, stop one of the two.';
    return new StoreError(messageOf(error), { code: STORE_UNAVAILABLE, retryable: true, hint, cause: error });
  }
}
