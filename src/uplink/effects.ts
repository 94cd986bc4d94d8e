/**
 * Carries out what outcome.ts decides: the one place where a batch's state changes, and where store, access, budget, schedule and
 * log are told what follows from an answer.
 *
 * Every batch that is taken ends here in exactly one way: settled, released, divided or in quarantine, also when the
 * platform becomes unavailable in the middle or the agent stops. A crash in between leaves the values in the buffer: they are posted
 * again.
 */
import type { Clock } from '../base/clock.ts';
import type { OutgoingBuffer } from '../buffer/client/lanes.ts';
import type { AssetSchedule } from './asset-schedule.ts';
import { type BatchDelivery, slicesIn } from './batch-delivery.ts';
import type { DeliveryLog } from './delivery-log.ts';
import type { FaultAttribution } from './fault-attribution.ts';
import type { HeldSeries } from './held-series.ts';
import { decide, type Effect, faultOf, type Known, type Outcome } from './outcome.ts';
import type { PlatformAvailability } from './platform-availability.ts';
import type { AccessPort, PostBudget, UplinkHooks } from './ports.ts';
import type { PostSize } from './post-size.ts';
import type { Probes } from './probes.ts';
import type { SeriesWaits } from './series-waits.ts';

export interface EffectsParts {
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
  heldSeries: HeldSeries;
  probes: Probes;
  size: PostSize;
  /** Ends what is waited for when the agent stops. */
  signal: AbortSignal;
  /** Something changed: plan again. */
  wake(): void;
}

const DONE: Outcome = { kind: 'done' };
const STORE_RETRY_MS = 1_000;
/** Until the lanes, which said that there was something, and the store agree. */
const EMPTY_TAKE_MS = 250;

export class Effects {
  readonly #parts: EffectsParts;
  /** Batches that nobody else waits for. */
  readonly #running = new Set<Promise<void>>();
  /** A store that does not answer is not asked again. */
  #isStopping = false;
  deliveredValues = 0;
  quarantinedValues = 0;
  lastDeliveredMs: number | undefined;
  /** What the platform answered last that was no delivery. Wall clock. */
  lastRefusal: { atMs: number; code: string; words: string } | undefined;

  constructor(parts: EffectsParts) {
    this.#parts = parts;
  }

  /** Does whatever follows from what the batch met. Its state has changed when this returns. */
  async meet(delivery: BatchDelivery, outcome: Outcome): Promise<void> {
    const { clock, faults } = this.#parts;
    if (outcome.kind === 'answered') {
      const { meaning, code, words } = outcome.answer.verdict;
      if (meaning !== 'delivered') this.lastRefusal = { atMs: clock.wallMs(), code, words };
      const fault = faultOf(meaning);
      if (fault) faults.met(fault, delivery.asset);
    }
    for (let met: Outcome | undefined = outcome; met; ) {
      const { state, effects } = decide(delivery, met, this.#known(delivery));
      delivery.state = state;
      met = undefined;
      for (const effect of effects) {
        const carried = effect.do === 'decide next' ? DONE : this.#carryOut(delivery, effect);
        met = (carried instanceof Promise ? await carried : carried) ?? met;
      }
    }
    // One that has yet to pay takes nothing from anybody and gives nothing free.
    if (delivery.state.kind !== 'paying') this.#parts.wake();
  }

  /** Nothing new from now on; what waits goes back. Posts under way go on until the signal fires. */
  beginStop(): void {
    this.#isStopping = true;
    this.recallAll();
  }

  /** Nothing more of any batch is posted: what waits goes back, what is posting ends first. */
  recallAll(): void {
    for (const delivery of this.#parts.schedule.deliveries) this.#meetAlone(delivery, { kind: 'recall' });
  }

  /** Looks again at batches that wait to know whether the platform takes anything. */
  lookAtParked(): void {
    for (const delivery of this.#parts.schedule.deliveries) {
      if (slicesIn(delivery.state).deferred.length > 0) this.#meetAlone(delivery, { kind: 'look' });
    }
  }

  /** Once nothing is carried out any more that nobody else waits for. */
  async settled(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  #meetAlone(delivery: BatchDelivery, outcome: Outcome): void {
    const done: Promise<void> = this.meet(delivery, outcome)
      .catch((error) => this.#parts.deliveryLog.storeFailed(error))
      .finally(() => this.#running.delete(done));
    this.#running.add(done);
  }

  #known({ asset }: BatchDelivery): Known {
    const { clock, availability, faults, waits, access } = this.#parts;
    const nowMs = clock.monotonicMs();
    return {
      nowMs,
      isUnavailable: availability.outage !== undefined,
      isEveryones: (fault) => faults.isPlatform(fault, nowMs),
      isAlone: () => faults.isAlone(asset, nowMs),
      hasTakenSince: (at) => faults.hasTakenSince(at),
      loneRefusals: (series) => waits.loneRefusals(series),
      isAssetHeld: () => access.isHeld(asset),
      areSeriesHeld: (series) => {
        const held = new Set(access.heldSeries());
        return series.every((one) => held.has(one));
      },
    };
  }

  /** What the planner and other batches must see at once is done when this returns; the rest when its promise ends. */
  #carryOut(
    delivery: BatchDelivery,
    effect: Exclude<Effect, { do: 'decide next' }>,
  ): Promise<Outcome | undefined> | undefined {
    const { buffer, budget, clock, deliveryLog, faults, probes, schedule, size, waits } = this.#parts;
    const { asset, probe } = delivery;
    const nowMs = clock.monotonicMs();
    switch (effect.do) {
      case 'find nothing':
        return this.#findNothing(delivery);
      case 'settle':
        return this.#settle(delivery, effect);
      case 'credit':
        return this.#credit(delivery, effect);
      case 'allow asset':
        return this.#tellAccess((access) => access.delivered(asset, effect.series));
      case 'look at parked':
        return void this.lookAtParked();
      case 'tell refusal':
        return void deliveryLog.refused(delivery, effect.slice, effect.verdict, effect.isFirst);
      case 'learn size': {
        const maxBytes = size.refused(effect.bytes, nowMs);
        return maxBytes === undefined ? undefined : void deliveryLog.sizeLearned(delivery, maxBytes);
      }
      case 'divide':
        return this.#keep(() => buffer.divide(effect.slice.id)).then((slices) => ({ kind: 'divided', slices }));
      case 'tell division':
        return void deliveryLog.divided(delivery, effect.slice, effect.slices);
      case 'count lone refusal':
        return void waits.refusedAlone(effect.series);
      case 'quarantine':
        return this.#quarantine(delivery, effect);
      case 'hold series':
        return this.#holdSeries(delivery, effect);
      case 'deny access': {
        const { status, series, instrumentation } = effect;
        probes.retrySoon.delete(asset);
        return this.#tellAccess((access) => access.refused(asset, status, series, instrumentation));
      }
      case 'pause asset': {
        const pauseMs = Math.round(schedule.pause(asset, effect.minMs));
        return void deliveryLog.assetPauses(delivery, effect.verdict, pauseMs);
      }
      case 'log rest': {
        const untilMs = budget.restingUntilMs ?? nowMs;
        return void deliveryLog.rest(delivery, Math.round(untilMs - nowMs));
      }
      case 'refund request':
        return void budget.giveBack();
      case 'unavailable':
        return void this.#unavailable(delivery, effect);
      case 'available':
        return void this.#available();
      case 'retry denied soon':
        for (const other of faults.assetsWith('no-access')) probes.retrySoon.add(other);
        return undefined;
      case 'probe goes out':
        return probe && void probes.goesOut(probe);
      case 'probe is due again':
        return probe && void probes.dueAgain(probe);
      case 'release':
        return this.#release(delivery, effect);
      case 'end':
        delivery.state = { kind: 'over' };
        return void schedule.end(delivery);
    }
  }

  #findNothing({ asset, probe }: BatchDelivery): Promise<undefined> | undefined {
    const { clock, heldSeries, probes, schedule } = this.#parts;
    const nowMs = clock.monotonicMs();
    if (!probe) {
      const entry = schedule.of(asset);
      entry.pausedUntilMs = Math.max(entry.pausedUntilMs, nowMs + EMPTY_TAKE_MS);
      return undefined;
    }
    if (probes.foundNothing(probe, nowMs)) return this.#keep(() => heldSeries.tell()).then(() => undefined);
    return this.#tellAccess((access) => access.foundNothing(probe));
  }

  async #settle(delivery: BatchDelivery, { slice, post }: Effect & { do: 'settle' }): Promise<undefined> {
    const { buffer, clock, hooks, deliveryLog } = this.#parts;
    await this.#keep(() => buffer.settle(slice.id));
    deliveryLog.settled(delivery, slice, post);
    this.deliveredValues += slice.values;
    this.lastDeliveredMs = clock.wallMs();
    const { acceptedMs } = delivery;
    hooks.delivered?.(slice.values, acceptedMs === undefined ? undefined : clock.monotonicMs() - acceptedMs);
  }

  #credit(
    delivery: BatchDelivery,
    { slice, post, instrumentation }: Effect & { do: 'credit' },
  ): Promise<undefined> | undefined {
    const { availability, clock, deliveryLog, faults, hooks, probes, schedule, size, waits } = this.#parts;
    const { asset } = delivery;
    hooks.accepted?.(asset, instrumentation);
    const nowMs = clock.monotonicMs();
    faults.taken(asset, post, nowMs);
    probes.retrySoon.delete(asset);
    if (schedule.succeed(asset)) deliveryLog.assetBack(asset);
    if (availability.outage && post >= availability.outage.sincePost) this.#available();
    const maxBytes = size.taken(slice.body.length, nowMs);
    if (maxBytes !== undefined) deliveryLog.sizeGrown(maxBytes);
    const back = waits.taken(slice.series);
    return back.length > 0 ? this.#seriesBack(delivery, back) : undefined;
  }

  async #seriesBack(delivery: BatchDelivery, series: readonly number[]): Promise<undefined> {
    await this.#keep(() => this.#parts.heldSeries.tell());
    this.#parts.deliveryLog.seriesBack(delivery, series);
  }

  async #quarantine(delivery: BatchDelivery, { slice, refusal }: Effect & { do: 'quarantine' }): Promise<undefined> {
    const { buffer, hooks, deliveryLog } = this.#parts;
    await this.#keep(() => buffer.quarantine(slice.id, refusal));
    this.quarantinedValues += slice.values;
    hooks.quarantined?.(String(refusal.status), slice.values);
    deliveryLog.quarantined(delivery, slice, refusal);
  }

  async #holdSeries(delivery: BatchDelivery, effect: Effect & { do: 'hold series' }): Promise<undefined> {
    const { waits, clock, heldSeries, deliveryLog } = this.#parts;
    const { series, refusal, why } = effect;
    const isNew = waits.hold(delivery.asset, series, refusal, clock.monotonicMs());
    await this.#keep(() => heldSeries.tell());
    if (isNew) deliveryLog.seriesWaits(delivery, series, refusal, why);
  }

  async #release(delivery: BatchDelivery, { slices }: Effect & { do: 'release' }): Promise<undefined> {
    const { buffer, waits, deliveryLog } = this.#parts;
    for (const slice of slices) {
      // A refusal that was not confirmed counts for nothing.
      if (slice.values === 1) waits.forget(slice.series[0]!);
      await this.#keep(() => buffer.release(slice.id));
      deliveryLog.later(delivery, slice);
    }
  }

  /** Nothing is posted for now but one try after the other. A post that started before the outage does not lengthen it. */
  #unavailable(delivery: BatchDelivery, effect: Effect & { do: 'unavailable' }): void {
    const { availability, clock, faults, schedule, deliveryLog } = this.#parts;
    const { failure, why, posted, minMs } = effect;
    const before = availability.outage;
    if (before && posted && posted.post < before.sincePost) return;
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

  /** The platform answers as it should: what an outage taught holds no longer. */
  #available(): void {
    const { availability, deliveryLog, size } = this.#parts;
    const ended = availability.succeed();
    if (!ended) return;
    size.forget();
    deliveryLog.available(ended);
  }

  #tellAccess(tell: (access: AccessPort) => Promise<void>): Promise<undefined> {
    return tell(this.#parts.access).then(
      () => undefined,
      (error) => void this.#parts.deliveryLog.storeFailed(error),
    );
  }

  /** A batch that was answered must end: the store is asked until it does, unless the agent stops. */
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
