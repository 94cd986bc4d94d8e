import type { Clock } from '../clock.ts';
import type { Reaction } from '../config/reactions.ts';
import { codeOf, messageOf, TagferryError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { Repeats } from '../repeats.ts';
import { fullJitterMs } from '../retry.ts';
import type { Perform } from './action.ts';
import { Cooldowns } from './cooldowns.ts';
import { type EventFacts, readFacts } from './event-facts.ts';
import { EventRun, type EventRunOptions, type EventVerdict, sayJournal } from './event-run.ts';
import type { InboxEvent, Journal } from './journal.ts';
import { Progress, REPLAY_MARK } from './progress.ts';
import { QueueWalk } from './queue-walk.ts';
import { matches } from './rules.ts';
import { Turns } from './turns.ts';

/**
 * Runs the reactions of the events in the inbox: after the 204, never inside the request.
 *
 * States of an event as the runner sees it: waiting in the inbox, under way (one of `concurrency` at once), over. Events of one
 * object (`EventFacts.object`) are under way one at a time and in the order they arrived; those of different objects side
 * by side. An event whose action failed leaves its place and comes back when its retry is due; later events of the object go
 * on meanwhile, save for that same action (`Turns`).
 *
 * Invariants: `before` (the holds) is asked first, and does not wait for a place: what appeared and disappeared acts although
 * slow commands hold every one. An event that no rule means has no place in its object's order. A reaction that is done for an event is not run for it again, unless a
 * person asks. An event is `done` only when every action is done or was skipped for a reason. The disk's refusal to write the
 * journal stops no action.
 *
 * A crash leaves events `running`; the inbox gives them out again at the next start, and the actions that the journal does
 * not call done run again. So an action runs at least once, and may run twice if the crash came before it was recorded.
 */
export interface ReactionRunnerOptions {
  journal: Journal;
  reactions: readonly Reaction[];
  perform: Perform;
  clock: Clock;
  logger: Logger;
  /** A clock to judge `max_age` by: the wall clock once it is trusted, or the platform's `Date` carried on; `undefined` while unknown. */
  trustedNowMs: () => number | undefined;
  /** Awaited before an event's reactions: where holds learn what appeared and disappeared. */
  before?: (event: InboxEvent) => Promise<void>;
  onOutcome?: EventRunOptions['onOutcome'];
  /** Events under way at once; 16 unless told: most of a reaction is waiting, and an incident must not start 500 processes. */
  concurrency?: number;
  /** Tries of one action that is given up by its count; 8 unless told: about two minutes. */
  mostTries?: number;
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
const MOST_REMEMBERED = 4_000;

export class ReactionRunner {
  readonly #options: ReactionRunnerOptions;
  readonly #run: EventRunOptions;
  readonly #turns = new Turns();
  readonly #repeats = new Repeats();
  readonly #underWay = new Map<number, UnderWay>();
  /** Of events that come back: what the journal would say. */
  readonly #progress = new Map<number, Progress>();
  /** The objects of events that wait behind another, so that a look does not parse them each time. */
  readonly #objects = new Map<number, string>();
  /** Events that wait, but were shown to `before`; whether that went well. */
  readonly #shown = new Map<number, Promise<boolean>>();
  readonly #walk: QueueWalk;
  #reactions: readonly Reaction[];
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

  constructor(options: ReactionRunnerOptions) {
    this.#options = options;
    this.#reactions = options.reactions;
    this.#walk = new QueueWalk({
      page: (limit, afterId) => options.journal.runnable(limit, options.clock.wallMs(), afterId),
      hasRoom: () => this.#hasRoom(),
      busyObjects: () => [...this.#underWay.values()].flatMap((one) => one.object ?? []),
      begin: (event, busy) => this.#begin(event, busy),
      show: (event) => this.#show(event),
    });
    this.#run = {
      clock: options.clock,
      logger: options.logger,
      journal: options.journal,
      cooldowns: new Cooldowns(options.journal, options.clock),
      turns: this.#turns,
      perform: options.perform,
      repeats: this.#repeats,
      trustedNowMs: options.trustedNowMs,
      mostTries: options.mostTries ?? 8,
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
  setReactions(reactions: readonly Reaction[]): void {
    this.#reactions = reactions;
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
      this.#turns.release(id);
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
    await Promise.all(this.#shown.values());
    await Promise.all([...this.#underWay.values()].map((one) => one.finished));
    cancel();
  }

  /** Begins as many events as may be under way. */
  async #look(): Promise<void> {
    this.#wanted = false;
    try {
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
        const fields = { event: 'reaction.inbox', code: codeOf(error), detail: messageOf(error), count };
        logger.error(fields, 'the inbox cannot be read: reactions wait');
      }
      this.#lookAgainIn(fullJitterMs(this.#failedLooks++, STORE_RETRY, () => clock.random(), 500));
    }
  }

  #hasRoom(): boolean {
    return !this.#closing.signal.aborted && this.#underWay.size < (this.#options.concurrency ?? 16);
  }

  /** Begins an event unless its object is busy; whoever waits keeps later ones of the object waiting. */
  #begin(event: InboxEvent, busy: Set<string>): boolean {
    if (this.#underWay.has(event.id)) return true;
    const known = this.#objects.get(event.id);
    if (known !== undefined && busy.has(known)) return false;
    const facts = readFacts(event);
    const isMeant = this.#reactions.some((one) => matches(one, facts));
    if (isMeant && busy.has(facts.object)) {
      if (this.#objects.size >= MOST_REMEMBERED) this.#objects.clear();
      this.#objects.set(event.id, facts.object);
      return false;
    }
    this.#objects.delete(event.id);
    if (isMeant) busy.add(facts.object);
    const finished = this.#carry(event, facts, isMeant).finally(() => {
      this.#underWay.delete(event.id);
      this.wake();
    });
    this.#underWay.set(event.id, { object: isMeant ? facts.object : undefined, finished });
    return true;
  }

  /** Lets `before` see an event that has to wait for its place. */
  #show(event: InboxEvent): void {
    const { before } = this.#options;
    if (!before || this.#shown.has(event.id) || this.#underWay.has(event.id)) return;
    if (this.#closing.signal.aborted || this.#shown.size >= MOST_REMEMBERED) return;
    // Where it fails, the event's own turn tries again and says so.
    const seen = before(event).then(
      () => true,
      () => false,
    );
    this.#shown.set(event.id, seen);
  }

  /** One event from its beginning to what the inbox is told of it. Never throws. */
  async #carry(event: InboxEvent, facts: EventFacts, isMeant: boolean): Promise<void> {
    const { logger } = this.#options;
    try {
      const progress = await this.#progressOf(event);
      // A type that nobody reacts to costs one commit, not two.
      if (isMeant) await this.#tolerate(event, this.#options.journal.markRunning(event.id));
      const prepared = await this.#prepare(event, progress);
      const run = new EventRun(this.#run, event, facts, progress, this.#ending.signal);
      const verdict = worseOf(await run.run(this.#reactions), prepared);
      if (verdict.state === 'interrupted') {
        logger.warn(
          { event: 'reaction.interrupted', inbox_id: event.id, digest: event.digest },
          'an event runs again at the next start',
        );
        return;
      }
      await this.#settle(event, verdict, progress);
    } catch (error) {
      // A fault of ours: the event is tried again rather than lost.
      logger.error(
        { event: 'reaction.fault', inbox_id: event.id, digest: event.digest, err: error },
        'an event could not be worked on',
      );
      await this.#settle(event, { state: 'failed', retryInMs: STORE_RETRY.capMs }, undefined);
    }
  }

  async #progressOf(event: InboxEvent): Promise<Progress> {
    const remembered = this.#progress.get(event.id);
    if (remembered) return remembered;
    const nowMs = this.#options.clock.monotonicMs();
    if (event.attempts > 0) return new Progress(nowMs, (await this.#options.journal.show(event.id))?.journal);
    if (event.replayed) {
      const mark = { ...REPLAY_MARK, durationMs: 0, atMs: this.#options.clock.wallMs() };
      await this.#tolerate(event, this.#options.journal.recordAttempt(event.id, mark));
    }
    return new Progress(nowMs);
  }

  async #prepare(event: InboxEvent, progress: Progress): Promise<EventVerdict> {
    const { before, clock, logger } = this.#options;
    if (!before || progress.prepared) return { state: 'done' };
    if (await this.#shown.get(event.id)) {
      progress.prepared = true;
      this.#shown.delete(event.id);
      return { state: 'done' };
    }
    this.#shown.delete(event.id);
    try {
      await before(event);
      progress.prepared = true;
      return { state: 'done' };
    } catch (error) {
      // The disk's trouble passes; anything else is a fault that repeating does not mend for ever.
      const passes = error instanceof TagferryError && error.retryable;
      if (!passes) progress.beforeFailures++;
      const dead = progress.beforeFailures >= this.#run.mostTries;
      const { id: inbox_id, digest } = event;
      const count = this.#repeats.note(`before:${codeOf(error)}`, clock.monotonicMs());
      const fields = {
        event: 'reaction.before',
        inbox_id,
        digest,
        code: codeOf(error),
        detail: messageOf(error),
        count,
      };
      logger[count === undefined ? 'debug' : 'warn'](fields, 'what an event says about access could not be kept yet');
      const retryInMs = fullJitterMs(progress.beforeFailures, STORE_RETRY, () => clock.random(), 1_000);
      return dead ? { state: 'dead' } : { state: 'failed', retryInMs };
    }
  }

  /** Tells the inbox, for as long as it takes: an event that nobody settled would neither run again nor go. */
  async #settle(
    event: InboxEvent,
    verdict: Exclude<EventVerdict, { state: 'interrupted' }>,
    progress: Progress | undefined,
  ): Promise<void> {
    const { clock, journal, logger } = this.#options;
    const { id: inbox_id, digest, eventType: event_type } = event;
    const retryInMs = verdict.state === 'failed' ? verdict.retryInMs : undefined;
    if (retryInMs === undefined) {
      this.#progress.delete(event.id);
      this.#turns.release(event.id);
    } else if (progress) {
      if (this.#progress.size >= MOST_REMEMBERED) this.#progress.clear();
      this.#progress.set(event.id, progress);
    }
    for (let attempt = 0; ; attempt++) {
      try {
        const retryAtMs = retryInMs === undefined ? undefined : clock.wallMs() + retryInMs;
        await journal.finish(event.id, verdict.state, retryAtMs);
        break;
      } catch (error) {
        if (attempt === 0) this.#sayJournal(error, event);
        if (this.#closing.signal.aborted) return;
        const wait = fullJitterMs(attempt, STORE_RETRY, () => clock.random(), 200);
        await clock.sleep(wait, this.#closing.signal).catch(() => {});
      }
    }
    const line = { event: 'reaction.event', inbox_id, digest, event_type, state: verdict.state, retryInMs };
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
    sayJournal(error, { inbox_id: id, digest }, { clock, logger, repeats: this.#repeats });
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

/** The reactions' verdict, unless what precedes them has to be done again. */
function worseOf(run: EventVerdict, prepared: EventVerdict): EventVerdict {
  if (run.state === 'interrupted' || prepared.state === 'done') return run;
  if (run.state === 'failed' && prepared.state === 'failed') {
    return { state: 'failed', retryInMs: Math.min(run.retryInMs, prepared.retryInMs) };
  }
  return run.state === 'failed' ? run : prepared;
}
