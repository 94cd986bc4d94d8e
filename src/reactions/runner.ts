import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import type { Reaction } from '../config/reactions.ts';
import { nameActions, type Perform } from './action.ts';
import { Cooldowns } from './cooldowns.ts';
import { type EventFacts, readFacts } from './event-facts.ts';
import { EventRun, type EventRunOptions, type EventVerdict, sayJournal } from './event-run.ts';
import type { InboxEvent, Journal } from './journal.ts';
import { Progress } from './progress.ts';
import { QueueWalk } from './queue-walk.ts';
import { RetryOrder } from './retry-order.ts';
import { matches } from './rules.ts';
import type { TagOf } from './tag-names.ts';

/**
 * Runs the reactions of the events in the inbox: after the 204, never inside the request.
 *
 * States of an event as the runner sees it: waiting in the inbox, under way (one of `concurrency` at once), over. Events of one
 * object (`EventFacts.object`) are under way one at a time and in the order they arrived; those of different objects side
 * by side. An event whose action failed leaves its place and comes back when its retry is due; later events of the object go
 * on meanwhile, save for that same action (`RetryOrder`).
 *
 * Invariants: An event that no rule means has no place in its object's order. A reaction that is done for an event is not run for it again, unless a
 * person asks. An event is `done` only when every action is done or was skipped for a reason. A disk that refuses to write the journal
 * stops no action but a command, whose start has to be on disk.
 *
 * A crash leaves events `running`; the inbox gives them out again at the next start, and the actions that are not known to be
 * done run again. So an action runs at least once, and may run twice if the crash came before it was recorded. A command
 * whose start is on disk without an end has had that try, and waits as after any failure: what ends the gateway each time
 * ends it eight times at most, and other events go first meanwhile.
 */
export interface ReactionRunnerOptions {
  journal: Journal;
  reactions: readonly Reaction[];
  /** By which name of tags.yaml actions know what an event is about. */
  tagOf?: TagOf;
  perform: Perform;
  clock: Clock;
  logger: Logger;
  /** A clock to judge `max_age` by, in milliseconds since 1970; `undefined` while none can be trusted. */
  nowMs: () => number | undefined;
  onOutcome?: EventRunOptions['onOutcome'];
  /** Events under way at once; 16 unless told: most of a reaction is waiting, and an incident must not start 500 processes. */
  concurrency?: number;
  /** Tries of one action that is given up by its count; 8 unless told: about two minutes. */
  maxTries?: number;
}

interface UnderWay {
  /** `undefined`: no rule means it. */
  object: string | undefined;
  finished: Promise<void>;
}

/** A look without any cause: catches retries that were set before the last start. */
const LOOK_EVERY_MS = 10_000;
/** Where the queue is longer than a look: the next part of it. */
const LOOK_ON_MS = 1_000;
const STORE_RETRY = { baseMs: 1_000, capMs: 30_000 };
const MAX_REMEMBERED = 4_000;
const RETRIES_PAGE = 100;

export class ReactionRunner {
  readonly #options: ReactionRunnerOptions;
  readonly #run: EventRunOptions;
  readonly #retryOrder = new RetryOrder();
  readonly #repeats = new Repeats();
  readonly #underWay = new Map<number, UnderWay>();
  /** Of events that come back: what the journal would say. */
  readonly #progress = new Map<number, Progress>();
  /** The objects of events that wait behind another, so that a look does not parse them each time. */
  readonly #objects = new Map<number, string>();
  readonly #walk: QueueWalk;
  #reactions: readonly Reaction[];
  #tagOf: TagOf;
  /** No event is begun any more. */
  readonly #closing = new AbortController();
  /** What is under way is ended. */
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
    this.#options = options;
    this.#reactions = options.reactions;
    this.#tagOf = options.tagOf ?? (() => undefined);
    this.#walk = new QueueWalk({
      page: (limit, afterId) => options.journal.runnable(limit, afterId),
      hasRoom: () => this.#hasRoom(),
      busyObjects: () => [...this.#underWay.values()].flatMap((one) => one.object ?? []),
      begin: (event, busy) => this.#begin(event, busy),
    });
    this.#run = {
      clock: options.clock,
      logger: options.logger,
      journal: options.journal,
      cooldowns: new Cooldowns(options.journal, options.clock),
      retryOrder: this.#retryOrder,
      perform: options.perform,
      repeats: this.#repeats,
      nowMs: options.nowMs,
      maxTries: options.maxTries ?? 8,
      onOutcome: options.onOutcome ?? (() => {}),
    };
  }

  /** Begins with whatever the inbox holds. `signal` ends everything at once, as `stop(0)` does. */
  start(signal?: AbortSignal): void {
    this.#started = true;
    signal?.addEventListener('abort', () => void this.stop(0), { once: true });
    this.wake();
  }

  /** There is something new in the inbox. Cheap; call it after every insert. */
  wake(): void {
    if (!this.#started || this.#closing.signal.aborted) return;
    this.#wanted = true;
    if (!this.#looking) this.#lookBegunMs = this.#options.clock.monotonicMs();
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
      if (this.#wanted) this.wake();
    });
  }

  /** Rules as they stand after a reload. What is under way keeps the old ones. */
  setReactions(reactions: readonly Reaction[], tagOf = this.#tagOf): void {
    this.#reactions = reactions;
    this.#tagOf = tagOf;
    this.#objects.clear();
    this.#walk.forget();
    this.wake();
  }

  /** Runs an event's reactions again because a person wants it: whatever its age and cooldown. */
  async replay(id: number): Promise<'queued' | 'unknown' | 'refused'> {
    if (this.#underWay.has(id)) return 'refused';
    const answer = await this.#options.journal.replay(id);
    if (answer === 'queued') {
      this.#progress.delete(id);
      this.#retryOrder.release(id);
      this.#walk.forget();
      this.wake();
    }
    return answer;
  }

  /** For the watchdog: whether the look into the inbox that is under way began within the time. */
  isAlive(nowMs: number, patienceMs: number): boolean {
    return this.#looking === undefined || nowMs - this.#lookBegunMs < patienceMs;
  }

  /** Events under way now. */
  get busy(): number {
    return this.#underWay.size;
  }

  /**
   * Begins nothing any more and lets what runs finish within `budgetMs`; then ends it (commands with their children), to run
   * again at the next start. Idempotent; a second call may shorten the first one's budget.
   */
  async stop(budgetMs: number): Promise<void> {
    this.#closing.abort(new Error('the daemon stops'));
    this.#nextLook?.cancel();
    const cancel = this.#options.clock.after(budgetMs, () => this.#ending.abort(new Error('the daemon stops')));
    if (budgetMs <= 0) this.#ending.abort(new Error('the daemon stops'));
    await this.#looking;
    await Promise.all([...this.#underWay.values()].map((one) => one.finished));
    cancel();
  }

  /** Begins as many events as may be under way. */
  async #look(): Promise<void> {
    this.#wanted = false;
    try {
      await this.#rememberRetries();
      const end = await this.#walk.walk();
      if (this.#failedLooks > 0) {
        const fields = { event: 'reaction.inbox_back', failures: this.#failedLooks };
        this.#options.logger.info(fields, 'the inbox can be read again');
        this.#repeats.end('inbox');
      }
      this.#failedLooks = 0;
      this.#lookAgainIn(end === 'more' ? LOOK_ON_MS : LOOK_EVERY_MS);
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

  /** What an earlier run left to be tried again keeps its place before later events of its object, though it is not due yet. */
  async #rememberRetries(): Promise<void> {
    while (!this.#knowsRetries) {
      const page = await this.#options.journal.retried(RETRIES_PAGE, this.#lastRetried);
      for (const event of page) {
        const facts = readFacts(event, this.#tagOf);
        const progress = new Progress(0, event.progress);
        for (const { name: reaction, actions } of this.#reactions.filter((one) => matches(one, facts))) {
          const open = nameActions(actions).filter((action) => progress.comesBack(reaction, action));
          for (const action of open) this.#retryOrder.take(reaction, facts.object, action, event.id);
        }
        this.#lastRetried = event.id;
      }
      this.#knowsRetries = page.length < RETRIES_PAGE;
    }
  }

  #hasRoom(): boolean {
    return !this.#closing.signal.aborted && this.#underWay.size < (this.#options.concurrency ?? 16);
  }

  /** Begins an event unless its object is busy; whoever waits keeps later ones of the object waiting. */
  #begin(event: InboxEvent, busy: Set<string>): void {
    if (this.#underWay.has(event.id)) return;
    const known = this.#objects.get(event.id);
    if (known !== undefined && busy.has(known)) return;
    const facts = readFacts(event, this.#tagOf);
    const isMeant = this.#reactions.some((one) => matches(one, facts));
    if (isMeant && busy.has(facts.object)) {
      if (this.#objects.size >= MAX_REMEMBERED) this.#objects.clear();
      this.#objects.set(event.id, facts.object);
      return;
    }
    this.#objects.delete(event.id);
    if (isMeant) busy.add(facts.object);
    const finished = this.#carry(event, facts, isMeant).finally(() => {
      this.#underWay.delete(event.id);
      this.wake();
    });
    this.#underWay.set(event.id, { object: isMeant ? facts.object : undefined, finished });
  }

  /** One event from its beginning to what the inbox is told of it. Never throws. */
  async #carry(event: InboxEvent, facts: EventFacts, isMeant: boolean): Promise<void> {
    const { clock, logger } = this.#options;
    try {
      const progress = this.#progress.get(event.id) ?? new Progress(clock.monotonicMs(), event.progress);
      // A type that nobody reacts to costs one commit, not two.
      if (isMeant) await this.#tolerate(event, this.#options.journal.markRunning(event.id));
      const run = new EventRun(this.#run, event, facts, progress, this.#ending.signal);
      const verdict = await run.run(this.#reactions);
      if (verdict.state === 'interrupted') {
        logger.warn(
          { event: 'reaction.interrupted', inboxId: event.id, digest: event.digest },
          'an event runs again at the next start',
        );
        return;
      }
      await this.#settle(event, verdict, progress);
    } catch (error) {
      // A fault of ours: the event is tried again rather than lost.
      logger.error(
        { event: 'reaction.fault', inboxId: event.id, digest: event.digest, err: error },
        'an event could not be worked on',
      );
      await this.#settle(event, { state: 'failed', retryInMs: STORE_RETRY.capMs }, undefined);
    }
  }

  /** Tells the inbox, for as long as it takes: an event that nobody settled would neither run again nor go. */
  async #settle(
    event: InboxEvent,
    verdict: Exclude<EventVerdict, { state: 'interrupted' }>,
    progress: Progress | undefined,
  ): Promise<void> {
    const { clock, journal, logger } = this.#options;
    const { id: inboxId, digest, eventType } = event;
    const retryInMs = verdict.state === 'failed' ? verdict.retryInMs : undefined;
    if (retryInMs === undefined) {
      this.#progress.delete(event.id);
      this.#retryOrder.release(event.id);
    } else if (progress) {
      if (this.#progress.size >= MAX_REMEMBERED) this.#progress.clear();
      this.#progress.set(event.id, progress);
    }
    for (let attempt = 0; ; attempt++) {
      try {
        await journal.finish(event.id, verdict.state, retryInMs);
        break;
      } catch (error) {
        if (attempt === 0) this.#sayJournal(error, event);
        if (this.#closing.signal.aborted) return;
        const wait = fullJitterMs(attempt, STORE_RETRY, () => clock.random(), 200);
        await clock.sleep(wait, this.#closing.signal).catch(() => {});
      }
    }
    const line = { event: 'reaction.event', inboxId, digest, eventType, state: verdict.state, retryInMs };
    logger.debug(line, retryInMs === undefined ? 'an event is over' : 'an event comes back later');
    if (retryInMs !== undefined) this.#lookAgainIn(retryInMs);
  }

  async #tolerate(event: InboxEvent, writing: Promise<unknown>): Promise<void> {
    try {
      await writing;
    } catch (error) {
      this.#sayJournal(error, event);
    }
  }

  #sayJournal(error: unknown, { id, digest }: InboxEvent): void {
    const { clock, logger } = this.#options;
    sayJournal(error, { inboxId: id, digest }, { clock, logger, repeats: this.#repeats });
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
