/**
 * Applies post results: changes the delivery state and updates the buffer, access, availability and log.
 *
 * Every value of a batch is settled, returned to the buffer or quarantined, even if an outage or shutdown interrupts
 * the delivery. After a crash the values are still in the buffer and are posted again. Changes that the planner and
 * other batches depend on are made synchronously, before the store is awaited.
 */
import type { Clock } from '../base/clock.ts';
import type { Batch, OutgoingBuffer, Refusal } from '../buffer/client/lanes.ts';
import type { AssetSchedule } from './asset-schedule.ts';
import {
  afterSlice,
  allOf,
  type BatchDelivery,
  type Deferred,
  hasUndecided,
  NO_SLICES,
  shelve,
  takeOut,
} from './delivery.ts';
import type { DeliveryLog, UnavailableWhy, WaitsWhy } from './delivery-log.ts';
import { type FaultAttribution, faultOf } from './fault-attribution.ts';
import type { Failure, PlatformAvailability } from './platform-availability.ts';
import type { AccessPort, PostBudget, UplinkHooks } from './ports.ts';
import type { Answered, Posted } from './post.ts';
import type { PostSize } from './post-size.ts';
import type { Probes } from './probes.ts';
import { MAX_REJECTIONS, NO_ADDRESS, type SeriesWaits } from './series-waits.ts';

export interface BatchResultsParts {
  buffer: OutgoingBuffer;
  budget: PostBudget;
  access: AccessPort;
  clock: Clock;
  deliveryLog: DeliveryLog;
  hooks: UplinkHooks;
  availability: PlatformAvailability;
  faults: FaultAttribution;
  schedule: AssetSchedule;
  waits: SeriesWaits;
  probes: Probes;
  size: PostSize;
  /** Aborts waits at shutdown. */
  signal: AbortSignal;
  /** Triggers planning. */
  wake(): void;
}

const STORE_RETRY_MS = 1_000;
/** Pause of an asset whose lanes and buffer disagree, in milliseconds. */
const EMPTY_READ_MS = 250;

export class BatchResults {
  readonly #parts: BatchResultsParts;
  /** Work in progress that no caller awaits. */
  readonly #running = new Set<Promise<void>>();
  #isStopping = false;
  deliveredValues = 0;
  quarantinedValues = 0;
  lastDeliveredMs: number | undefined;
  /** Latest unsuccessful response; `atMs` is wall-clock time. */
  lastRefusal: { atMs: number; code: string; reason: string } | undefined;

  constructor(parts: BatchResultsParts) {
    this.#parts = parts;
  }

  /** Records that the buffer returned a batch, which is now waiting for a request from the budget. */
  read(delivery: BatchDelivery, batch: Batch): void {
    delivery.phase = 'paying';
    delivery.slices = { ...NO_SLICES, waiting: [batch] };
  }

  /** Handles a batch for which the buffer contains none of the values that the lanes reported. */
  async foundNothing(delivery: BatchDelivery): Promise<void> {
    const { access, clock, probes, schedule } = this.#parts;
    const { asset, probe } = delivery;
    const nowMs = clock.monotonicMs();
    delivery.phase = 'returning';
    if (!probe) {
      const entry = schedule.of(asset);
      entry.pausedUntilMs = Math.max(entry.pausedUntilMs, nowMs + EMPTY_READ_MS);
    } else if (probes.foundNothing(probe, nowMs)) {
      await this.#keep(() => probes.updateHeldSeries());
    } else {
      await this.#updateAccess(() => access.foundNothing(probe));
    }
    await this.#return(delivery);
  }

  /** Pauses a series until a reload, because VALUES_PATH requires an instrumentation and the series has none. */
  async unaddressed(delivery: BatchDelivery): Promise<void> {
    delivery.phase = 'storing';
    await this.#pauseSeries(delivery, delivery.slices.waiting[0]!.series[0]!, NO_ADDRESS, 'no-address');
    await this.#return(delivery);
  }

  /** Starts processing the next slice of a divided batch. */
  takeTurn(delivery: BatchDelivery): void {
    delivery.phase = 'paying';
  }

  /** Records that the first waiting slice is being sent. Only the first post of a probe counts as the probe. */
  sent(delivery: BatchDelivery): void {
    delivery.phase = 'posting';
    if (delivery.probe && !delivery.slices.isDivided) this.#parts.probes.sent(delivery.probe);
    this.#parts.wake();
  }

  /** Handles a slice that was not sent, or whose post was aborted at shutdown. */
  unsent(delivery: BatchDelivery): Promise<void> {
    return this.#return(delivery);
  }

  /** Handles the response to the first waiting slice. */
  async answered(delivery: BatchDelivery, answer: Answered): Promise<void> {
    const { clock, faults } = this.#parts;
    const { meaning, code, reason } = answer.verdict;
    delivery.phase = 'storing';
    if (meaning !== 'delivered') this.lastRefusal = { atMs: clock.wallMs(), code, reason };
    const fault = faultOf(meaning);
    if (fault) faults.record(fault, delivery.asset);
    if (meaning === 'delivered') await this.#delivered(delivery, answer);
    else if (meaning === 'refused') await this.#rejected(delivery, answer);
    else await this.#failed(delivery, answer);
  }

  /** Returns each batch to the buffer after its current step. At shutdown, failed buffer calls are not retried. */
  recallAll(isStopping = this.#isStopping): void {
    this.#isStopping = isStopping;
    for (const delivery of this.#parts.schedule.deliveries) {
      delivery.isRecalled = true;
      if (isWaiting(delivery)) this.#unawaited(this.#return(delivery));
    }
    this.#parts.wake();
  }

  /** Reconsiders batches with individually rejected values. */
  reconsiderParked(): void {
    for (const delivery of this.#parts.schedule.deliveries) {
      if (isWaiting(delivery) && delivery.slices.deferred.length > 0) this.#unawaited(this.#continue(delivery));
    }
  }

  /** Resolves when all work in progress has finished. */
  async settled(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  async #delivered(delivery: BatchDelivery, { post, instrumentation }: Answered): Promise<void> {
    const { access, availability, buffer, clock, deliveryLog, faults, hooks, probes, schedule, size, waits } =
      this.#parts;
    const { asset, slices, acceptedMs } = delivery;
    const [slice, ...waiting] = slices.waiting as [Batch, ...Batch[]];
    delivery.slices = { ...slices, waiting, accepted: slices.accepted + 1 };
    const isProbe = delivery.kind === 'probe' || access.isHeld(asset);
    const nowMs = clock.monotonicMs();
    hooks.accepted?.(asset, instrumentation);
    faults.accepted(asset, post, nowMs);
    probes.retrySoon.delete(asset);
    if (schedule.succeed(asset)) deliveryLog.assetRestored(asset);
    if (availability.outage && post >= availability.outage.sincePost) this.#available();
    size.accepted(slice.body.length, nowMs);
    const released = waits.accepted(slice.series);
    if (released.length > 0) {
      await this.#keep(() => probes.updateHeldSeries());
      deliveryLog.seriesRestored(delivery, released);
    }
    await this.#keep(() => buffer.settle(slice.id));
    deliveryLog.settled(delivery, slice, post);
    this.deliveredValues += slice.values;
    this.lastDeliveredMs = clock.wallMs();
    hooks.delivered?.(slice.values, acceptedMs === undefined ? undefined : clock.monotonicMs() - acceptedMs);
    if (isProbe) await this.#updateAccess(() => access.delivered(asset, slice.series));
    this.reconsiderParked();
    await this.#continue(delivery);
  }

  async #rejected(delivery: BatchDelivery, { verdict, at }: Answered): Promise<void> {
    const { buffer, clock, deliveryLog, size } = this.#parts;
    const { slices } = delivery;
    const [slice, ...waiting] = slices.waiting as [Batch, ...Batch[]];
    deliveryLog.refused(delivery, slice, verdict, !slices.isDivided);
    if (delivery.isRecalled) return this.#return(delivery);
    if (slice.values > 1) {
      if (verdict.status === 413) {
        const maxBytes = size.tooLarge(slice.body.length, clock.monotonicMs());
        if (maxBytes !== undefined) deliveryLog.sizeLearned(delivery, maxBytes);
      }
      const parts = await this.#keep(() => buffer.divide(slice.id));
      if (parts.length > 0) {
        delivery.slices = { ...slices, waiting: [...parts, ...waiting], isDivided: true };
        deliveryLog.divided(delivery, slice, parts);
        return this.#continue(delivery);
      }
    }
    delivery.slices = { ...slices, waiting };
    const refusal = { status: verdict.status, message: verdict.reason };
    if (slices.again.has(slice.id)) await this.#quarantine(delivery, slice, refusal);
    else this.#defer(delivery, { batch: slice, refusal, at });
    await this.#continue(delivery);
  }

  /** Defers an individually rejected value. After too many rejections, shelves the waiting slices of its series. */
  #defer(delivery: BatchDelivery, deferred: Deferred): void {
    const { slices } = delivery;
    const series = deferred.batch.series[0]!;
    const count = this.#parts.waits.countRejection(series);
    const next = { ...slices, deferred: [...slices.deferred, deferred], rejections: slices.rejections + 1 };
    delivery.slices = count >= MAX_REJECTIONS ? shelve(next, series) : next;
  }

  /** Quarantines a value. After too many rejections, pauses the series and returns its slices. */
  async #quarantine(delivery: BatchDelivery, slice: Batch, refusal: Refusal): Promise<void> {
    const { buffer, hooks, deliveryLog, waits } = this.#parts;
    const series = slice.series[0]!;
    await this.#keep(() => buffer.quarantine(slice.id, refusal));
    this.quarantinedValues += slice.values;
    hooks.quarantined?.(String(refusal.status), slice.values);
    deliveryLog.quarantined(delivery, slice, refusal);
    if (waits.rejections(series) < MAX_REJECTIONS || hasUndecided(delivery.slices, series)) return;
    const { out, left } = takeOut(delivery.slices, series);
    delivery.slices = left;
    await this.#pauseSeries(delivery, series, refusal, 'refused');
    await this.#release(delivery, out);
  }

  /** Handles a post that was neither accepted nor rejected. */
  async #failed(delivery: BatchDelivery, answer: Answered): Promise<void> {
    const { availability, budget, clock, deliveryLog, faults, probes, schedule } = this.#parts;
    const { asset, probe, trial } = delivery;
    const { verdict, askedMs } = answer;
    const { meaning, code } = verdict;
    const nowMs = clock.monotonicMs();
    switch (meaning) {
      case 'unreachable':
        this.#unavailable(delivery, verdict, code === 'platform.no_session' ? 'signed-out' : 'unavailable', answer);
        break;
      case 'session':
      case 'quota':
        this.#unavailable(delivery, verdict, meaning === 'quota' ? 'quota' : 'signed-out', answer);
        break;
      case 'rest':
        // The client has already paused the request budget.
        if (trial) this.#available();
        deliveryLog.rest(delivery, Math.round((budget.restingUntilMs ?? nowMs) - nowMs));
        break;
      case 'no-access': {
        const isEveryones = faults.isPlatform('no-access', nowMs);
        await this.#deny(delivery, answer);
        if (isEveryones) {
          for (const other of faults.assetsWith('no-access')) probes.retrySoon.add(other);
          this.#unavailable(delivery, verdict, 'no-access', answer);
        } else if (trial) this.#available();
        return this.#return(delivery);
      }
      default:
        if (!availability.outage && !faults.isPlatform('later', nowMs)) {
          deliveryLog.assetPauses(delivery, verdict, Math.round(schedule.pause(asset, askedMs)));
          return this.#return(delivery);
        }
        this.#unavailable(delivery, verdict, meaning === 'not-understood' ? 'foreign' : 'unavailable', answer, askedMs);
    }
    if (probe) probes.makeDue(probe);
    // A divided batch keeps its slices during a pause; reading it again would restart the search.
    if (meaning === 'rest' && delivery.slices.isDivided) await this.#continue(delivery);
    else await this.#return(delivery);
  }

  #deny({ asset, probe }: BatchDelivery, { verdict, instrumentation }: Answered): Promise<void> {
    const { access, probes } = this.#parts;
    const status = verdict.status === 403 ? 403 : 404;
    // A probe of held series decides about these series. A probe of a paused series decides about the whole asset.
    const held = new Set(access.heldSeries());
    const series = probe?.onlySeries?.every((one) => held.has(one)) ? probe.onlySeries : undefined;
    probes.retrySoon.delete(asset);
    return this.#updateAccess(() => access.refused(asset, status, series, instrumentation));
  }

  /** Determines the next step after a slice: the next slice, a decision about rejected values, or completion. */
  async #continue(delivery: BatchDelivery): Promise<void> {
    const { clock, faults, waits, wake } = this.#parts;
    if (delivery.isRecalled) return this.#return(delivery);
    const nowMs = clock.monotonicMs();
    const { next, slices } = afterSlice(delivery.slices, {
      acceptedSince: (post) => faults.acceptedSince(post),
      rejections: (series) => waits.rejections(series),
      isAlone: () => faults.isAlone(delivery.asset, nowMs),
      isEveryoneRejected: () => faults.isPlatform('refused', nowMs),
    });
    delivery.slices = slices;
    if (next === 'ready') {
      if (delivery.phase !== 'ready') delivery.readySinceMs = nowMs;
      delivery.phase = 'ready';
    } else if (next === 'parked') {
      delivery.phase = 'parked';
      // The platform rejected the values of the trial post, so it is available.
      if (delivery.trial) this.#available();
    } else {
      delivery.phase = 'returning';
      if (next === 'outage') {
        const { status, message } = slices.deferred[0]!.refusal;
        this.#unavailable(delivery, { code: String(status), reason: message }, 'refused');
      }
      return this.#return(delivery);
    }
    wake();
  }

  /** Returns the remaining slices to the buffer and ends the delivery. */
  async #return(delivery: BatchDelivery): Promise<void> {
    const slices = allOf(delivery.slices);
    delivery.phase = 'returning';
    delivery.slices = NO_SLICES;
    await this.#release(delivery, slices);
    delivery.phase = 'over';
    this.#parts.schedule.end(delivery);
    this.#parts.wake();
  }

  async #release(delivery: BatchDelivery, slices: readonly Batch[]): Promise<void> {
    const { buffer, waits, deliveryLog } = this.#parts;
    for (const slice of slices) {
      // An unconfirmed rejection does not count.
      if (slice.values === 1) waits.resetCount(slice.series[0]!);
      await this.#keep(() => buffer.release(slice.id));
      deliveryLog.later(delivery, slice);
    }
  }

  async #pauseSeries(delivery: BatchDelivery, series: number, refusal: Refusal, why: WaitsWhy): Promise<void> {
    const { waits, clock, probes, deliveryLog } = this.#parts;
    const isNew = waits.pause(delivery.asset, series, refusal, clock.monotonicMs());
    await this.#keep(() => probes.updateHeldSeries());
    if (isNew) deliveryLog.seriesWaits(delivery, series, refusal, why);
  }

  /**
   * Starts or extends an outage. `posted`: the post that detected it, if a single one did; a post that started before
   * the outage does not extend it. `minMs` is the delay requested by the platform.
   */
  #unavailable(
    delivery: BatchDelivery,
    { code, reason }: Pick<Failure, 'code' | 'reason'>,
    why: UnavailableWhy,
    posted?: Posted,
    minMs = 0,
  ): void {
    const { availability, clock, faults, schedule, deliveryLog } = this.#parts;
    const before = availability.outage;
    if (before && posted && posted.post < before.sincePost) return;
    const failure = { code, reason, isForeign: why === 'foreign' };
    const startedMs = posted?.startedMs ?? clock.monotonicMs();
    const outage =
      why === 'quota'
        ? availability.failQuota(failure, faults.next)
        : availability.fail(failure, startedMs, minMs, faults.next);
    if (!before) {
      schedule.resetFailures();
      this.recallAll();
    }
    deliveryLog.unavailable(outage, why, posted && delivery.name);
  }

  /** Ends the outage and restores the post size. */
  #available(): void {
    const ended = this.#parts.availability.succeed();
    if (!ended) return;
    this.#parts.size.reset();
    this.#parts.deliveryLog.available(ended);
  }

  #unawaited(work: Promise<void>): void {
    const done: Promise<void> = work
      .catch((error) => this.#parts.deliveryLog.storeFailed(error))
      .finally(() => this.#running.delete(done));
    this.#running.add(done);
  }

  async #updateAccess(update: () => Promise<void>): Promise<void> {
    await update().catch((error) => this.#parts.deliveryLog.storeFailed(error));
  }

  /** Retries a buffer operation until it succeeds, except at shutdown. */
  async #keep<Answer>(call: () => Promise<Answer>): Promise<Answer> {
    for (;;) {
      try {
        return await call();
      } catch (error) {
        this.#parts.deliveryLog.storeFailed(error);
        if (this.#isStopping) throw error;
        await this.#parts.clock.sleep(STORE_RETRY_MS, this.#parts.signal);
      }
    }
  }
}

function isWaiting({ phase }: BatchDelivery): boolean {
  return phase === 'ready' || phase === 'parked';
}
