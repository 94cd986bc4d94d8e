import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import type { Reaction } from '../config/reactions.ts';
import { type ActionResult, nameActions, type Perform } from './action.ts';
import type { Cooldowns } from './cooldowns.ts';
import type { EventFacts } from './event-facts.ts';
import { backoffAfter, isGivenUp } from './giving-up.ts';
import type { ActionProgress, Attempt, InboxEvent, Journal } from './journal.ts';
import type { Outcome, Progress } from './progress.ts';
import type { RetryOrder } from './retry-order.ts';
import { judgeAge, matches } from './rules.ts';

/** What becomes of an event after one run of its reactions. */
export type EventVerdict =
  | { state: 'done' | 'dead' }
  | { state: 'failed'; retryInMs: number }
  /** The daemon stops: nothing is written, so that it runs again at the next start. */
  | { state: 'interrupted' };

/** What becomes of one reaction of it; `skipped` ones are done as well. */
type ReactionOutcome = 'done' | 'expired' | 'cooldown' | 'failed' | 'dead' | 'waiting' | 'interrupted';

export interface EventRunOptions {
  clock: Clock;
  logger: Logger;
  journal: Pick<Journal, 'record'>;
  cooldowns: Cooldowns;
  retryOrder: RetryOrder;
  perform: Perform;
  /** Failures of one action over many events, and of the journal: each is said now and then, the others at debug. */
  repeats: Repeats;
  /** A clock to judge age by; `undefined` while none can be trusted. See `judgeAge`. */
  nowMs: () => number | undefined;
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

/**
 * Runs the reactions of one event once. Reactions run side by side, the actions of one in their order; a failure stops
 * none of the others. Never throws.
 */
export class EventRun {
  readonly #options: EventRunOptions;
  readonly #event: InboxEvent;
  readonly #facts: EventFacts;
  readonly #progress: Progress;
  readonly #signal: AbortSignal;

  constructor(options: EventRunOptions, event: InboxEvent, facts: EventFacts, progress: Progress, signal: AbortSignal) {
    this.#options = options;
    this.#event = event;
    this.#facts = facts;
    this.#progress = progress;
    this.#signal = signal;
  }

  async run(reactions: readonly Reaction[]): Promise<EventVerdict> {
    const outcomes = await Promise.all(
      reactions.filter((one) => matches(one, this.#facts)).map((one) => this.#runReaction(one)),
    );
    if (outcomes.includes('interrupted')) return { state: 'interrupted' };
    if (outcomes.includes('failed')) return { state: 'failed', retryInMs: this.#retryInMs(reactions) };
    if (outcomes.includes('waiting')) return { state: 'failed', retryInMs: this.#lookAgainInMs() };
    return { state: outcomes.includes('dead') ? 'dead' : 'done' };
  }

  async #runReaction(reaction: Reaction): Promise<ReactionOutcome> {
    const over = this.#whatItCameTo(reaction);
    if (over !== undefined) return over;
    const reason = await this.#reasonAgainst(reaction);
    if (reason === 'waiting') return 'waiting';
    if (reason === 'expired' && this.#progress.hasBegun(reaction.name) && (await this.#endTries(reaction))) {
      this.#options.onOutcome(reaction.name, 'dead');
      return 'dead';
    }
    if (reason !== undefined) {
      // Said once: a reaction that had begun and is now too old is over as well.
      await this.#ended(reaction.name, '', { outcome: reason }, 0);
      this.#log(reason === 'expired' ? 'warn' : 'info', `reaction.${reason}`, reaction, {}, SKIPPED[reason]);
      this.#options.onOutcome(reaction.name, reason);
      return reason;
    }
    const beganMs = this.#options.clock.monotonicMs();
    const firstTime = !this.#progress.hasEnded(reaction.name);
    const outcome = await this.#runActions(reaction);
    // After the actions, not before: a crash in between must not leave a cooldown that swallows the repeat. Events of one
    // object run one after another, so none slips in meanwhile.
    if (firstTime && this.#progress.hasBegun(reaction.name)) await this.#beginCooldown(reaction, beganMs);
    if (outcome === 'done' || outcome === 'failed' || outcome === 'dead') {
      this.#options.onOutcome(reaction.name, outcome);
      if (outcome === 'done') this.#log('info', 'reaction.done', reaction, {}, 'a reaction has run');
    }
    return outcome;
  }

  /** A reaction that is over stays so while the event comes back for another one: skipped is skipped, given up is given up. */
  #whatItCameTo(reaction: Reaction): 'done' | 'dead' | undefined {
    if (this.#progress.isSkipped(reaction.name)) return 'done';
    if (!this.#progress.hasBegun(reaction.name)) return undefined;
    const names = nameActions(reaction.actions).filter((name) => !this.#progress.isDone(reaction.name, name));
    if (names.length === 0) return 'done';
    return names.every((name) => this.#progress.isGivenUp(reaction.name, name)) ? 'dead' : undefined;
  }

  /** The event has become too old while an action of it failed: what is still to do is given up. Whether there was such an action. */
  async #endTries(reaction: Reaction): Promise<boolean> {
    const open = nameActions(reaction.actions).filter((name) => !this.#progress.isDone(reaction.name, name));
    if (!open.some((name) => this.#progress.tries(reaction.name, name) > 0)) return false;
    for (const name of open) {
      if (this.#progress.isGivenUp(reaction.name, name)) continue;
      const last = this.#progress.lastDetail(reaction.name, name);
      await this.#giveUp(
        reaction,
        name,
        `${last === undefined ? '' : `${last}; `}the event has become older than max_age`,
      );
    }
    return true;
  }

  async #reasonAgainst(reaction: Reaction): Promise<'expired' | 'cooldown' | 'waiting' | undefined> {
    if (this.#event.replayed) return undefined;
    const nowMs = this.#options.nowMs();
    const age = judgeAge(reaction.maxAgeMs, this.#event.occurredAtMs, nowMs, this.#waitedMs());
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
      if (action.kind === 'run' && !(await this.#begin(reaction, name))) {
        worst = worseOf(worst, 'waiting');
        continue;
      }
      const startedMs = this.#options.clock.monotonicMs();
      const result = await this.#perform(reaction, action);
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

  #retryInMs(reactions: readonly Reaction[]): number {
    let fewest = Number.POSITIVE_INFINITY;
    for (const { name: reaction, actions } of reactions) {
      for (const name of nameActions(actions)) {
        if (this.#progress.isDone(reaction, name) || this.#progress.isGivenUp(reaction, name)) continue;
        const tries = this.#progress.tries(reaction, name);
        if (tries > 0) fewest = Math.min(fewest, tries);
      }
    }
    const attempt = Number.isFinite(fewest) ? fewest - 1 : 0;
    return fullJitterMs(attempt, backoffAfter(this.#waitedMs()), () => this.#options.clock.random(), RETRY_FLOOR_MS);
  }

  /** Soon at first, then less often: each look is two commits. */
  #lookAgainInMs(): number {
    return Math.min(MAX_LOOK_MS, LOOK_AGAIN_MS + this.#waitedMs() / 4);
  }

  async #ended(reaction: string, action: string, result: { outcome: Outcome; detail?: string }, tookMs: number) {
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

/** The journal cannot be read or written: nothing waits for that, and it is said once for all events that meet it. */
export function sayJournal(
  error: unknown,
  about: { inboxId: number; digest?: string | undefined; reaction?: string },
  parts: { clock: Clock; logger: Logger; repeats: Repeats },
): void {
  const code = codeOf(error);
  const count = parts.repeats.note(`journal:${code}`, parts.clock.monotonicMs());
  const level = count === undefined ? 'debug' : 'warn';
  const fields = { event: 'reaction.journal', ...about, code, error: messageOf(error), count };
  parts.logger[level](fields, 'the journal of reactions cannot be used');
}

function repeatKey(reaction: Reaction, action: string): string {
  return `action:${reaction.name}:${action}`;
}

const SKIPPED = {
  expired: 'an event was too old for a reaction and is only logged',
  cooldown: 'a reaction rests',
} as const;

/** From harmless to what decides the event's state. */
const ORDER: readonly ReactionOutcome[] = ['done', 'dead', 'waiting', 'failed'];

function worseOf(one: ReactionOutcome, other: ReactionOutcome): ReactionOutcome {
  return ORDER.indexOf(one) >= ORDER.indexOf(other) ? one : other;
}
