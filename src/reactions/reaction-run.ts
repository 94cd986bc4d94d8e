import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import type { Reaction } from '../config/reactions.ts';
import { type ActionResult, nameActions, type Perform } from './action.ts';
import type { Cooldowns } from './cooldowns.ts';
import type { EventFacts } from './event-facts.ts';
import { backoffAfter, isGivenUp } from './giving-up.ts';
import { type ActionProgress, type Attempt, type InboxEvent, type Journal, sayJournal } from './journal.ts';
import type { Outcome, Progress } from './progress.ts';
import type { RetryOrder } from './retry-order.ts';
import { type AgeVerdict, byClock, clockFields, type JudgingTime, judgeAge } from './rules.ts';
import type { AttemptEnd, Targets } from './targets.ts';

/** The outcome of one run of a reaction; skipped ones are `expired` or `cooldown`. */
export type ReactionOutcome = 'done' | 'expired' | 'cooldown' | 'failed' | 'dead' | 'waiting' | 'interrupted';

export interface RunResult {
  outcome: ReactionOutcome;
  /** After `failed` or `waiting`, in milliseconds. */
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
  /** Failures of one action over many events, and of the journal: each is said now and then, the others at debug. */
  repeats: Repeats;
  /** The time to judge age by; `undefined` while none can be trusted. See `judgeAge`. */
  now: () => JudgingTime | undefined;
  /** How often an action is tried that is given up by its count: see `isGivenUp`. */
  maxTries: number;
  /** Outcomes, for `tagferry_reactions_total{name,outcome}`. */
  onOutcome: (reaction: string, outcome: 'done' | 'failed' | 'dead' | 'expired' | 'cooldown') => void;
}

/** Starts that the journal did not take, counted until it takes one. */
const NOT_STARTED = 'start';
const RETRY_FLOOR_MS = 500;
const MAX_DETAIL = 500;
/** How soon a reaction looks again whether an earlier event's retry is over, or whether there is a clock. */
const LOOK_AGAIN_MS = 2_000;
const MAX_LOOK_MS = 30_000;

/** Runs one reaction of one event once: its actions in their order; a failure does not stop the next one. Never throws. */
export class ReactionRun {
  readonly #options: ReactionRunOptions;
  readonly #event: InboxEvent;
  readonly #facts: EventFacts;
  readonly #progress: Progress;
  readonly #signal: AbortSignal;

  constructor(
    options: ReactionRunOptions,
    event: InboxEvent,
    facts: EventFacts,
    progress: Progress,
    signal: AbortSignal,
  ) {
    this.#options = options;
    this.#event = event;
    this.#facts = facts;
    this.#progress = progress;
    this.#signal = signal;
  }

  async run(reaction: Reaction): Promise<RunResult> {
    const outcome = await this.#runReaction(reaction);
    if (outcome === 'failed') return { outcome, retryInMs: this.#retryInMs(reaction) };
    return outcome === 'waiting' ? { outcome, retryInMs: this.#lookAgainInMs() } : { outcome };
  }

  async #runReaction(reaction: Reaction): Promise<ReactionOutcome> {
    const age = this.#ageFor(reaction);
    const reason = await this.#reasonAgainst(reaction, age);
    if (reason === 'waiting') return 'waiting';
    if (reason === 'expired' && this.#progress.hasBegun(reaction.name) && (await this.#endTries(reaction, age))) {
      this.#options.onOutcome(reaction.name, 'dead');
      return 'dead';
    }
    if (reason !== undefined) {
      // Said once: a reaction that had begun and is now too old is over as well.
      await this.#ended(reaction.name, '', { outcome: reason, detail: byClock(age) }, 0);
      this.#log(
        reason === 'expired' ? 'warn' : 'info',
        `reaction.${reason}`,
        reaction,
        clockFields(age),
        SKIPPED[reason],
      );
      this.#options.onOutcome(reaction.name, reason);
      return reason;
    }
    if (age.age === 'ahead' && !this.#progress.hasBegun(reaction.name)) {
      this.#log(
        'warn',
        'reaction.ahead',
        reaction,
        clockFields(age),
        'event occurred in the future, running its reaction',
      );
    }
    const beganMs = this.#options.clock.monotonicMs();
    const firstTime = !this.#progress.hasEnded(reaction.name);
    const outcome = await this.#runActions(reaction);
    // After the actions, not before: a crash in between must not leave a cooldown that swallows the repeat. A reaction runs
    // for one event of an object at a time, so that no other event runs in between.
    if (firstTime && this.#progress.hasBegun(reaction.name)) await this.#beginCooldown(reaction, beganMs);
    if (outcome === 'done' || outcome === 'failed' || outcome === 'dead') {
      this.#options.onOutcome(reaction.name, outcome);
      if (outcome === 'done') this.#log('info', 'reaction.done', reaction, {}, 'a reaction has run');
    }
    return outcome;
  }

  /** The event has become too old while an action of it failed: what is still to do is given up. Whether there was such an action. */
  async #endTries(reaction: Reaction, age: AgeVerdict): Promise<boolean> {
    const open = nameActions(reaction.actions).filter((name) => !this.#progress.isDone(reaction.name, name));
    if (!open.some((name) => this.#progress.tries(reaction.name, name) > 0)) return false;
    for (const name of open) {
      if (this.#progress.isGivenUp(reaction.name, name)) continue;
      const last = this.#progress.lastDetail(reaction.name, name);
      await this.#giveUp(
        reaction,
        name,
        `${last === undefined ? '' : `${last}; `}the event has become older than max_age ${byClock(age)}`,
      );
    }
    return true;
  }

  #ageFor(reaction: Reaction): AgeVerdict {
    const { replayed, occurredAtMs } = this.#event;
    if (replayed) return { age: 'fresh' };
    return judgeAge(reaction.maxAgeMs, occurredAtMs, this.#options.now(), this.#waitedMs());
  }

  async #reasonAgainst(reaction: Reaction, { age }: AgeVerdict): Promise<Against | undefined> {
    if (this.#event.replayed) return undefined;
    if (age === 'too-old') return 'expired';
    if (age === 'unknown') return 'waiting';
    if (this.#progress.hasBegun(reaction.name)) return undefined;
    try {
      const rests = await this.#options.cooldowns.rests(reaction.name, this.#facts.object, reaction.cooldownMs);
      return rests ? 'cooldown' : undefined;
    } catch (error) {
      // A disk that cannot be read must not keep a valve open.
      this.#sayJournal(error, reaction.name);
      return undefined;
    }
  }

  async #runActions(reaction: Reaction): Promise<ReactionOutcome> {
    const names = nameActions(reaction.actions);
    const { retryOrder } = this.#options;
    const object = this.#facts.object;
    let worst: ReactionOutcome = 'done';
    for (const [index, action] of reaction.actions.entries()) {
      const name = names[index]!;
      if (this.#progress.isDone(reaction.name, name)) continue;
      if (this.#progress.isGivenUp(reaction.name, name)) {
        worst = worseOf(worst, 'dead');
        continue;
      }
      if (retryOrder.isTaken(reaction.name, object, name, this.#event.id)) {
        worst = worseOf(worst, 'waiting');
        continue;
      }
      if (this.#signal.aborted) return 'interrupted';
      if (this.#progress.isUnfinished(reaction.name, name)) {
        worst = worseOf(worst, await this.#afterUnfinished(reaction, action, name));
        continue;
      }
      if (this.#isSpent(reaction, action, name)) {
        await this.#giveUp(reaction, name, this.#progress.lastDetail(reaction.name, name));
        worst = worseOf(worst, 'dead');
        continue;
      }
      const place = await this.#options.targets.enter(action, reaction.name, this.#signal);
      if (!place) {
        // Keeps its place before later events of the object.
        retryOrder.take(reaction.name, object, name, this.#event.id);
        worst = worseOf(worst, this.#signal.aborted ? 'interrupted' : 'waiting');
        continue;
      }
      if (action.kind === 'run' && !(await this.#begin(reaction, name))) {
        place.leave('interrupted');
        worst = worseOf(worst, 'waiting');
        continue;
      }
      const startedMs = this.#options.clock.monotonicMs();
      const result = await this.#perform(reaction, action);
      place.leave(endOf(result));
      const tookMs = this.#options.clock.monotonicMs() - startedMs;
      await this.#ended(reaction.name, name, result, tookMs);
      if (result.outcome === 'interrupted') return 'interrupted';
      if (result.outcome === 'done') {
        this.#options.repeats.end(repeatKey(reaction, name));
        const fields = { action: name, duration_ms: Math.round(tookMs) };
        this.#log('debug', 'reaction.action', reaction, fields, 'an action is done');
        retryOrder.done(reaction.name, object, name, this.#event.id);
        continue;
      }
      worst = worseOf(worst, await this.#afterFailure(reaction, action, name, result));
    }
    return worst;
  }

  /**
   * Whether the start of a command is on disk. One that is not must not run: it may be what ends the gateway, and would do so at each
   * start without ever having had a try. It keeps its place before later events, and is looked at again after a pause.
   */
  async #begin(reaction: Reaction, name: string): Promise<boolean> {
    const begun = this.#progress.beginning(reaction.name, name);
    if (await this.#record(reaction.name, begun)) {
      this.#progress.begin(begun);
      this.#options.repeats.end(NOT_STARTED);
      return true;
    }
    const { clock, repeats, retryOrder } = this.#options;
    retryOrder.take(reaction.name, this.#facts.object, name, this.#event.id);
    const count = repeats.note(NOT_STARTED, clock.monotonicMs());
    const fields = { action: name, count };
    const words = 'a command waits: its start cannot be written down';
    this.#log(count === undefined ? 'debug' : 'error', 'reaction.not_started', reaction, fields, words);
    return false;
  }

  async #perform(reaction: Reaction, action: Reaction['actions'][number]): Promise<ActionResult> {
    try {
      return await this.#options.perform(action, {
        reaction: reaction.name,
        event: this.#facts,
        signal: this.#signal,
      });
    } catch (error) {
      return { outcome: 'failed', detail: messageOf(error) };
    }
  }

  /** The gateway ended while the action ran: it has had this try, and waits as after any other. */
  async #afterUnfinished(
    reaction: Reaction,
    action: Reaction['actions'][number],
    name: string,
  ): Promise<'failed' | 'dead'> {
    const detail = 'the gateway ended while it ran';
    await this.#ended(reaction.name, name, { outcome: 'unfinished', detail }, 0);
    return this.#afterFailure(reaction, action, name, { outcome: 'failed', detail });
  }

  async #afterFailure(
    reaction: Reaction,
    action: Reaction['actions'][number],
    name: string,
    { detail }: ActionResult,
  ): Promise<'failed' | 'dead'> {
    const { clock, repeats, retryOrder } = this.#options;
    const tries = this.#progress.tries(reaction.name, name);
    if (this.#isSpent(reaction, action, name)) {
      await this.#giveUp(reaction, name, detail);
      return 'dead';
    }
    retryOrder.take(reaction.name, this.#facts.object, name, this.#event.id);
    const count = repeats.note(repeatKey(reaction, name), clock.monotonicMs());
    const level = count === undefined ? 'debug' : 'warn';
    const fields = { action: name, error: detail, tries, count };
    this.#log(level, 'reaction.failed', reaction, fields, 'an action failed and will be tried again');
    return 'failed';
  }

  /** All its tries are used up, in this run of the gateway or in those before. */
  #isSpent(reaction: Reaction, action: Reaction['actions'][number], name: string): boolean {
    const tries = this.#progress.tries(reaction.name, name);
    const { maxTries } = this.#options;
    const replayed = this.#event.replayed ?? false;
    return tries > 0 && isGivenUp(action, reaction, { tries, maxTries, waitedMs: this.#waitedMs(), replayed });
  }

  async #giveUp(reaction: Reaction, name: string, detail: string | undefined): Promise<void> {
    const tries = this.#progress.tries(reaction.name, name);
    await this.#ended(reaction.name, name, { outcome: 'dead', ...(detail === undefined ? {} : { detail }) }, 0);
    this.#options.retryOrder.done(reaction.name, this.#facts.object, name, this.#event.id);
    const fields = { action: name, error: detail, tries };
    this.#log('error', 'reaction.dead', reaction, fields, 'an action was given up; `tagferry events replay` runs it');
  }

  #waitedMs(): number {
    return this.#options.clock.monotonicMs() - this.#progress.firstSeenMs;
  }

  #retryInMs({ name: reaction, actions }: Reaction): number {
    const tries = nameActions(actions)
      .filter((name) => !this.#progress.isDone(reaction, name) && !this.#progress.isGivenUp(reaction, name))
      .map((name) => this.#progress.tries(reaction, name))
      .filter((count) => count > 0);
    const attempt = tries.length > 0 ? Math.min(...tries) - 1 : 0;
    return fullJitterMs(attempt, backoffAfter(this.#waitedMs()), () => this.#options.clock.random(), RETRY_FLOOR_MS);
  }

  /** Soon at first, then less often: each look is two commits. */
  #lookAgainInMs(): number {
    return Math.min(MAX_LOOK_MS, LOOK_AGAIN_MS + this.#waitedMs() / 4);
  }

  async #ended(
    reaction: string,
    action: string,
    result: { outcome: Outcome; detail?: string | undefined },
    tookMs: number,
  ) {
    const detail = result.detail?.slice(0, MAX_DETAIL);
    const attempt: Attempt = {
      reaction,
      action,
      outcome: result.outcome,
      ...(detail === undefined ? {} : { detail }),
      durationMs: Math.round(tookMs),
      atMs: this.#options.clock.wallMs(),
    };
    await this.#record(reaction, this.#progress.end(reaction, action, result.outcome, detail), attempt);
  }

  /** Whether it is on disk. What is not ends nothing: the event stays open, and runs again after a crash. */
  async #record(reaction: string, progress: ActionProgress | undefined, attempt?: Attempt): Promise<boolean> {
    try {
      await this.#options.journal.record(this.#event.id, progress, attempt);
      return true;
    } catch (error) {
      this.#sayJournal(error, reaction);
      return false;
    }
  }

  async #beginCooldown(reaction: Reaction, beganMs: number): Promise<void> {
    try {
      await this.#options.cooldowns.begin(reaction.name, this.#facts.object, reaction.cooldownMs, beganMs);
    } catch (error) {
      this.#sayJournal(error, reaction.name);
    }
  }

  #sayJournal(error: unknown, reaction: string): void {
    const { clock, logger, repeats } = this.#options;
    sayJournal(error, { reaction, inboxId: this.#event.id, digest: this.#event.digest }, { clock, logger, repeats });
  }

  #log(
    level: 'debug' | 'info' | 'warn' | 'error',
    event: string,
    reaction: Reaction,
    fields: object,
    message: string,
  ): void {
    this.#options.logger[level](
      {
        event,
        reaction: reaction.name,
        inboxId: this.#event.id,
        digest: this.#event.digest,
        eventType: this.#event.eventType,
        object: this.#facts.object,
        ...fields,
      },
      message,
    );
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
  expired: 'an event was too old for a reaction and is only logged',
  cooldown: 'a reaction rests',
} as const;

/** From harmless to what decides the event's state. */
const ORDER: readonly ReactionOutcome[] = ['done', 'dead', 'waiting', 'failed', 'interrupted'];

function worseOf(one: ReactionOutcome, other: ReactionOutcome): ReactionOutcome {
  return ORDER.indexOf(one) >= ORDER.indexOf(other) ? one : other;
}
