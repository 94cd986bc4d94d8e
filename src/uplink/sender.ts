/**
 * Executes the planner's decisions: reads a batch, acquires a request from the budget, posts, and passes the response
 * to `BatchResults`. The request is acquired immediately before the post, so that the platform receives posts at the
 * configured pace. Posts in progress during a crash are repeated.
 */

import type { Clock } from '../base/clock.ts';
import { announce } from '../base/crash-points.ts';
import { PlatformError } from '../base/errors.ts';
import type { Batch, OutgoingBuffer } from '../buffer/client/lanes.ts';
import type { AssetSchedule } from './asset-schedule.ts';
import type { BackfillRate } from './backfill-rate.ts';
import type { BatchResults } from './batch-results.ts';
import { type BatchDelivery, NO_SLICES } from './delivery.ts';
import type { DeliveryLog } from './delivery-log.ts';
import type { FaultAttribution } from './fault-attribution.ts';
import type { PostDecision } from './planner.ts';
import type { AddressPort, PostBudget, UplinkHooks, ValuesClient } from './ports.ts';
import { askedWaitMs, postBatch, responseLimitMs } from './post.ts';
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
  backfill: BackfillRate;
  results: BatchResults;
  /** `success` is POST_SUCCESS, which a reload may change. */
  options: { readonly success: readonly number[] };
  /** Aborts posts in progress. */
  signal: AbortSignal;
  /** Triggers planning. */
  wake(): void;
}

/** Timeout of a trial post, which must finish before the next one is due. */
const TRIAL_DEADLINE_MS = 50_000;
/** Timeout in case the client hangs. */
const POST_DEADLINE_MS = 600_000;
/** Maximum time that a batch waits for its request. */
const MAX_PAYMENT_MS = 2_000;
const STORE_RETRY_MS = 1_000;

export class Sender {
  readonly #parts: SenderParts;
  /** Distinguishes the batches of this run in logs. */
  readonly #run: string;
  #batches = 0;
  lastPostMs: number | undefined;

  constructor(parts: SenderParts) {
    this.#parts = parts;
    this.#run = Math.floor(parts.clock.wallMs() / 1000).toString(36);
  }

  /**
   * Carries out a decision. The schedule is updated before this method returns its promise. The promise rejects only if
   * the buffer fails during shutdown.
   */
  async perform(decision: PostDecision): Promise<void> {
    const { addresses, buffer, results, schedule } = this.#parts;
    if (decision.do === 'slice') {
      results.takeTurn(decision.delivery);
      return this.#postNext(decision.delivery);
    }
    const { take, kind, trial, probe } = decision;
    const delivery: BatchDelivery = {
      name: `${this.#run}-${++this.#batches}`,
      asset: take.asset,
      lane: take.lane,
      kind,
      acceptedMs: take.lane === 'live' ? buffer.lanes().get(take.asset)?.oldestLiveAtMs : undefined,
      probe,
      trial,
      phase: 'reading',
      slices: NO_SLICES,
      readySinceMs: 0,
      isRecalled: false,
    };
    schedule.begin(delivery);
    if (kind === 'probe') schedule.occupyBoth(delivery);
    const batch = await this.#take(delivery, decision);
    if (!batch) return results.foundNothing(delivery);
    results.read(delivery, batch);
    if (!addresses.of(batch)) return results.unaddressed(delivery);
    await this.#postNext(delivery);
  }

  async #take(delivery: BatchDelivery, { take }: PostDecision & { do: 'post' }): Promise<Batch | undefined> {
    const { buffer, schedule, clock, backfill, size, addresses, deliveryLog } = this.#parts;
    let batch: Batch | undefined;
    // Reserved first, because the planner may choose the next post in the meantime.
    const reserved = backfill.isLimited ? (take.lane === 'backlog' ? take.maxValues : (take.alongValues ?? 0)) : 0;
    backfill.spend(reserved);
    try {
      const request = {
        ...take,
        maxBytes: size.maxBytes(clock.monotonicMs()),
        oneInstrumentation: addresses.byInstrumentation,
      };
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
    const { addresses, budget, clock, faults, results } = this.#parts;
    const paid = await this.#pay(delivery);
    const slice = delivery.slices.waiting[0]!;
    const address = paid ? addresses.of(slice) : undefined;
    if (!address) {
      if (paid) budget.refund();
      return results.unsent(delivery);
    }
    const { path, instrumentation } = address;
    const posted = { post: faults.nextNumber(), startedMs: clock.monotonicMs(), instrumentation };
    const verdict = await this.#post(delivery, slice, path, posted);
    if (!verdict) return results.unsent(delivery);
    if (verdict.meaning === 'delivered') announce('post.unsettled');
    await results.answered(delivery, { ...posted, verdict, askedMs: askedWaitMs(verdict, clock), at: faults.next });
  }

  /** Acquires a request from the budget. Returns false if the batch should be returned to the buffer. */
  async #pay(delivery: BatchDelivery): Promise<boolean> {
    const { budget, clock, signal } = this.#parts;
    // Slices of a divided probe are regular posts.
    const { isDivided } = delivery.slices;
    const kind = delivery.trial ? 'live' : isDivided ? delivery.lane : delivery.kind;
    while (!delivery.isRecalled) {
      if (budget.tryAcquire(kind)) return true;
      const waitMs = budget.nextAtMs(kind) - clock.monotonicMs();
      if (waitMs > MAX_PAYMENT_MS) return false;
      await clock.sleep(Math.max(1, waitMs), signal).catch(() => {});
    }
    return false;
  }

  /** Returns `undefined` if the agent aborted the post. */
  async #post(
    delivery: BatchDelivery,
    slice: Batch,
    path: string,
    { post, startedMs }: { post: number; startedMs: number },
  ): Promise<Verdict | undefined> {
    const { client, clock, deliveryLog, hooks, options, results, schedule } = this.#parts;
    const { asset, trial } = delivery;
    schedule.of(asset).lastPostAtMs = startedMs;
    this.lastPostMs = clock.wallMs();
    results.sent(delivery);
    const deadline = new AbortController();
    const tooLate = () =>
      deadline.abort(
        new PlatformError('timed out waiting for the response to the POST request', {
          code: 'platform.timeout',
          retryable: true,
        }),
      );
    // Uses setImmediate, so that a response that arrived while the process was suspended is read first.
    const cancel = clock.after(trial ? TRIAL_DEADLINE_MS : POST_DEADLINE_MS, () => setImmediate(tooLate));
    const signal = AbortSignal.any([this.#parts.signal, deadline.signal]);
    const deadlineMs = responseLimitMs(slice.body.length, schedule.of(asset).failures);
    const verdict = await postBatch(client, path, slice, { success: options.success, deadlineMs, signal });
    cancel();
    const nowMs = clock.monotonicMs();
    hooks.posted?.(verdict?.meaning ?? 'aborted');
    deliveryLog.posted(delivery, slice, post, verdict, nowMs - startedMs);
    return verdict;
  }
}
