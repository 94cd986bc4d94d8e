/**
 * Does what the planner decided: takes a batch, pays for it, posts it, and draws the consequence of the answer.
 *
 * Every batch that is taken ends here in exactly one way: settled, released, divided or in quarantine, also when the
 * platform goes away in the middle or the agent stops. A crash leaves the posts under way in the buffer: they are posted
 * again. A part is paid for at the last moment before it is posted, so that the pace holds at the platform's door.
 */
import type { Batch, OutgoingBuffer } from '../buffer/lanes.ts';
import type { Clock } from '../clock.ts';
import { messageOf, PlatformError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { Repeats } from '../repeats.ts';
import type { BackfillRate } from './backfill-rate.ts';
import { Course } from './course.ts';
import type { Link } from './link.ts';
import type { PostDecision } from './planner.ts';
import type { AccessPort, PostBudget, UplinkHooks, ValuesClient } from './ports.ts';
import { postBatch } from './post.ts';
import type { PostSize } from './post-size.ts';
import type { Probes } from './probes.ts';
import type { Reach } from './reach.ts';
import { Refusals } from './refusals.ts';
import type { SeriesWaits } from './series-waits.ts';
import { Troubles } from './troubles.ts';
import type { Verdict } from './verdict.ts';
import type { Works } from './works.ts';

export interface SenderParts {
  buffer: OutgoingBuffer;
  client: ValuesClient;
  budget: PostBudget;
  access: AccessPort;
  clock: Clock;
  log: Logger;
  hooks: UplinkHooks;
  pathOf(asset: number): string;
  link: Link;
  reach: Reach;
  works: Works;
  waits: SeriesWaits;
  probes: Probes;
  size: PostSize;
  backfill: BackfillRate;
  /** Tells the buffer which series are held now. */
  holdSeries(): Promise<void>;
  /** An outage ended. */
  back(): void;
  /** Something changed: plan again. */
  wake(): void;
}

/** A try during an outage must be over before the next is due. */
const TRIAL_DEADLINE_MS = 50_000;
/** The client has timeouts of its own; this one is for a client that hangs. */
const POST_DEADLINE_MS = 600_000;
/** Longer than this a batch does not wait for its request: it goes back. */
const LONGEST_PAYMENT_MS = 2_000;
const STORE_RETRY_MS = 1_000;
/** The lanes said that there was something, the store that there was not: they will agree soon. */
const EMPTY_TAKE_MS = 250;

export class Sender {
  readonly #parts: SenderParts;
  readonly refusals: Refusals;
  readonly troubles: Troubles;
  readonly #stop = new AbortController();
  readonly #repeats = new Repeats();
  /** Tells the batches of this run from those of others in a log. */
  readonly #run: string;
  #batches = 0;
  /** Batches that were taken and wait for their request. */
  unpaid = 0;
  stopping = false;
  deliveredValues = 0;
  lastPostMs: number | undefined;
  lastDeliveredMs: number | undefined;

  constructor(parts: SenderParts) {
    this.#parts = parts;
    this.#run = Math.floor(parts.clock.wallMs() / 1000).toString(36);
    this.refusals = new Refusals({
      ...parts,
      keep: (call) => this.#keep(call),
      outage: (course, failure) => {
        course.abandoned = true;
        this.troubles.refusedByAll(failure);
      },
      answered: (course) => {
        course.trial = false;
        this.troubles.online();
      },
    });
    this.troubles = new Troubles({
      ...parts,
      abandonAll: () => this.#abandonAll(),
      logStore: (error) => this.#logStore(error),
    });
  }

  /** Runs the decision to its end. Never rejects. What the planner must see at once has changed when it returns a promise. */
  perform(decision: PostDecision): Promise<void> {
    this.unpaid++;
    let course: Course;
    if (decision.do === 'part') {
      course = decision.course as Course;
      course.isBusy = true;
      course.readySinceMs = Number.POSITIVE_INFINITY;
      return this.#postNext(course);
    }
    const { take, kind, trial, probe } = decision;
    const name = `${this.#run}-${++this.#batches}`;
    course = new Course({ name, asset: take.asset, lane: take.lane, kind, probe, trial });
    this.#parts.works.begin(course);
    if (kind === 'probe') this.#parts.works.occupyBoth(course);
    return this.#begin(course, decision);
  }

  async #begin(course: Course, { take }: PostDecision & { do: 'post' }): Promise<void> {
    const { buffer, works, clock, backfill, size } = this.#parts;
    let batch: Batch | undefined;
    // Reserved before the store answers: the planner may decide about the next post meanwhile.
    const reserved = backfill.isLimited ? (take.lane === 'backlog' ? take.maxValues : (take.alongValues ?? 0)) : 0;
    backfill.spend(reserved);
    try {
      const request = { ...take, maxBytes: size.maxBytes };
      batch = await buffer.take(request);
      if (!batch && course.kind === 'probe') batch = await buffer.take({ ...request, lane: 'live' });
    } catch (error) {
      this.#logStore(error);
      works.of(course.asset).pausedUntilMs = clock.monotonicMs() + STORE_RETRY_MS;
    }
    backfill.spend((batch?.backlogValues ?? 0) - reserved);
    if (!batch) {
      this.unpaid--;
      works.end(course);
      const nowMs = clock.monotonicMs();
      const work = works.of(course.asset);
      if (course.probe) this.#parts.probes.foundNothing(course.probe, nowMs);
      else work.pausedUntilMs = Math.max(work.pausedUntilMs, nowMs + EMPTY_TAKE_MS);
      return this.#parts.wake();
    }
    course.waiting = [batch];
    const { values, body } = batch;
    this.#log(course, 'uplink.taken', 'a batch is to be posted', {
      part: batch.id,
      lane: course.lane,
      kind: course.kind,
      values,
      bytes: body.length,
      series: batch.series.length,
      trial: course.trial || undefined,
    });
    if (batch.backlogValues > 0) {
      works.occupyBoth(course);
      works.of(course.asset).lastBacklogAtMs = clock.monotonicMs();
    }
    await this.#postNext(course);
  }

  async #postNext(course: Course): Promise<void> {
    const { works, reach, clock, budget, client, hooks, pathOf } = this.#parts;
    const paid = await this.#pay(course);
    this.unpaid--;
    this.#parts.wake();
    const batch = paid && !course.abandoned && !this.stopping ? course.start() : undefined;
    if (!batch) {
      if (paid) budget.giveBack();
      return course.exclusively(() => this.#abandon(course));
    }
    const startedMs = clock.monotonicMs();
    const post = reach.number();
    works.of(course.asset).lastPostAtMs = startedMs;
    this.lastPostMs = clock.wallMs();
    if (course.probe && !course.wasDivided) this.#parts.probes.goesOut(course.probe);
    const deadline = new AbortController();
    const cancel = clock.after(course.trial ? TRIAL_DEADLINE_MS : POST_DEADLINE_MS, () =>
      deadline.abort(new PlatformError('the post took too long', { code: 'platform.timeout', retryable: true })),
    );
    const signal = AbortSignal.any([this.#stop.signal, deadline.signal]);
    const verdict = await postBatch(client, pathOf(course.asset), batch, signal);
    cancel();
    hooks.posted?.(verdict?.meaning ?? 'aborted');
    this.#log(course, 'uplink.posted', 'a part of a batch was posted', {
      part: batch.id,
      post,
      values: batch.values,
      meaning: verdict?.meaning ?? 'aborted',
      code: verdict?.code,
      tookMs: Math.round(clock.monotonicMs() - startedMs),
    });
    await course.exclusively(() => this.#answered(course, batch, verdict, post, startedMs));
    this.#parts.wake();
  }

  /** Waits a moment for the request at most: `false` where the batch had better go back. */
  async #pay(course: Course): Promise<boolean> {
    const { budget, clock } = this.#parts;
    // A probe that was answered 400 has shown what it was to show: its parts are posts like any others.
    const kind = course.trial ? 'live' : course.wasDivided ? course.lane : course.kind;
    while (!this.stopping && !course.abandoned) {
      if (budget.tryTake(kind)) return true;
      const waitMs = budget.nextAtMs(kind) - clock.monotonicMs();
      if (waitMs > LONGEST_PAYMENT_MS) return false;
      await clock.sleep(Math.max(1, waitMs), this.#stop.signal).catch(() => {});
    }
    return false;
  }

  async #answered(course: Course, batch: Batch, verdict: Verdict | undefined, post: number, startedMs: number) {
    switch (verdict?.meaning) {
      case 'delivered':
        await this.#delivered(course, batch, post);
        break;
      case 'refused':
        await this.refusals.refused(course, batch, verdict);
        break;
      default:
        course.putBack([batch]);
        if (verdict) await this.troubles.met(course, verdict, post, startedMs);
        if (verdict && course.probe) this.#parts.probes.answered(course.probe, verdict);
        if (verdict?.meaning !== 'rest' || !course.wasDivided) course.abandoned = true;
    }
    await this.advance(course);
  }

  /** What comes after a part has ended: the next, a decision about what was refused, or the end. Inside `exclusively`. */
  async advance(course: Course): Promise<void> {
    const { works, clock } = this.#parts;
    if (course.abandoned || this.stopping) return this.#abandon(course);
    const next = this.refusals.decide(course);
    if (course.abandoned) return this.#abandon(course);
    course.isBusy = false;
    if (next === 'over') works.end(course);
    if (next === 'ready') course.readySinceMs = Math.min(course.readySinceMs, clock.monotonicMs());
    this.#parts.wake();
  }

  /** Looks again at courses that wait to know whether the platform takes anything. */
  lookAgain(): void {
    for (const course of this.#parts.works.courses) {
      if (course.deferred.length > 0) this.#whileIdle(course, () => this.advance(course));
    }
  }

  /** Does it as soon as nothing else works on the course; not at all where it posts then or is over. */
  #whileIdle(course: Course, work: () => Promise<void>): void {
    const done = course.exclusively(async () => {
      if (course.isBusy || !this.#parts.works.courses.has(course)) return;
      // It keeps its turn, but must not be picked while it is worked on.
      const sinceMs = course.readySinceMs;
      course.isBusy = true;
      course.readySinceMs = Number.POSITIVE_INFINITY;
      await work();
      if (course.readySinceMs !== Number.POSITIVE_INFINITY)
        course.readySinceMs = Math.min(sinceMs, course.readySinceMs);
    });
    done.catch((error) => this.#logStore(error));
  }

  /** Everything that waits in courses goes back; what is posting ends first. */
  #abandonAll(): void {
    for (const course of this.#parts.works.courses) {
      course.abandoned = true;
      this.#whileIdle(course, () => this.#abandon(course));
    }
  }

  async #delivered(course: Course, batch: Batch, post: number): Promise<void> {
    const { buffer, reach, clock, hooks, access, waits, log } = this.#parts;
    course.posting = undefined;
    course.taken++;
    await this.#keep(() => buffer.settle(batch.id));
    this.#log(course, 'uplink.settled', 'values are delivered', { part: batch.id, post, values: batch.values });
    this.deliveredValues += batch.values;
    this.lastDeliveredMs = clock.wallMs();
    hooks.delivered?.(batch.values);
    reach.taken(course.asset, post, clock.monotonicMs());
    this.troubles.over(course.asset, post);
    this.refusals.taken(batch);
    const released = waits.taken(batch.series);
    if (released.length > 0) {
      await this.#parts.holdSeries();
      log.info(
        { event: 'uplink.series_back', batch: course.name, asset: course.asset, series: released },
        'a series is taken again',
      );
    }
    if (course.kind === 'probe' || access.isHeld(course.asset)) {
      await access.delivered(course.asset, batch.series).catch((error) => this.#logStore(error));
    }
    this.lookAgain();
  }

  /** Everything of the course that is not posting waits again in its old place. Inside `exclusively`. */
  async #abandon(course: Course): Promise<void> {
    const { buffer, works, waits } = this.#parts;
    course.abandoned = true;
    for (const part of course.takeOutAll()) {
      // A refusal that was not confirmed counts for nothing.
      if (part.values === 1) waits.forget(part.series[0]!);
      await this.#keep(() => buffer.release(part.id));
      this.#log(course, 'uplink.later', 'values wait in the buffer again', { part: part.id, values: part.values });
    }
    if (!course.posting) works.end(course);
    this.#parts.wake();
  }

  /** Nothing new from now on; what waits goes back. Posts under way go on until `abort`. */
  beginStop(): void {
    this.stopping = true;
    this.#abandonAll();
  }

  abort(): void {
    this.#stop.abort(new Error('the uplink stops'));
  }

  /** A batch that was answered must end: the store is asked until it does, unless the agent stops. */
  async #keep<Answer>(call: () => Promise<Answer>): Promise<Answer> {
    for (;;) {
      try {
        return await call();
      } catch (error) {
        this.#logStore(error);
        if (this.stopping) throw error;
        await this.#parts.clock.sleep(STORE_RETRY_MS, this.#stop.signal);
      }
    }
  }

  /** One step of a batch. A busy uplink takes hundreds of them in a second, so they are told at debug alone. */
  #log(course: Course, event: string, message: string, fields: object): void {
    this.#parts.log.debug({ event, batch: course.name, asset: course.asset, ...fields }, message);
  }

  #logStore(error: unknown): void {
    const { clock, log } = this.#parts;
    const words = messageOf(error);
    const count = this.#repeats.note(`store:${words}`, clock.monotonicMs());
    if (count !== undefined)
      log.error({ event: 'uplink.store_trouble', words, count }, 'the store did not answer as it should');
  }
}
