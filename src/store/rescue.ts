/**
 * A database that is found corrupt, or that has a bad sector, while the agent runs is begun anew, as at a start. In the store thread.
 *
 *   sound ──► found corrupt ──► another takes its place, with what reads (`base/replace-database.ts`) ──► opened ──► sound
 *                  │                                        │
 *                  └──── fails: the store refuses calls, and is tried again at a slower and slower pace
 *
 * Invariants: nothing is deleted but what a try that failed had begun to make; the old file stays in its place until another is
 * whole. However often a card garbles what is written, there is a first rescue at once, and then one in ten minutes at most. What
 * was pending in memory is forgotten, as by a crash; a crash in between leaves the old file, or the new one.
 */

import { basename } from 'node:path';
import { counted } from '../base/amounts.ts';
import type { Clock } from '../base/clock.ts';
import { saysCorrupt } from '../base/database.ts';
import { codeOf, messageOf, StoreError } from '../base/errors.ts';

export interface RescueWork {
  /** Of the database. */
  path: string;
  /** Whether an error that names no corruption is one that a rescue mends all the same: a bad sector. */
  isDamage?(error: unknown): boolean;
  /** Closes the old one, if it is open still, and puts another in its place, with what reads. */
  replace(): void;
  /** Opens what stands in its place now. */
  open(): void;
}

/** After the first try, and four times as long after each that follows it before a calm. */
const FIRST_GAP_MS = 1_000;
const MAX_GAP_MS = 10 * 60_000;
/** So long without another: the next is a first one. */
const CALM_MS = 3_600_000;
/** From here on somebody must know. */
const MANY_TRIES = 3;

export class Rescue {
  readonly #work: RescueWork;
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #isNeeded = false;
  /** Another stands in its place, and could not be opened yet. */
  #isReplaced = false;
  #tries = 0;
  #lastMs = Number.NEGATIVE_INFINITY;
  #words = '';

  constructor(work: RescueWork, clock: Pick<Clock, 'monotonicMs'>) {
    this.#work = work;
    this.#clock = clock;
  }

  /**
   * Does `call` on the store; where that finds it corrupt it is rescued and asked once more.
   * Throws `store.corrupt`, which can be retried, while a rescue is due and not possible yet.
   */
  perform<Result>(call: () => Result): Result {
    if (this.#isNeeded) this.#try();
    try {
      return call();
    } catch (error) {
      if (!saysCorrupt(error) && !this.#work.isDamage?.(error)) throw error;
      this.#words = messageOf(error);
    }
    this.#isNeeded = true;
    this.#try();
    return call();
  }

  #try(): void {
    const nowMs = this.#clock.monotonicMs();
    const restMs = this.#lastMs + gapAfter(this.#tries) - nowMs;
    if (restMs > 0) throw this.#refusal(restMs);
    this.#tries = nowMs - this.#lastMs > CALM_MS ? 1 : this.#tries + 1;
    this.#lastMs = nowMs;
    try {
      if (!this.#isReplaced) this.#work.replace();
      this.#isReplaced = true;
      this.#work.open();
    } catch (error) {
      this.#words = `${codeOf(error) ?? 'unknown'}: ${messageOf(error)}`;
      throw this.#refusal(gapAfter(this.#tries));
    }
    this.#isReplaced = false;
    this.#isNeeded = false;
  }

  #refusal(restMs: number): StoreError {
    const name = basename(this.#work.path);
    const times = counted(this.#tries, 'rescue');
    return new StoreError(
      `${name} is corrupt, ${times} did not help (${this.#words}); the next in ${Math.ceil(restMs / 1000)} s`,
      { code: 'store.corrupt', retryable: true, hint: hintFor(name, this.#tries) },
    );
  }
}

/** How long after a try the next may come. */
export function gapAfter(tries: number): number {
  return tries === 0 ? 0 : Math.min(MAX_GAP_MS, FIRST_GAP_MS * 4 ** (tries - 1));
}

function hintFor(name: string, tries: number): string {
  const files = `Nothing is deleted: it stays, and what was set aside stands beside it as ${name}.corrupt-*.`;
  return tries < MANY_TRIES
    ? files
    : `The disk of STATE_DIR garbles or refuses what is written. Look at it with \`dmesg\`, stop tagferry, copy STATE_DIR whole to a sound disk, and start it there. ${files}`;
}
