import type { Clock } from '../../base/clock.ts';
import { announce } from '../../base/crash-points.ts';
import { messageOf } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { Repeats } from '../../base/repeats.ts';
import { fullJitterMs } from '../../base/retry.ts';
import type { Action } from '../../config/action-kinds.ts';
import type { Reaction } from '../../config/reactions.ts';
import { isValueEvent } from '../../contract/value-events.ts';
import type { ActionProgress, Attempt } from '../../store/event-journal.ts';
import type { ActionResult, Perform } from '../action-kind.ts';
import { kindOf, nameActions } from '../actions.ts';
import type { EventFacts } from '../event-facts.ts';
import { INTERRUPTED, type InboxEvent, type Journal, logJournalError } from '../journal.ts';
import {
  type AgeVerdict,
  byClock,
  clockFields,
  type JudgingTime,
  judgeAge,
  judgeValueEventAge,
  reasonAgainstWrite,
} from '../rules.ts';
import type { Cooldowns } from './cooldowns.ts';
import type { Outcome, Progress } from './progress.ts';
import { backoffAfter, isGivenUp, type RetryOrder } from './retries.ts';
import type { AttemptEnd, Targets } from './targets.ts';

/** Outcome of one run of a reaction. Skipped runs have the outcome `expired` or `cooldown`. */
export type ReactionOutcome = 'done' | 'expired' | 'cooldown' | 'failed' | 'dead' | 'waiting' | 'interrupted';

export interface RunResult {
  outcome: ReactionOutcome;
  /** Delay before the next run after `failed` or `waiting`, in milliseconds. */
  retryInMs?: number;
}

type Against = 'expired' | 'cooldown' | 'waiting';

export interface ReactionRunOptions {
  clock: Clock;
  logger: Logger;
  journal: Pick<Journal, 'record'>;
  cooldowns: Cooldowns;
  retryOrder: RetryOrder;
  targets: Targets;
  perform: Perform;
  /** Counts repeated failures, which are logged at debug level, with regular summaries. */
  repeats: Repeats;
  /** Returns the time used for `max_age`, or `undefined` while no clock is trusted. */
  now: () => JudgingTime | undefined;
  /** Maximum number of attempts for actions with limited attempts; see `isGivenUp`. */
  maxTries: number;
  /** Called with each outcome, for the metric `tagferry_reactions_total{name,outcome}`. */
  onOutcome: (reaction: string, outcome: 'done' | 'failed' | 'dead' | 'expired' | 'cooldown') => void;
}

/** Key under which failures to record a start are counted. */
const NOT_STARTED = 'start';
const RETRY_FLOOR_MS = 500;
const MAX_DETAIL = 500;
/** Minimum retry delay of a reaction that is waiting for an earlier event or a clock. */
const MIN_WAIT_MS = 2_000;
const MAX_WAIT_MS = 30_000;

/**
 * One run of a reaction for an event. Runs its actions in order; a failed action does not prevent the following
 * actions. Never throws.
 */
export class ReactionRun {
  readonly #options: ReactionRunOptions;
  readonly #event: InboxEvent;
  readonly #object: string;
  readonly #facts: EventFacts;
  readonly #progress: Progress;
  readonly #position: number;
  readonly #reaction: Reaction;
  readonly #signal: AbortSignal;

  constructor(
    options: ReactionRunOptions,
    open: { event: InboxEvent; facts: EventFacts; progress: Progress; positionOf(reaction: Reaction): number },
    reaction: Reaction,
    signal: AbortSignal,
  ) {
    this.#options = options;
    this.#event = open.event;
    this.#facts = open.facts;
    this.#object = open.facts.object;
    this.#progress = open.progress;
    this.#position = open.positionOf(reaction);
    this.#reaction = reaction;
    this.#signal = signal;
  }

  async run(): Promise<RunResult> {
    const outcome = await this.#runReaction();
    if (outcome === 'failed') return { outcome, retryInMs: this.#retryInMs() };
    return outcome === 'waiting' ? { outcome, retryInMs: this.#waitAgainMs() } : { outcome };
  }

  async #runReaction(): Promise<ReactionOutcome> {
    const { name } = this.#reaction;
    const { onOutcome } = this.#options;
    const age = this.#age();
    const reason = await this.#reasonAgainst(age);
    if (reason === 'waiting') return 'waiting';
    if (reason === 'expired' && this.#progress.hasBegun(name) && (await this.#endRetries(age))) {
      onOutcome(name, 'dead');
      return 'dead';
    }
    if (reason !== undefined) {
      await this.#recordEnd('', { outcome: reason, detail: byClock(age) }, 0);
      this.#log(reason === 'expired' ? 'warn' : 'info', `reaction.${reason}`, clockFields(age), SKIPPED[reason]);
      onOutcome(name, reason);
      return reason;
    }
    if (age.age === 'ahead' && !this.#progress.hasBegun(name)) {
      this.#log('warn', 'reaction.ahead', clockFields(age), 'event has a future timestamp, running its reaction');
    }
    const beganMs = this.#options.clock.monotonicMs();
    const isFirstRun = !this.#progress.hasEnded(name);
    await this.#endReplaced();
    const outcome = await this.#runActions();
    // Start the cooldown after the actions. Otherwise, after a crash in between, the cooldown would suppress the
    // repeated run.
    if (isFirstRun && this.#progress.hasBegun(name)) await this.#beginCooldown(beganMs);
    if (outcome === 'done' || outcome === 'failed' || outcome === 'dead') onOutcome(name, outcome);
    if (outcome === 'done') this.#log('info', 'reaction.done', {}, 'reaction completed');
    return outcome;
  }

  /** Stops retrying the actions of an event that is too old. Returns whether an action had failed before. */
  async #endRetries(age: AgeVerdict): Promise<boolean> {
    const { name: reaction, actions } = this.#reaction;
    const open = nameActions(actions).filter((name) => !this.#progress.isDone(reaction, name));
    if (!open.some((name) => this.#progress.tries(reaction, name) > 0)) return false;
    for (const name of open) {
      if (this.#progress.isGivenUp(reaction, name)) continue;
      const isUnfinished = this.#progress.isUnfinished(reaction, name);
      const latest = isUnfinished ? INTERRUPTED : this.#progress.lastDetail(reaction, name);
      await this.#giveUp(
        name,
        `${latest === undefined ? '' : `${latest}; `}event is older than max_age ${byClock(age)}`,
      );
    }
    return true;
  }

  /**
   * Stops retrying actions that are no longer configured, if the reaction has an action that was not attempted yet. For
   * example, a corrected command replaces the failed one.
   */
  async #endReplaced(): Promise<void> {
    const { name: reaction, actions } = this.#reaction;
    const names = nameActions(actions);
    if (names.every((name) => this.#progress.isAttempted(reaction, name))) return;
    const isReplaced = (one: ActionProgress) => one.reaction === reaction && !names.includes(one.action);
    for (const { action } of this.#progress.retriedActions().filter(isReplaced)) {
      await this.#recordEnd(action, { outcome: 'replaced' }, 0);
    }
  }

  #age(): AgeVerdict {
    const { eventType, replayed, occurredAtMs } = this.#event;
    const { clock } = this.#options;
    if (replayed) return { age: 'fresh' };
    if (isValueEvent(eventType)) {
      return judgeValueEventAge(this.#reaction.maxAgeMs, occurredAtMs, clock.wallMs(), this.#waitedMs());
    }
    return judgeAge(this.#reaction.maxAgeMs, occurredAtMs, this.#options.now(), this.#waitedMs());
  }

  #reasonAgainstWrite(): string | undefined {
    const { eventType, occurredAtMs, storedAgoMs = 0, isFromEarlierRun = false } = this.#event;
    const { clock, now } = this.#options;
    const event = { eventType, occurredAtMs, storedAgoMs: storedAgoMs + this.#waitedMs(), isFromEarlierRun };
    return reasonAgainstWrite(this.#reaction.maxAgeMs, event, clock.wallMs(), now());
  }

  async #reasonAgainst({ age }: AgeVerdict): Promise<Against | undefined> {
    const { name, cooldownMs } = this.#reaction;
    if (this.#event.replayed) return undefined;
    if (age === 'too-old') return 'expired';
    if (age === 'unknown') return 'waiting';
    if (this.#progress.hasBegun(name)) return undefined;
    try {
      return (await this.#options.cooldowns.isActive(name, this.#object, cooldownMs)) ? 'cooldown' : undefined;
    } catch (error) {
      // A disk error must not prevent the reaction.
      this.#logJournalError(error);
      return undefined;
    }
  }

  async #runActions(): Promise<ReactionOutcome> {
    const { actions } = this.#reaction;
    const names = nameActions(actions);
    let worst: ReactionOutcome = 'done';
    for (const [index, action] of actions.entries()) {
      const outcome = await this.#runAction(action, names[index]!, index);
      worst = worseOf(worst, outcome);
      if (outcome === 'interrupted') break;
    }
    return worst;
  }

  async #runAction(action: Action, name: string, index: number): Promise<ReactionOutcome> {
    const { clock, repeats, retryOrder, targets } = this.#options;
    const { name: reaction } = this.#reaction;
    const { id } = this.#event;
    if (this.#progress.isDone(reaction, name)) return 'done';
    if (this.#progress.isGivenUp(reaction, name)) return 'dead';
    if (retryOrder.isBlocked(reaction, this.#object, name, id)) return 'waiting';
    if (this.#signal.aborted) return 'interrupted';
    if (this.#progress.isUnfinished(reaction, name)) return this.#afterUnfinished(action, name);
    if (this.#isSpent(action, name)) return this.#giveUp(name, this.#progress.lastDetail(reaction, name));
    const place = await targets.enter(action, reaction, this.#signal);
    if (!place) {
      retryOrder.block(reaction, this.#object, name, id);
      return this.#signal.aborted ? 'interrupted' : 'waiting';
    }
    if (kindOf(action).recordsStart && !(await this.#recordStart(name))) {
      place.leave('interrupted');
      return 'waiting';
    }
    const startedMs = clock.monotonicMs();
    const context = {
      reaction,
      event: this.#facts,
      position: [this.#position, index] as const,
      reasonAgainstWrite: () => this.#reasonAgainstWrite(),
      signal: this.#signal,
    };
    announce('action.before');
    const result = await this.#options
      .perform(action, context)
      .catch((error): ActionResult => ({ outcome: 'failed', detail: messageOf(error) }));
    place.leave(endOf(result));
    const tookMs = clock.monotonicMs() - startedMs;
    announce('action.after');
    await this.#recordEnd(name, result, tookMs);
    if (result.outcome === 'interrupted') return 'interrupted';
    if (result.outcome === 'failed' && result.isFinal) return this.#giveUp(name, result.detail);
    if (result.outcome === 'failed') return this.#afterFailure(action, name, result.detail);
    repeats.end(repeatKey(this.#reaction, name));
    const fields = { action: name, duration_ms: Math.round(tookMs) };
    this.#log('debug', 'reaction.action', fields, 'action completed');
    retryOrder.unblock(reaction, this.#object, name, id);
    return 'done';
  }

  /**
   * Records the start of a command. Returns whether the record is on disk. Otherwise, the command must not run, because
   * a command that crashes the gateway would do so after every startup.
   */
  async #recordStart(name: string): Promise<boolean> {
    const { clock, repeats, retryOrder } = this.#options;
    const begun = this.#progress.beginning(this.#reaction.name, name);
    if (await this.#record(begun)) {
      this.#progress.begin(begun);
      repeats.end(NOT_STARTED);
      return true;
    }
    retryOrder.block(this.#reaction.name, this.#object, name, this.#event.id);
    const count = repeats.note(NOT_STARTED, clock.monotonicMs());
    const level = count === undefined ? 'debug' : 'error';
    this.#log(
      level,
      'reaction.not_started',
      { action: name, count },
      'failed to record the start of a command, postponing the command',
    );
    return false;
  }

  /** Handles an action that was running when the gateway stopped. This attempt counts as a failure. */
  async #afterUnfinished(action: Action, name: string): Promise<ReactionOutcome> {
    await this.#recordEnd(name, { outcome: 'unfinished', detail: INTERRUPTED }, 0);
    return this.#afterFailure(action, name, INTERRUPTED);
  }

  async #afterFailure(action: Action, name: string, detail: string | undefined): Promise<ReactionOutcome> {
    const { clock, repeats, retryOrder } = this.#options;
    const { name: reaction } = this.#reaction;
    if (this.#isSpent(action, name)) return this.#giveUp(name, detail);
    retryOrder.block(reaction, this.#object, name, this.#event.id);
    const count = repeats.note(repeatKey(this.#reaction, name), clock.monotonicMs());
    const fields = { action: name, error: detail, tries: this.#progress.tries(reaction, name), count };
    this.#log(count === undefined ? 'debug' : 'warn', 'reaction.failed', fields, 'action failed, retrying');
    return 'failed';
  }

  /** Returns whether no attempts are left, counting attempts before a restart. */
  #isSpent(action: Action, name: string): boolean {
    const tries = this.#progress.tries(this.#reaction.name, name);
    const { maxTries } = this.#options;
    const replayed = this.#event.replayed ?? false;
    return tries > 0 && isGivenUp(action, this.#reaction, { tries, maxTries, waitedMs: this.#waitedMs(), replayed });
  }

  async #giveUp(name: string, detail: string | undefined): Promise<'dead'> {
    const { name: reaction } = this.#reaction;
    await this.#recordEnd(name, { outcome: 'dead', detail }, 0);
    this.#options.retryOrder.unblock(reaction, this.#object, name, this.#event.id);
    const fields = { action: name, error: detail, tries: this.#progress.tries(reaction, name) };
    const message = 'action failed permanently; `tagferry events replay` runs it again';
    this.#log('error', 'reaction.dead', fields, message);
    return 'dead';
  }

  #waitedMs(): number {
    return this.#options.clock.monotonicMs() - this.#progress.firstSeenMs;
  }

  #retryInMs(): number {
    const { name: reaction, actions } = this.#reaction;
    const tries = nameActions(actions)
      .filter((name) => !this.#progress.isDone(reaction, name) && !this.#progress.isGivenUp(reaction, name))
      .map((name) => this.#progress.tries(reaction, name))
      .filter((count) => count > 0);
    const attempt = tries.length > 0 ? Math.min(...tries) - 1 : 0;
    return fullJitterMs(attempt, backoffAfter(this.#waitedMs()), () => this.#options.clock.random(), RETRY_FLOOR_MS);
  }

  /** Returns a delay that increases with the time waited, because each attempt requires two commits. */
  #waitAgainMs(): number {
    return Math.min(MAX_WAIT_MS, MIN_WAIT_MS + this.#waitedMs() / 4);
  }

  async #recordEnd(action: string, result: { outcome: Outcome; detail?: string | undefined }, tookMs: number) {
    const { name: reaction } = this.#reaction;
    const detail = result.detail?.slice(0, MAX_DETAIL);
    const attempt: Attempt = {
      reaction,
      action,
      outcome: result.outcome,
      ...(detail === undefined ? {} : { detail }),
      durationMs: Math.round(tookMs),
      atMs: this.#options.clock.wallMs(),
    };
    await this.#record(this.#progress.end(reaction, action, result.outcome, detail), attempt);
  }

  /** Returns whether the record is on disk. If not, the action runs again after a crash. */
  async #record(progress: ActionProgress | undefined, attempt?: Attempt): Promise<boolean> {
    try {
      await this.#options.journal.record(this.#event.id, progress, attempt);
      return true;
    } catch (error) {
      this.#logJournalError(error);
      return false;
    }
  }

  async #beginCooldown(beganMs: number): Promise<void> {
    const { name, cooldownMs } = this.#reaction;
    await this.#options.cooldowns
      .begin(name, this.#object, cooldownMs, beganMs)
      .catch((error) => this.#logJournalError(error));
  }

  #logJournalError(error: unknown): void {
    const { id: inboxId, digest } = this.#event;
    logJournalError(error, { reaction: this.#reaction.name, inboxId, digest }, this.#options);
  }

  #log(level: 'debug' | 'info' | 'warn' | 'error', event: string, fields: object, message: string): void {
    const { id: inboxId, digest, eventType } = this.#event;
    const about = { event, reaction: this.#reaction.name, inboxId, digest, eventType, object: this.#object };
    this.#options.logger[level]({ ...about, ...fields }, message);
  }
}

function endOf({ outcome, timedOut }: ActionResult): AttemptEnd {
  if (outcome === 'interrupted') return 'interrupted';
  return timedOut ? 'timeout' : 'responded';
}

function repeatKey(reaction: Reaction, action: string): string {
  return `action:${reaction.name}:${action}`;
}

const SKIPPED = {
  expired: 'reaction skipped, event is older than max_age',
  cooldown: 'reaction skipped, cooldown is active',
} as const;

/** Outcomes in order of increasing precedence. */
const ORDER: readonly ReactionOutcome[] = ['done', 'dead', 'waiting', 'failed', 'interrupted'];

function worseOf(one: ReactionOutcome, other: ReactionOutcome): ReactionOutcome {
  return ORDER.indexOf(one) >= ORDER.indexOf(other) ? one : other;
}
