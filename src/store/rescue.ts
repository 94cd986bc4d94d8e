/**
 * Replaces a database that is corrupt or has a bad sector while the agent is running. Runs in the store thread.
 *
 *   sound ──► corrupt ──► replaced by a copy of everything readable ──► opened ──► sound
 *                 │                                              │
 *                 └──── failed: calls are rejected, retried with increasing delay
 *
 * Invariants: only the remains of a failed attempt are deleted, and the old file stays in place until the new one is
 * complete. The first attempt is immediate; further attempts are at most ten minutes apart. Uncommitted state is lost,
 * as in a crash.
 */

import { basename } from 'node:path';
import { counted } from '../base/amounts.ts';
import type { Clock } from '../base/clock.ts';
import { saysCorrupt } from '../base/database.ts';
import { codeOf, messageOf, StoreError } from '../base/errors.ts';

export interface RescueWork {
  /** Path of the database. */
  path: string;
  /** Whether an error without a corruption code still requires a replacement, as for a bad sector. */
  isDamage?(error: unknown): boolean;
  /** Closes the old database if it is open, and replaces it with a copy of all readable data. */
  replace(): void;
  /** Opens the replacement. */
  open(): void;
}

/** Delay after the first attempt. It quadruples with each further attempt. */
const FIRST_DELAY_MS = 1_000;
const MAX_DELAY_MS = 10 * 60_000;
/** Time without an attempt after which the delay is reset. */
const CALM_MS = 3_600_000;
/** Number of attempts after which the hint asks the operator to act. */
const MANY_ATTEMPTS = 3;

export class Rescue {
  readonly #work: RescueWork;
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #isNeeded = false;
  /** Whether the replacement is in place but could not be opened yet. */
  #isReplaced = false;
  #attempts = 0;
  #lastMs = Number.NEGATIVE_INFINITY;
  #reason = '';

  constructor(work: RescueWork, clock: Pick<Clock, 'monotonicMs'>) {
    this.#work = work;
    this.#clock = clock;
  }

  /**
   * Performs `call` on the store. If the store is corrupt, replaces it and performs `call` once more. Throws
   * `store.corrupt` (retryable) while the store cannot be replaced.
   */
  perform<Result>(call: () => Result): Result {
    if (this.#isNeeded) this.#attempt();
    try {
      return call();
    } catch (error) {
      if (!saysCorrupt(error) && !this.#work.isDamage?.(error)) throw error;
      this.#reason = messageOf(error);
    }
    this.#isNeeded = true;
    this.#attempt();
    return call();
  }

  #attempt(): void {
    const nowMs = this.#clock.monotonicMs();
    const delayMs = this.#lastMs + delayAfter(this.#attempts) - nowMs;
    if (delayMs > 0) throw this.#refusal(delayMs);
    this.#attempts = nowMs - this.#lastMs > CALM_MS ? 1 : this.#attempts + 1;
    this.#lastMs = nowMs;
    try {
      if (!this.#isReplaced) this.#work.replace();
      this.#isReplaced = true;
      this.#work.open();
    } catch (error) {
      this.#reason = `${codeOf(error) ?? 'unknown'}: ${messageOf(error)}`;
      throw this.#refusal(delayAfter(this.#attempts));
    }
    this.#isReplaced = false;
    this.#isNeeded = false;
  }

  #refusal(delayMs: number): StoreError {
    const name = basename(this.#work.path);
    const times = counted(this.#attempts, 'attempt');
    return new StoreError(
      `${name} is corrupt, ${times} to replace it failed (${this.#reason}), retrying in ${Math.ceil(delayMs / 1000)} s`,
      { code: 'store.corrupt', retryable: true, hint: hintFor(name, this.#attempts) },
    );
  }
}

/** Returns the delay after an attempt, in milliseconds. */
function delayAfter(attempts: number): number {
  return attempts === 0 ? 0 : Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 4 ** (attempts - 1));
}

function hintFor(name: string, attempts: number): string {
  const files = `No data is deleted: the file stays in place, earlier ones are kept as ${name}.corrupt-*.`;
  return attempts < MANY_ATTEMPTS
    ? files
    : `The disk of STATE_DIR is failing. Check \`dmesg\`, stop tagferry, copy STATE_DIR to another disk, and start it there. ${files}`;
}
