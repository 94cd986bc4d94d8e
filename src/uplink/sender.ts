/**
 * Does what the planner decided: takes a batch, pays for it, posts it, and hands on what it met (outcome.ts says what follows).
 * A slice is paid for at the last moment before it is posted, so that the pace holds where the platform counts. A crash leaves
 * the posts under way in the buffer: they are posted again.
 */

import type { Clock } from '../base/clock.ts';
import { PlatformError } from '../base/errors.ts';
import type { Batch, OutgoingBuffer } from '../buffer/client/lanes.ts';
import type { AnswerTime } from './answer-time.ts';
import type { AssetSchedule } from './asset-schedule.ts';
import type { BackfillRate } from './backfill-rate.ts';
import { type BatchDelivery, slicesIn } from './batch-delivery.ts';
import type { DeliveryLog } from './delivery-log.ts';
import type { Effects } from './effects.ts';
import type { FaultAttribution } from './fault-attribution.ts';
import type { PostDecision } from './planner.ts';
import type { AddressPort, PostBudget, UplinkHooks, ValuesClient } from './ports.ts';
import { askedWaitMs, postBatch } from './post.ts';
import type { PostAddress } from './post-address.ts';
import type { PostSize } from './post-size.ts';
import type { Verdict } from './verdict.ts';

export interface SenderParts {
  buffer: OutgoingBuffer;
  client: ValuesClient;
  budget: PostBudget;
  clock: Clock;
  deliveryLog: DeliveryLog;
  hooks: UplinkHooks;
  addresses: AddressPort;
  faults: FaultAttribution;
  schedule: AssetSchedule;
  size: PostSize;
  answers: AnswerTime;
  backfill: BackfillRate;
  effects: Effects;
  /** `success`: statuses with which the platform says that it took a post. Read at each post: a reload may change it. */
  options: { readonly success: readonly number[] };
  /** Posts under way are broken off when it fires. */
  signal: AbortSignal;
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

export class Sender {
  readonly #parts: SenderParts;
  /** Tells the batches of this run from those of others in a log. */
  readonly #run: string;
  #batches = 0;
  lastPostMs: number | undefined;

  constructor(parts: SenderParts) {
    this.#parts = parts;
    this.#run = Math.floor(parts.clock.wallMs() / 1000).toString(36);
  }

  /** Runs the decision to its end. Rejects only where the store is gone while the agent stops. What the planner must see at once has changed when it returns a promise. */
  async perform(decision: PostDecision): Promise<void> {
    const { buffer, effects, schedule } = this.#parts;
    if (decision.do === 'slice') {
      const delivery = schedule.named(decision.delivery.name);
      if (!delivery) return;
      await effects.meet(delivery, { kind: 'turn' });
      return this.#postNext(delivery);
    }
    const { take, kind, trial, probe } = decision;
    const name = `${this.#run}-${++this.#batches}`;
    const state = { kind: 'taking', after: 'next' } as const;
    const acceptedMs = take.lane === 'live' ? buffer.lanes().get(take.asset)?.oldestLiveAtMs : undefined;
    const delivery: BatchDelivery = { name, asset: take.asset, lane: take.lane, kind, acceptedMs, probe, trial, state };
    schedule.begin(delivery);
    if (kind === 'probe') schedule.occupyBoth(delivery);
    const batch = await this.#take(delivery, decision);
    if (!batch) return effects.meet(delivery, { kind: 'nothing' });
    if (!this.#parts.addresses.of(batch)) return effects.meet(delivery, { kind: 'unaddressed', batch });
    await effects.meet(delivery, { kind: 'cut', batch });
    await this.#postNext(delivery);
  }

  async #take(delivery: BatchDelivery, { take }: PostDecision & { do: 'post' }): Promise<Batch | undefined> {
    const { buffer, schedule, clock, backfill, size, addresses, deliveryLog } = this.#parts;
    let batch: Batch | undefined;
    // Reserved before the store answers: the planner may decide about the next post meanwhile.
    const reserved = backfill.isLimited ? (take.lane === 'backlog' ? take.maxValues : (take.alongValues ?? 0)) : 0;
    backfill.spend(reserved);
    try {
      const request = { ...take, maxBytes: size.maxBytes, oneInstrumentation: addresses.byInstrumentation };
      batch = await buffer.take(request);
      if (!batch && delivery.kind === 'probe') batch = await buffer.take({ ...request, lane: 'live' });
    } catch (error) {
      deliveryLog.storeFailed(error);
      schedule.of(delivery.asset).pausedUntilMs = clock.monotonicMs() + STORE_RETRY_MS;
    }
    backfill.spend((batch?.backlogValues ?? 0) - reserved);
    if (!batch) return undefined;
    schedule.of(delivery.asset).isDraining =
      batch.backlogValues > 0 && batch.values >= Math.max(take.maxValues, take.alongValues ?? 0);
    deliveryLog.taken(delivery, batch, delivery);
    if (batch.backlogValues > 0) {
      schedule.occupyBoth(delivery);
      schedule.of(delivery.asset).lastBacklogAtMs = clock.monotonicMs();
    }
    return batch;
  }

  async #postNext(delivery: BatchDelivery): Promise<void> {
    const { addresses, effects } = this.#parts;
    const paid = await this.#pay(delivery);
    const slice = slicesIn(delivery.state).waiting[0];
    const address = paid && this.#mayPost(delivery) && slice ? addresses.of(slice) : undefined;
    if (!slice || !address) return effects.meet(delivery, { kind: 'unsent', paid });
    const { faults, clock } = this.#parts;
    const { instrumentation } = address;
    const posted = { post: faults.number(), startedMs: clock.monotonicMs(), instrumentation };
    const verdict = await this.#post(delivery, slice, address, posted);
    if (!verdict) return effects.meet(delivery, { kind: 'broken off' });
    const answer = { ...posted, verdict, askedMs: askedWaitMs(verdict, clock), at: faults.next };
    await effects.meet(delivery, { kind: 'answered', answer });
  }

  #mayPost({ state }: BatchDelivery): boolean {
    return 'after' in state && state.after === 'next';
  }

  /** Waits a moment for the request at most: `false` where the batch had better go back. */
  async #pay(delivery: BatchDelivery): Promise<boolean> {
    const { budget, clock, signal } = this.#parts;
    // A probe that was answered 400 has shown what it was to show: its slices are posts like any others.
    const { isDivided } = slicesIn(delivery.state);
    const kind = delivery.trial ? 'live' : isDivided ? delivery.lane : delivery.kind;
    while (this.#mayPost(delivery)) {
      if (budget.tryTake(kind)) return true;
      const waitMs = budget.nextAtMs(kind) - clock.monotonicMs();
      if (waitMs > MAX_PAYMENT_MS) return false;
      await clock.sleep(Math.max(1, waitMs), signal).catch(() => {});
    }
    return false;
  }

  /** `undefined` where the agent broke it off. */
  async #post(
    delivery: BatchDelivery,
    slice: Batch,
    { path }: PostAddress,
    { post, startedMs }: { post: number; startedMs: number },
  ): Promise<Verdict | undefined> {
    const { answers, client, clock, deliveryLog, effects, hooks, options, schedule } = this.#parts;
    const { asset, trial } = delivery;
    schedule.of(asset).lastPostAtMs = startedMs;
    this.lastPostMs = clock.wallMs();
    await effects.meet(delivery, { kind: 'sent' });
    const deadline = new AbortController();
    const tooLate = () =>
      deadline.abort(new PlatformError('the post took too long', { code: 'platform.timeout', retryable: true }));
    // An answer that has come while the process stood still is read before, as with the client's own deadline.
    const cancel = clock.after(trial ? TRIAL_DEADLINE_MS : POST_DEADLINE_MS, () => setImmediate(tooLate));
    const signal = AbortSignal.any([this.#parts.signal, deadline.signal]);
    const { length } = slice.body;
    const deadlineMs = answers.limitMs(asset, length, startedMs);
    const verdict = await postBatch(client, path, slice, { success: options.success, deadlineMs, signal });
    cancel();
    const nowMs = clock.monotonicMs();
    if (verdict && verdict.status > 0) answers.came(asset, length, nowMs - startedMs, nowMs);
    else if (verdict?.code === 'platform.timeout') answers.ranOut(asset);
    hooks.posted?.(verdict?.meaning ?? 'aborted');
    deliveryLog.posted(delivery, slice, post, verdict, nowMs - startedMs);
    return verdict;
  }
}
