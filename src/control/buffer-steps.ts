/**
 * An operator's work on the buffer, a step at a time: between steps the store takes in, posts and flushes as ever. What a
 * step did stands in memory at once and on disk with a commit, and counts only then.
 */

import type { Clock } from '../base/clock.ts';
import { StoreError } from '../base/errors.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import type { CommittedBuffer } from './operated-parts.ts';

/** A commit after so many steps: deletions by the thousand would make the WAL large. */
const STEPS_A_COMMIT = 4;
/** With less free than this each step is committed, and small: its WAL must fit into what the reserve gives. */
const ROOMY_BYTES = 64 * 1024 * 1024;
const SMALL_STEP_SEGMENTS = 100;
/** How often a commit that failed is tried here, and how long apart; a daemon goes on trying after that. */
const COMMIT_TRIES = 4;
const COMMIT_PAUSE_MS = 1_000;

export interface StepsOutcome {
  /** On disk. */
  values: number;
  /** Done in memory; the commit failed, and the next one takes them along. */
  waiting: number;
  /** Why it ended early. */
  failure?: StoreError;
}

export interface Step<Cursor> {
  cursor: Cursor | undefined;
  /** As large as a step may be; `undefined` where there is room. */
  segments: number | undefined;
}

/** Repeats steps until a whole pass brings nothing more, committing now and then. */
export async function inSteps<Cursor>(
  { flow, clock, signal }: { flow: CommittedBuffer; clock: Clock; signal: AbortSignal },
  step: (given: Step<Cursor>) => Promise<{ values: number; next: Cursor | undefined; facts: StoreFacts }>,
): Promise<StepsOutcome> {
  let done = 0;
  let waiting = 0;
  const isTight = () => flow.facts.short || flow.facts.disk.freeBytes < ROOMY_BYTES;

  /** Gives the error where it cannot be. */
  async function commit(): Promise<StoreError | undefined> {
    for (let tries = 1; ; tries++) {
      try {
        await flow.committer.flush();
        done += waiting;
        waiting = 0;
        return undefined;
      } catch (error) {
        if (!(error instanceof StoreError)) throw error;
        if (tries === COMMIT_TRIES) return error;
        await clock.sleep(COMMIT_PAUSE_MS, signal);
      }
    }
  }

  // What waits from before would make the first commit large.
  if (isTight()) {
    const failure = await commit();
    if (failure) return { values: done, waiting, failure };
  }
  for (let before = -1; before !== done; ) {
    before = done;
    let cursor: Cursor | undefined;
    let steps = 0;
    do {
      signal.throwIfAborted();
      const { values, next, facts } = await step({ cursor, segments: isTight() ? SMALL_STEP_SEGMENTS : undefined });
      flow.committer.note(facts);
      waiting += values;
      cursor = next;
      const isDue = isTight() || ++steps % STEPS_A_COMMIT === 0 || cursor === undefined;
      const failure = isDue && waiting > 0 ? await commit() : undefined;
      if (failure) return { values: done, waiting, failure };
    } while (cursor !== undefined);
  }
  return { values: done, waiting };
}
