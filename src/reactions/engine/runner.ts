import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { Repeats } from '../../base/repeats.ts';
import { fullJitterMs } from '../../base/retry.ts';
import type { Reaction } from '../../config/reactions.ts';
import type { Perform } from '../action-kind.ts';
import { readFacts, type TagOf } from '../event-facts.ts';
import { EventStates, type InboxEvent, type Journal } from '../journal.ts';
import type { JudgingTime } from '../rules.ts';
import { EventMemory, Places } from './capacity.ts';
import { Cooldowns } from './cooldowns.ts';
import { OpenEvent } from './open-event.ts';
import { Progress } from './progress.ts';
import { QueueWalk } from './queue-walk.ts';
import { ReactionRun, type ReactionRunOptions, type RunResult } from './reaction-run.ts';
import { endRemovedActions } from './removed-actions.ts';
import { RetryOrder } from './retries.ts';
import { type SilentTarget, Targets } from './targets.ts';

/**
 * Runs the reactions to events in the inbox. Reactions run after the 204 response, never within a request. Platform
 * events and events created by rules for local values are handled in the same way.
 *
 * States of an event:
 *
 *   received ──► running ──► done, or dead if an action failed permanently or was removed before it completed
 *      ▲           │  ▲
 *      │           ▼  │ due, or the target responds
 *      │         failed (a reaction waits for a retry, a target, its turn or a clock)
 *      └── from running after a crash; from each other state by `replay`
 *
 * Work is scheduled in units of one reaction to one event. An event is open (`OpenEvent`) while one of its reactions is
 * in progress. The number of reactions in progress is limited per rule (`Places`), and the number of actions per target
 * (`Targets`). All open events share a memory budget. New events take precedence over due retries.
 *
 * Invariants: For each object (`EventFacts.object`), a reaction runs for one event at a time, in order of arrival. A
 * failed action blocks the same action of later events (`RetryOrder`), but not their other actions. A completed
 * reaction does not run again for the same event, except by `replay`. An event is `done` only if each action is done,
 * skipped or replaced. If the journal cannot be written, only commands wait, because their start must be on disk.
 *
 * After a crash, actions that were not recorded as done run again, so that an action runs at least once and possibly
 * twice. If the start of a command is on disk but its end is not, the attempt counts. A command that always crashes the
 * gateway is started at most eight times, and other events run first.
 */
export interface ReactionRunnerOptions {
  journal: Journal;
  reactions: readonly Reaction[];
  /** Returns the tag in tags.yaml to which an event refers. */
  tagOf?: TagOf;
  perform: Perform;
  clock: Clock;
  logger: Logger;
  /** Time for `max_age`; `undefined` while no clock is trusted. */
  now: () => JudgingTime | undefined;
  onOutcome?: ReactionRunOptions['onOutcome'];
  /** Maximum number of events in progress per rule. Default: 4. */
  perRule?: number;
  /** Memory budget for open events, in bytes. Default: 64 MiB. */
  memoryBytes?: number;
  /** Maximum number of attempts for actions with limited attempts. Default: 8, which takes about two minutes. */
  maxTries?: number;
}

/** Interval between regular scans, which find retries that were scheduled before a restart. */
const LOOK_EVERY_MS = 10_000;
/** Delay before the next part of a long queue is read. */
const LOOK_ON_MS = 1_000;
const STORE_RETRY = { baseMs: 1_000, capMs: 30_000 };
const MAX_REMEMBERED = 4_000;
const RETRIES_PAGE = 100;
/** Maximum number of events without remaining reactions whose state is being written at the same time. */
const MAX_SETTLING = 16;
const MEMORY_BYTES = 64 * 1024 * 1024;

export class ReactionRunner {
  readonly #options: ReactionRunnerOptions;
  readonly #run: ReactionRunOptions;
  readonly #retryOrder = new RetryOrder();
  readonly #repeats = new Repeats();
  readonly #states: EventStates;
  readonly #places: Places;
  readonly #targets: Targets;
  readonly #memory: EventMemory;
  readonly #open = new Map<number, OpenEvent>();
  /** Events without remaining reactions whose state is being written. */
  readonly #settling = new Map<number, Promise<void>>();
  /** Progress of events that will be retried. */
  readonly #progress = new Map<number, Progress>();
  /** Waiting reactions of events that have not been started, which the next scan does not have to parse again. */
  readonly #passedOver = new Map<number, readonly { rule: string; key: string }[]>();
  readonly #fresh: QueueWalk;
  readonly #due: QueueWalk;
  #reactions: readonly Reaction[];
  #tagOf: TagOf;
  /** Aborted when no further reactions may start. */
  readonly #closing = new AbortController();
  /** Aborted to interrupt the reactions in progress. */
  readonly #ending = new AbortController();
  #wanted = false;
  #looking: Promise<void> | undefined;
  #lookBegunMs = 0;
  #nextLook: { atMs: number; cancel: () => void } | undefined;
  #failedLooks = 0;
  #started = false;
  #knowsRetries = false;
  #lastRetried = 0;

  constructor(options: ReactionRunnerOptions) {
    const { clock, journal, logger } = options;
    this.#options = options;
    this.#reactions = options.reactions;
    this.#tagOf = options.tagOf ?? (() => undefined);
    this.#states = new EventStates({ journal, clock, logger, repeats: this.#repeats });
    this.#places = new Places(options.perRule);
    this.#memory = new EventMemory(options.memoryBytes ?? MEMORY_BYTES, MAX_REMEMBERED);
    this.#targets = new Targets({ clock, onChange: (...change) => this.#reportTarget(...change) });
    const visitor = {
      hasRoom: () => this.#hasRoom(),
      busyKeys: () => this.#busyKeys(),
      begin: (event: InboxEvent, busy: Set<string>) => this.#begin(event, busy),
      passOpen: (afterId: number, beforeId: number, busy: Set<string>) => this.#passOpen(afterId, beforeId, busy),
    };
    this.#fresh = new QueueWalk({ ...visitor, page: (limit, afterId) => journal.fresh(limit, afterId) });
    // Open events are handled by the walk through the new events.
    this.#due = new QueueWalk({
      ...visitor,
      page: (limit, afterId) => journal.due(limit, afterId),
      passOpen: () => {},
    });
    this.#run = {
      clock,
      logger,
      journal,
      cooldowns: new Cooldowns(journal, clock),
      retryOrder: this.#retryOrder,
      targets: this.#targets,
      perform: options.perform,
      repeats: this.#repeats,
      now: options.now,
      maxTries: options.maxTries ?? 8,
      onOutcome: options.onOutcome ?? (() => {}),
    };
  }

  /** Starts with the events that are already in the inbox. */
  start(): void {
    this.#started = true;
    this.wake();
  }

  /** Called after every insert into the inbox. Inexpensive. */
  wake(): void {
    if (!this.#started || this.#closing.signal.aborted) return;
    this.#wanted = true;
    if (!this.#looking) this.#lookBegunMs = this.#options.clock.monotonicMs();
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
      if (this.#wanted) this.wake();
    });
  }

  /** Applies new rules after a reload. Open events continue with the previous rules. */
  setReactions(reactions: readonly Reaction[], tagOf = this.#tagOf): void {
    this.#reactions = reactions;
    this.#tagOf = tagOf;
    this.#targets.keep(reactions);
    this.#forget();
    this.wake();
  }

  /** Runs an event's reactions again, regardless of age and cooldown. */
  async replay(id: number): Promise<'queued' | 'unknown' | 'refused'> {
    if (this.#open.has(id) || this.#settling.has(id)) return 'refused';
    const answer = await this.#options.journal.replay(id);
    if (answer === 'queued') {
      this.#progress.delete(id);
      this.#retryOrder.release(id);
      this.#forget();
      this.wake();
    }
    return answer;
  }

  /** Returns whether no inbox scan has been running for `patienceMs` or longer. Used by the watchdog. */
  isAlive(nowMs: number, patienceMs: number): boolean {
    return this.#looking === undefined || nowMs - this.#lookBegunMs < patienceMs;
  }

  /** Number of events with reactions in progress. */
  get busy(): number {
    return this.#open.size + this.#settling.size;
  }

  /** Action targets that do not respond. */
  get silentTargets(): SilentTarget[] {
    return this.#targets.silent;
  }

  /**
   * Starts no further reactions, waits up to `budgetMs` for those in progress, and then interrupts them. Interrupted
   * reactions run again after the next startup. A second call may shorten the budget.
   */
  async stop(budgetMs: number): Promise<void> {
    this.#closing.abort(new Error('the agent is stopping'));
    this.#nextLook?.cancel();
    const cancel = this.#options.clock.after(budgetMs, () => this.#ending.abort(new Error('the agent is stopping')));
    if (budgetMs <= 0) this.#ending.abort(new Error('the agent is stopping'));
    await this.#looking;
    await Promise.all([...[...this.#open.values()].map(({ closed }) => closed.promise), ...this.#settling.values()]);
    cancel();
  }

  /** Starts as many reactions as slots are available. */
  async #look(): Promise<void> {
    this.#wanted = false;
    try {
      await this.#rememberRetries();
      const ends = [await this.#fresh.walk(), await this.#due.walk()];
      if (this.#failedLooks > 0) {
        const fields = { event: 'reaction.inbox_back', failures: this.#failedLooks };
        this.#options.logger.info(fields, 'inbox restored');
        this.#repeats.end('inbox');
      }
      this.#failedLooks = 0;
      this.#lookAgainIn(ends.includes('more') ? LOOK_ON_MS : LOOK_EVERY_MS);
    } catch (error) {
      const { clock, logger } = this.#options;
      const count = this.#repeats.note('inbox', clock.monotonicMs());
      if (count !== undefined) {
        const fields = { event: 'reaction.inbox', code: codeOf(error), error: messageOf(error), count };
        logger.error(fields, 'failed to read the inbox, reactions are waiting');
      }
      this.#lookAgainIn(fullJitterMs(this.#failedLooks++, STORE_RETRY, () => clock.random(), 500));
    }
  }

  /** Restores the retry order from the inbox, so that later events of an object wait for earlier retries. */
  async #rememberRetries(): Promise<void> {
    while (!this.#knowsRetries) {
      const page = await this.#options.journal.retried(RETRIES_PAGE, this.#lastRetried);
      for (const event of page) {
        this.#opened(event).keepOrder(this.#retryOrder);
        this.#lastRetried = event.id;
      }
      this.#knowsRetries = page.length === 0;
    }
  }

  #forget(): void {
    this.#passedOver.clear();
    this.#fresh.forget();
    this.#due.forget();
  }

  #hasRoom(): boolean {
    if (this.#closing.signal.aborted || this.#settling.size >= MAX_SETTLING) return false;
    return this.#reactions.length === 0 || this.#reactions.some(({ name }) => this.#places.hasRoom(name));
  }

  *#busyKeys(): Iterable<string> {
    for (const open of this.#open.values()) for (const reaction of open.running) yield open.keyOf(reaction);
  }

  #opened(event: InboxEvent): OpenEvent {
    const facts = readFacts(event, this.#tagOf);
    const nowMs = this.#options.clock.monotonicMs();
    const progress = this.#progress.get(event.id) ?? new Progress(nowMs, event.progress);
    return new OpenEvent(event, { facts, progress, configured: this.#reactions });
  }

  /** Starts waiting reactions of open events with IDs between two consecutive events of a walk. */
  #passOpen(afterId: number, beforeId: number, busy: Set<string>): void {
    const between = [...this.#open.values()].filter(({ event }) => event.id > afterId && event.id < beforeId);
    for (const open of between.sort((a, b) => a.event.id - b.event.id)) this.#beginSome(open, busy);
  }

  /** Opens an event if any of its reactions may start. Its other reactions block later events of the object. */
  #begin(event: InboxEvent, busy: Set<string>): void {
    if (this.#open.has(event.id) || this.#settling.has(event.id)) return;
    const known = this.#passedOver.get(event.id);
    for (const { rule, key } of known ?? []) if (!this.#places.hasRoom(rule)) busy.add(key);
    if (known?.every(({ key }) => busy.has(key))) return;
    const open = this.#opened(event);
    if (open.waiting.size === 0) {
      const settled = this.#settle(open).finally(() => {
        this.#settling.delete(event.id);
        this.wake();
      });
      this.#settling.set(event.id, settled);
      return;
    }
    const waiting = [...open.waiting].map((reaction) => ({ rule: reaction.name, key: open.keyOf(reaction) }));
    this.#beginSome(open, busy);
    if (open.running.size > 0) {
      this.#passedOver.delete(event.id);
      this.#open.set(event.id, open);
    } else {
      if (this.#passedOver.size >= MAX_REMEMBERED) this.#passedOver.clear();
      this.#passedOver.set(event.id, waiting);
    }
  }

  /** Starts waiting reactions that may run now. The other reactions of the event block later events of the object. */
  #beginSome(open: OpenEvent, busy: Set<string>): void {
    const { clock } = this.#options;
    for (const reaction of open.waiting) {
      const waitMs = open.progress.waitMs(reaction.name, clock.monotonicMs());
      if (waitMs > 0) {
        this.#lookAgainIn(waitMs);
        continue;
      }
      const key = open.keyOf(reaction);
      const isFree = !busy.has(key) && this.#places.hasRoom(reaction.name);
      busy.add(key);
      if (!isFree || !open.canProgress(reaction, this.#retryOrder, (action) => this.#targets.isClosed(action)))
        continue;
      if (open.running.size === 0) {
        const release = this.#memory.reserve(reaction.name, open.event.payload);
        if (!release) continue;
        open.releaseMemory = release;
        open.marked = this.#states.markRunning(open.event);
      }
      open.waiting.delete(reaction);
      open.running.add(reaction);
      this.#places.occupy(reaction.name);
      void this.#runOne(open, reaction);
    }
  }

  /** Runs one reaction of an open event, and closes the event after the last reaction. Never throws. */
  async #runOne(open: OpenEvent, reaction: Reaction): Promise<void> {
    const { clock, logger } = this.#options;
    const { event } = open;
    let result: RunResult;
    try {
      await open.marked;
      result = await new ReactionRun(this.#run, open, reaction, this.#ending.signal).run();
    } catch (error) {
      // If the agent has a bug, retry the reaction instead of losing it.
      const about = { reaction: reaction.name, inboxId: event.id, digest: event.digest };
      logger.error({ event: 'reaction.fault', ...about, err: error }, 'failed to run a reaction, it will be retried');
      result = { outcome: 'failed', retryInMs: STORE_RETRY.capMs };
    }
    this.#places.release(reaction.name);
    open.ended(reaction, result, clock.monotonicMs());
    if (open.running.size === 0) {
      await this.#settle(open);
      this.#open.delete(event.id);
      open.releaseMemory();
      open.closed.resolve();
    }
    this.wake();
  }

  /** Stores the state of an event that has no reactions in progress. */
  async #settle(open: OpenEvent): Promise<void> {
    const { clock, logger } = this.#options;
    const { id: inboxId, digest } = open.event;
    const verdict = open.verdict(clock.monotonicMs());
    if (verdict.state === 'interrupted') {
      return logger.warn({ event: 'reaction.interrupted', inboxId, digest }, 'event will run again on the next start');
    }
    if (verdict.state === 'dead') await endRemovedActions(open, this.#run);
    const retryInMs = verdict.state === 'failed' ? verdict.retryInMs : undefined;
    if (retryInMs === undefined) {
      this.#progress.delete(inboxId);
      this.#retryOrder.release(inboxId);
    } else {
      open.keepOrder(this.#retryOrder);
      if (this.#progress.size >= MAX_REMEMBERED) this.#progress.clear();
      this.#progress.set(inboxId, open.progress);
    }
    await this.#states.finish(open.event, verdict.state, retryInMs, this.#closing.signal);
    if (retryInMs !== undefined && retryInMs > 0) this.#lookAgainIn(retryInMs);
  }

  #reportTarget(target: string, reaction: string, silentMs: number | undefined): void {
    const { logger } = this.#options;
    if (silentMs === undefined) {
      logger.warn({ event: 'reaction.target_silent', target, reaction }, 'reaction target is not responding');
    } else {
      const fields = { event: 'reaction.target_restored', target, reaction, lastedMs: Math.round(silentMs) };
      logger.info(fields, 'reaction target is responding again');
    }
  }

  #lookAgainIn(ms: number): void {
    if (this.#closing.signal.aborted) return;
    const { clock } = this.#options;
    const atMs = clock.monotonicMs() + ms;
    if (this.#nextLook !== undefined && this.#nextLook.atMs <= atMs) return;
    this.#nextLook?.cancel();
    const cancel = clock.after(ms, () => {
      this.#nextLook = undefined;
      this.wake();
    });
    this.#nextLook = { atMs, cancel };
  }
}
