import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import type { Reaction } from '../config/reactions.ts';
import type { Perform } from './action.ts';
import { Cooldowns } from './cooldowns.ts';
import { readFacts } from './event-facts.ts';
import { EventMemory } from './event-memory.ts';
import { EventStates } from './event-states.ts';
import type { InboxEvent, Journal } from './journal.ts';
import { OpenEvent } from './open-event.ts';
import { Places } from './places.ts';
import { Progress } from './progress.ts';
import { QueueWalk } from './queue-walk.ts';
import { ReactionRun, type ReactionRunOptions, type RunResult } from './reaction-run.ts';
import { RetryOrder } from './retry-order.ts';
import { type JudgingTime, matches } from './rules.ts';
import type { TagOf } from './tag-names.ts';
import { type SilentTarget, Targets } from './targets.ts';

/**
 * Runs the reactions of the events in the inbox: after the 204, never inside the request.
 *
 * Unit: one reaction of one event. States of an event: waiting in the inbox; open (at least one of its reactions is in progress); settled as
 * `done` or `dead`; `failed`, if a reaction waits for a retry, a target or a place. Reactions in progress have places per rule (`Places`),
 * their actions have places per target (`Targets`), and all open events share a memory budget. New events go before due retries.
 *
 * Invariants: A reaction runs for one event of an object (`EventFacts.object`) at a time, in the order of arrival. An action that
 * failed keeps its place before the same action of later events (`RetryOrder`); their other actions go on. A reaction that
 * is done for an event is not run for it again, unless a person asks. An event is `done` only if every action is done or was skipped for
 * a reason. A disk that rejects the journal stops only commands, whose start must be on disk.
 *
 * A crash leaves events `running`; the inbox returns them at the next start, and the actions that are not known to be done run again: at
 * least once, possibly twice. A command whose start is on disk without an end has used that try. A command that ends the gateway
 * each time does so eight times at most, and other events go first.
 */
export interface ReactionRunnerOptions {
  journal: Journal;
  reactions: readonly Reaction[];
  /** Resolves the tag of tags.yaml that an event is about. */
  tagOf?: TagOf;
  perform: Perform;
  clock: Clock;
  logger: Logger;
  /** A clock to judge `max_age` by, in milliseconds since 1970; `undefined` while none can be trusted. */
  now: () => JudgingTime | undefined;
  onOutcome?: ReactionRunOptions['onOutcome'];
  /** Events of one rule in progress at once. Default: 4. */
  perRule?: number;
  /** Memory of open events, in bytes. Default: 64 MiB. */
  memoryBytes?: number;
  /** Tries of one action that is given up by its count. Default: 8, about two minutes. */
  maxTries?: number;
}

/** Interval of looks without any cause: finds retries that were set before the previous start. */
const LOOK_EVERY_MS = 10_000;
/** If the queue is longer than a look: the next part. */
const LOOK_ON_MS = 1_000;
const STORE_RETRY = { baseMs: 1_000, capMs: 30_000 };
const MAX_REMEMBERED = 4_000;
const RETRIES_PAGE = 100;
/** Events without any reaction that are settled at once. */
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
  /** Events without any reaction whose end is being written. */
  readonly #settling = new Map<number, Promise<void>>();
  /** Of events that will be retried: the content of their journal. */
  readonly #progress = new Map<number, Progress>();
  /** Waiting reactions of events that were passed over: a look does not parse these events again. */
  readonly #passedOver = new Map<number, readonly { rule: string; key: string }[]>();
  readonly #fresh: QueueWalk;
  readonly #due: QueueWalk;
  #reactions: readonly Reaction[];
  #tagOf: TagOf;
  /** No reaction begins any more. */
  readonly #closing = new AbortController();
  /** Reactions in progress are ended. */
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
    // Open events are passed by the first walk.
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

  /** Begins with the content of the inbox. */
  start(): void {
    this.#started = true;
    this.wake();
  }

  /** The inbox has a new event. Cheap; call it after every insert. */
  wake(): void {
    if (!this.#started || this.#closing.signal.aborted) return;
    this.#wanted = true;
    if (!this.#looking) this.#lookBegunMs = this.#options.clock.monotonicMs();
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
      if (this.#wanted) this.wake();
    });
  }

  /** Rules after a reload. Open events keep the previous ones. */
  setReactions(reactions: readonly Reaction[], tagOf = this.#tagOf): void {
    this.#reactions = reactions;
    this.#tagOf = tagOf;
    this.#targets.keep(reactions);
    this.#forget();
    this.wake();
  }

  /** Runs an event's reactions again because a person asks for it, regardless of age and cooldown. */
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

  /** For the watchdog: whether the look into the inbox that is in progress began within the time. */
  isAlive(nowMs: number, patienceMs: number): boolean {
    return this.#looking === undefined || nowMs - this.#lookBegunMs < patienceMs;
  }

  /** Events with reactions in progress. */
  get busy(): number {
    return this.#open.size + this.#settling.size;
  }

  /** Targets of actions that do not respond. */
  get silentTargets(): SilentTarget[] {
    return this.#targets.silent;
  }

  /**
   * Begins nothing any more and lets reactions in progress finish within `budgetMs`; then ends them (commands with their children), to
   * run again at the next start. Idempotent; a second call may shorten the first one's budget.
   */
  async stop(budgetMs: number): Promise<void> {
    this.#closing.abort(new Error('the agent stops'));
    this.#nextLook?.cancel();
    const cancel = this.#options.clock.after(budgetMs, () => this.#ending.abort(new Error('the agent stops')));
    if (budgetMs <= 0) this.#ending.abort(new Error('the agent stops'));
    await this.#looking;
    await Promise.all([...[...this.#open.values()].map(({ closed }) => closed.promise), ...this.#settling.values()]);
    cancel();
  }

  /** Begins as many reactions as find a place. */
  async #look(): Promise<void> {
    this.#wanted = false;
    try {
      await this.#rememberRetries();
      const ends = [await this.#fresh.walk(), await this.#due.walk()];
      if (this.#failedLooks > 0) {
        const fields = { event: 'reaction.inbox_back', failures: this.#failedLooks };
        this.#options.logger.info(fields, 'the inbox can be read again');
        this.#repeats.end('inbox');
      }
      this.#failedLooks = 0;
      this.#lookAgainIn(ends.includes('more') ? LOOK_ON_MS : LOOK_EVERY_MS);
    } catch (error) {
      const { clock, logger } = this.#options;
      const count = this.#repeats.note('inbox', clock.monotonicMs());
      if (count !== undefined) {
        const fields = { event: 'reaction.inbox', code: codeOf(error), error: messageOf(error), count };
        logger.error(fields, 'the inbox cannot be read: reactions wait');
      }
      this.#lookAgainIn(fullJitterMs(this.#failedLooks++, STORE_RETRY, () => clock.random(), 500));
    }
  }

  /** Events that the previous run left to be retried keep their place before later events of their object, due or not. */
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
    const known = this.#progress.get(event.id);
    const progress = known ?? new Progress(this.#options.clock.monotonicMs(), event.progress);
    const reactions = this.#reactions.filter((one) => matches(one, facts));
    return new OpenEvent(event, { facts, progress, reactions });
  }

  /** Begins waiting reactions of the events that are open, of those between two that a walk meets. */
  #passOpen(afterId: number, beforeId: number, busy: Set<string>): void {
    const between = [...this.#open.values()].filter(({ event }) => event.id > afterId && event.id < beforeId);
    for (const open of between.sort((a, b) => a.event.id - b.event.id)) this.#beginSome(open, busy);
  }

  /** Opens an event if any of its reactions may begin; later events of the object wait for the others. */
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

  /** Begins the waiting reactions of an event that may run now; the others keep later events of the object waiting. */
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
        open.marked = this.#states.running(open.event);
      }
      open.waiting.delete(reaction);
      open.running.add(reaction);
      this.#places.occupy(reaction.name);
      void this.#runOne(open, reaction);
    }
  }

  /** One reaction of an open event. The last one closes the event. Never throws. */
  async #runOne(open: OpenEvent, reaction: Reaction): Promise<void> {
    const { clock, logger } = this.#options;
    const { event, facts, progress } = open;
    let result: RunResult;
    try {
      await open.marked;
      result = await new ReactionRun(this.#run, event, facts, progress, this.#ending.signal).run(reaction);
    } catch (error) {
      // A fault of ours: the reaction is retried rather than lost.
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

  /** Tells the inbox the state of an event without reactions in progress. */
  async #settle(open: OpenEvent): Promise<void> {
    const { clock, logger } = this.#options;
    const { event, progress } = open;
    const { id: inboxId, digest } = event;
    const verdict = open.verdict(clock.monotonicMs());
    if (verdict.state === 'interrupted') {
      return logger.warn({ event: 'reaction.interrupted', inboxId, digest }, 'event runs again at the next start');
    }
    const retryInMs = verdict.state === 'failed' ? verdict.retryInMs : undefined;
    if (retryInMs === undefined) {
      this.#progress.delete(inboxId);
      this.#retryOrder.release(inboxId);
    } else {
      open.keepOrder(this.#retryOrder);
      if (this.#progress.size >= MAX_REMEMBERED) this.#progress.clear();
      this.#progress.set(inboxId, progress);
    }
    await this.#states.finish(event, verdict.state, retryInMs, this.#closing.signal);
    if (retryInMs !== undefined && retryInMs > 0) this.#lookAgainIn(retryInMs);
  }

  #reportTarget(target: string, reaction: string, silentMs: number | undefined): void {
    const { logger } = this.#options;
    if (silentMs === undefined) {
      logger.warn({ event: 'reaction.target_silent', target, reaction }, 'target of a reaction does not respond');
    } else {
      const fields = { event: 'reaction.target_restored', target, reaction, lastedMs: Math.round(silentMs) };
      logger.info(fields, 'target of a reaction responds again');
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
