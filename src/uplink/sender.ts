/**
 * Does what the planner decided: takes a batch, pays for it, posts it, and draws the consequence of the answer.
 *
 * Every batch that is taken ends here in exactly one way: settled, released, divided or in quarantine, also when the
 * platform goes away in the middle or the agent stops. A crash leaves the posts under way in the buffer: they are posted
 * again. A slice is paid for at the last moment before it is posted, so that the pace holds at the platform's door.
 */

import type { Clock } from '../base/clock.ts';
import { messageOf, PlatformError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { Batch, OutgoingBuffer } from '../buffer/client/lanes.ts';
import type { AnswerTime } from './answer-time.ts';
import type { AssetSchedule } from './asset-schedule.ts';
import type { BackfillRate } from './backfill-rate.ts';
import { BatchDelivery } from './batch-delivery.ts';
import { Failures, type Posted } from './failures.ts';
import type { FaultAttribution } from './fault-attribution.ts';
import type { PostDecision } from './planner.ts';
import type { PlatformAvailability } from './platform-availability.ts';
import type { AccessPort, AddressPort, PostBudget, UplinkHooks, ValuesClient } from './ports.ts';
import { postBatch } from './post.ts';
import type { PostSize } from './post-size.ts';
import type { Probes } from './probes.ts';
import { Rejections } from './rejections.ts';
import type { SeriesWaits } from './series-waits.ts';
import type { Verdict } from './verdict.ts';

export interface SenderParts {
  buffer: OutgoingBuffer;
  client: ValuesClient;
  budget: PostBudget;
  access: AccessPort;
  clock: Clock;
  log: Logger;
  hooks: UplinkHooks;
  addresses: AddressPort;
  availability: PlatformAvailability;
  faults: FaultAttribution;
  schedule: AssetSchedule;
  waits: SeriesWaits;
  probes: Probes;
  size: PostSize;
  answers: AnswerTime;
  /** Statuses with which the platform says that it took a post. */
  success(): readonly number[];
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
const MAX_PAYMENT_MS = 2_000;
const STORE_RETRY_MS = 1_000;
/** The lanes said that there was something, the store that there was not: they will agree soon. */
const EMPTY_TAKE_MS = 250;

export class Sender {
  readonly #parts: SenderParts;
  readonly rejections: Rejections;
  readonly failures: Failures;
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
    this.rejections = new Rejections({
      ...parts,
      keep: (call) => this.#keep(call),
      outage: (delivery, failure) => {
        delivery.abandoned = true;
        this.failures.refusedByAll(failure);
      },
      answered: (delivery) => {
        delivery.trial = false;
        this.failures.online();
      },
    });
    this.failures = new Failures({
      ...parts,
      abandonAll: () => this.abandonAll(),
      logStore: (error) => this.#logStore(error),
    });
  }

  /** Runs the decision to its end. Never rejects. What the planner must see at once has changed when it returns a promise. */
  perform(decision: PostDecision): Promise<void> {
    this.unpaid++;
    let delivery: BatchDelivery;
    if (decision.do === 'slice') {
      delivery = decision.delivery as BatchDelivery;
      delivery.isBusy = true;
      delivery.readySinceMs = Number.POSITIVE_INFINITY;
      return this.#postNext(delivery);
    }
    const { take, kind, trial, probe } = decision;
    const name = `${this.#run}-${++this.#batches}`;
    delivery = new BatchDelivery({ name, asset: take.asset, lane: take.lane, kind, probe, trial });
    this.#parts.schedule.begin(delivery);
    if (kind === 'probe') this.#parts.schedule.occupyBoth(delivery);
    return this.#begin(delivery, decision);
  }

  async #begin(delivery: BatchDelivery, { take }: PostDecision & { do: 'post' }): Promise<void> {
    const { buffer, schedule, clock, backfill, size, addresses } = this.#parts;
    let batch: Batch | undefined;
    // Reserved before the store answers: the planner may decide about the next post meanwhile.
    const reserved = backfill.isLimited ? (take.lane === 'backlog' ? take.maxValues : (take.alongValues ?? 0)) : 0;
    backfill.spend(reserved);
    try {
      const request = { ...take, maxBytes: size.maxBytes, oneInstrumentation: addresses.byInstrumentation };
      batch = await buffer.take(request);
      if (!batch && delivery.kind === 'probe') batch = await buffer.take({ ...request, lane: 'live' });
    } catch (error) {
      this.#logStore(error);
      schedule.of(delivery.asset).pausedUntilMs = clock.monotonicMs() + STORE_RETRY_MS;
    }
    backfill.spend((batch?.backlogValues ?? 0) - reserved);
    if (!batch) {
      this.unpaid--;
      schedule.end(delivery);
      const nowMs = clock.monotonicMs();
      const entry = schedule.of(delivery.asset);
      if (delivery.probe) this.#parts.probes.foundNothing(delivery.probe, nowMs);
      else entry.pausedUntilMs = Math.max(entry.pausedUntilMs, nowMs + EMPTY_TAKE_MS);
      return this.#parts.wake();
    }
    delivery.waiting = [batch];
    const { values, body } = batch;
    this.#log(delivery, 'uplink.taken', 'a batch is to be posted', {
      slice: batch.id,
      lane: delivery.lane,
      kind: delivery.kind,
      values,
      bytes: body.length,
      series: batch.series.length,
      trial: delivery.trial || undefined,
    });
    if (batch.backlogValues > 0) {
      schedule.occupyBoth(delivery);
      schedule.of(delivery.asset).lastBacklogAtMs = clock.monotonicMs();
    }
    if (!addresses.of(batch)) {
      this.unpaid--;
      return delivery.exclusively(() => this.rejections.unaddressed(delivery, batch));
    }
    await this.#postNext(delivery);
  }

  async #postNext(delivery: BatchDelivery): Promise<void> {
    const { schedule, faults, clock, budget, client, hooks, addresses, answers, success } = this.#parts;
    const paid = await this.#pay(delivery);
    this.unpaid--;
    this.#parts.wake();
    const batch = paid && !delivery.abandoned && !this.stopping ? delivery.start() : undefined;
    const address = batch && addresses.of(batch);
    if (!batch || !address) {
      if (batch) delivery.putBack([batch]);
      if (paid) budget.giveBack();
      return delivery.exclusively(() => this.#abandon(delivery));
    }
    const startedMs = clock.monotonicMs();
    const post = faults.number();
    schedule.of(delivery.asset).lastPostAtMs = startedMs;
    this.lastPostMs = clock.wallMs();
    if (delivery.probe && !delivery.wasDivided) this.#parts.probes.goesOut(delivery.probe);
    const deadline = new AbortController();
    const cancel = clock.after(delivery.trial ? TRIAL_DEADLINE_MS : POST_DEADLINE_MS, () =>
      deadline.abort(new PlatformError('the post took too long', { code: 'platform.timeout', retryable: true })),
    );
    const signal = AbortSignal.any([this.#stop.signal, deadline.signal]);
    const { length } = batch.body;
    const deadlineMs = answers.limitMs(delivery.asset, length, startedMs);
    const verdict = await postBatch(client, address.path, batch, { success: success(), deadlineMs, signal });
    cancel();
    const nowMs = clock.monotonicMs();
    if (verdict && verdict.status > 0) answers.came(delivery.asset, length, nowMs - startedMs, nowMs);
    else if (verdict?.code === 'platform.timeout') answers.ranOut(delivery.asset);
    hooks.posted?.(verdict?.meaning ?? 'aborted');
    this.#log(delivery, 'uplink.posted', 'a slice of a batch was posted', {
      slice: batch.id,
      post,
      values: batch.values,
      meaning: verdict?.meaning ?? 'aborted',
      code: verdict?.code,
      tookMs: Math.round(nowMs - startedMs),
    });
    const { instrumentation } = address;
    await delivery.exclusively(() => this.#answered(delivery, batch, verdict, { post, startedMs, instrumentation }));
    this.#parts.wake();
  }

  /** Waits a moment for the request at most: `false` where the batch had better go back. */
  async #pay(delivery: BatchDelivery): Promise<boolean> {
    const { budget, clock } = this.#parts;
    // A probe that was answered 400 has shown what it was to show: its slices are posts like any others.
    const kind = delivery.trial ? 'live' : delivery.wasDivided ? delivery.lane : delivery.kind;
    while (!this.stopping && !delivery.abandoned) {
      if (budget.tryTake(kind)) return true;
      const waitMs = budget.nextAtMs(kind) - clock.monotonicMs();
      if (waitMs > MAX_PAYMENT_MS) return false;
      await clock.sleep(Math.max(1, waitMs), this.#stop.signal).catch(() => {});
    }
    return false;
  }

  async #answered(delivery: BatchDelivery, batch: Batch, verdict: Verdict | undefined, posted: Posted) {
    switch (verdict?.meaning) {
      case 'delivered':
        await this.#delivered(delivery, batch, posted.post);
        break;
      case 'refused':
        await this.rejections.refused(delivery, batch, verdict);
        break;
      default:
        delivery.putBack([batch]);
        if (verdict) await this.failures.met(delivery, verdict, posted);
        if (verdict && delivery.probe) this.#parts.probes.answered(delivery.probe, verdict);
        if (verdict?.meaning !== 'rest' || !delivery.wasDivided) delivery.abandoned = true;
    }
    await this.advance(delivery);
  }

  /** What comes after a slice has ended: the next, a decision about what was refused, or the end. Inside `exclusively`. */
  async advance(delivery: BatchDelivery): Promise<void> {
    const { schedule, clock } = this.#parts;
    if (delivery.abandoned || this.stopping) return this.#abandon(delivery);
    const next = this.rejections.decide(delivery);
    if (delivery.abandoned) return this.#abandon(delivery);
    delivery.isBusy = false;
    if (next === 'over') schedule.end(delivery);
    if (next === 'ready') delivery.readySinceMs = Math.min(delivery.readySinceMs, clock.monotonicMs());
    this.#parts.wake();
  }

  /** Looks again at deliveries that wait to know whether the platform takes anything. */
  lookAgain(): void {
    for (const delivery of this.#parts.schedule.deliveries) {
      if (delivery.deferred.length > 0) this.#whileIdle(delivery, () => this.advance(delivery));
    }
  }

  /** Does it as soon as nothing else works on the delivery; not at all where it posts then or is over. */
  #whileIdle(delivery: BatchDelivery, work: () => Promise<void>): void {
    const done = delivery.exclusively(async () => {
      if (delivery.isBusy || !this.#parts.schedule.deliveries.has(delivery)) return;
      // It keeps its turn, but must not be picked while it is worked on.
      const sinceMs = delivery.readySinceMs;
      delivery.isBusy = true;
      delivery.readySinceMs = Number.POSITIVE_INFINITY;
      await work();
      if (delivery.readySinceMs !== Number.POSITIVE_INFINITY)
        delivery.readySinceMs = Math.min(sinceMs, delivery.readySinceMs);
    });
    done.catch((error) => this.#logStore(error));
  }

  /** Everything that waits in deliveries goes back; what is posting ends first. */
  abandonAll(): void {
    for (const delivery of this.#parts.schedule.deliveries) {
      delivery.abandoned = true;
      this.#whileIdle(delivery, () => this.#abandon(delivery));
    }
  }

  async #delivered(delivery: BatchDelivery, batch: Batch, post: number): Promise<void> {
    const { buffer, faults, clock, hooks, access, waits, log } = this.#parts;
    delivery.posting = undefined;
    delivery.taken++;
    await this.#keep(() => buffer.settle(batch.id));
    this.#log(delivery, 'uplink.settled', 'values are delivered', { slice: batch.id, post, values: batch.values });
    this.deliveredValues += batch.values;
    this.lastDeliveredMs = clock.wallMs();
    hooks.delivered?.(batch.values);
    faults.taken(delivery.asset, post, clock.monotonicMs());
    this.failures.over(delivery.asset, post);
    this.rejections.taken(batch);
    const released = waits.taken(batch.series);
    if (released.length > 0) {
      await this.#parts.holdSeries();
      log.info(
        { event: 'uplink.series_back', batch: delivery.name, asset: delivery.asset, series: released },
        'a series is taken again',
      );
    }
    if (delivery.kind === 'probe' || access.isHeld(delivery.asset)) {
      await access.delivered(delivery.asset, batch.series).catch((error) => this.#logStore(error));
    }
    this.lookAgain();
  }

  /** Everything of the delivery that is not posting waits again in its old place. Inside `exclusively`. */
  async #abandon(delivery: BatchDelivery): Promise<void> {
    const { buffer, schedule, waits } = this.#parts;
    delivery.abandoned = true;
    for (const slice of delivery.takeOutAll()) {
      // A refusal that was not confirmed counts for nothing.
      if (slice.values === 1) waits.forget(slice.series[0]!);
      await this.#keep(() => buffer.release(slice.id));
      this.#log(delivery, 'uplink.later', 'values wait in the buffer again', { slice: slice.id, values: slice.values });
    }
    if (!delivery.posting) schedule.end(delivery);
    this.#parts.wake();
  }

  /** Nothing new from now on; what waits goes back. Posts under way go on until `abort`. */
  beginStop(): void {
    this.stopping = true;
    this.abandonAll();
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
  #log(delivery: BatchDelivery, event: string, message: string, fields: object): void {
    this.#parts.log.debug({ event, batch: delivery.name, asset: delivery.asset, ...fields }, message);
  }

  #logStore(error: unknown): void {
    const { clock, log } = this.#parts;
    const words = messageOf(error);
    const count = this.#repeats.note(`store:${words}`, clock.monotonicMs());
    if (count !== undefined)
      log.error({ event: 'uplink.store_trouble', words, count }, 'the store did not answer as it should');
  }
}
