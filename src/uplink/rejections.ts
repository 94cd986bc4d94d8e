/**
 * What becomes of values that the platform refuses: the slices of a divided batch, the lone values, the series that wait.
 *
 * A value goes to quarantine when it was refused alone twice and something was taken in between. That tells a poisoned
 * value from a platform (or a proxy) that refuses everything for a while, which is an outage: then nothing goes to
 * quarantine and everything goes back to its place. A gateway whose only asset is in question has nobody else to ask:
 * there it is enough that another slice of the same batch was taken before, and where none was, more of the series is
 * tried before it counts as an outage. A crash in between leaves the values in the buffer: they are refused again.
 */

import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { Batch, OutgoingBuffer, Refusal } from '../buffer/client/lanes.ts';
import type { AssetSchedule } from './asset-schedule.ts';
import type { BatchDelivery } from './batch-delivery.ts';
import type { FaultAttribution } from './fault-attribution.ts';
import type { UplinkHooks } from './ports.ts';
import type { PostSize } from './post-size.ts';
import { MAX_LONE_REFUSALS, type SeriesWaits } from './series-waits.ts';
import type { Verdict } from './verdict.ts';

const QUARANTINE_HINT =
  'See `tagferry buffer quarantine`; mend unit, key or asset in tags.yaml, then `tagferry buffer requeue`.';
const ADDRESS_HINT =
  'Name the instrumentation of the tag that lists it in tags.yaml, or mend VALUES_PATH; then reload the service.';
/** So many lone values an asset without company is tried with before its rejections count as an outage. */
const MAX_LONE_TRIES = 32;

export interface RejectionsParts {
  buffer: OutgoingBuffer;
  clock: Clock;
  log: Logger;
  faults: FaultAttribution;
  schedule: AssetSchedule;
  waits: SeriesWaits;
  size: PostSize;
  hooks: UplinkHooks;
  /** Calls the buffer until it answers. */
  keep<Answer>(call: () => Promise<Answer>): Promise<Answer>;
  /** Tells the buffer which series are held now. */
  holdSeries(): Promise<void>;
  /** Everything is refused. */
  outage(delivery: BatchDelivery, failure: { code: string; words: string }): void;
  /** A try during an outage was refused, but not as everything was: the platform is there. */
  answered(delivery: BatchDelivery): void;
}

export class Rejections {
  readonly #parts: RejectionsParts;
  readonly #repeats = new Repeats();
  quarantinedValues = 0;

  constructor(parts: RejectionsParts) {
    this.#parts = parts;
  }

  /** The slice that was posting was answered 400, 413 or 422. */
  async refused(delivery: BatchDelivery, batch: Batch, verdict: Verdict): Promise<void> {
    const { buffer, clock, log, faults, waits, size } = this.#parts;
    faults.met('refused', delivery.asset);
    this.#logRefused(delivery, batch, verdict);
    if (delivery.abandoned) return delivery.putBack([batch]);
    if (batch.values > 1) {
      if (verdict.status === 413) {
        const maxBytes = size.refused(batch.body.length, clock.monotonicMs());
        if (maxBytes !== undefined) this.#logSize(delivery, maxBytes);
      }
      const slices = await this.#parts.keep(() => buffer.divide(batch.id));
      if (slices.length > 0) {
        delivery.wasDivided = true;
        const facts = {
          batch: delivery.name,
          asset: delivery.asset,
          slice: batch.id,
          into: slices.map(({ id }) => id),
        };
        log.debug({ event: 'uplink.divided', ...facts }, 'a refused slice was divided');
        return delivery.putBack(slices);
      }
    }
    const series = batch.series[0]!;
    const refusal = { status: verdict.status, message: verdict.words };
    delivery.posting = undefined;
    if (delivery.again.has(batch.id)) return this.#quarantine(delivery, batch, refusal);
    delivery.loneRefusals++;
    delivery.deferred.push({ batch, series, refusal, at: faults.number() });
    if (waits.refusedAlone(series) >= MAX_LONE_REFUSALS) delivery.shelve(series);
  }

  /** VALUES_PATH names an instrumentation and the batch's one series has none: it waits until a reload gives it one. */
  async unaddressed(delivery: BatchDelivery, batch: Batch): Promise<void> {
    const { buffer, schedule, waits, clock, log } = this.#parts;
    const series = batch.series[0]!;
    const refusal = {
      status: 0,
      message: 'VALUES_PATH names an instrumentation, and tags.yaml gives this series none',
    };
    const isNew = waits.hold(delivery.asset, series, refusal, clock.monotonicMs());
    await this.#parts.holdSeries();
    delivery.takeOutAll();
    await this.#parts.keep(() => buffer.release(batch.id));
    schedule.end(delivery);
    if (!isNew) return;
    // One cause, and perhaps thousands of series that share it.
    const count = this.#repeats.note('no_address', clock.monotonicMs());
    const facts = { batch: delivery.name, asset: delivery.asset, series, words: refusal.message, count };
    const level = count === undefined ? 'debug' : 'error';
    log[level]({ event: 'uplink.no_address', ...facts, hint: ADDRESS_HINT }, 'a series has no address: it waits');
  }

  /** A slice was taken: where it filled the limit that 413s taught, posts may become larger again. */
  taken(batch: Batch): void {
    const { clock, log, size } = this.#parts;
    const maxBytes = size.taken(batch.body.length, clock.monotonicMs());
    if (maxBytes !== undefined) log.debug({ event: 'uplink.size_grown', maxBytes }, 'posts become larger again');
  }

  #logSize(delivery: BatchDelivery, maxBytes: number): void {
    const { clock, log } = this.#parts;
    const count = this.#repeats.note('size', clock.monotonicMs());
    const fields = { event: 'uplink.size_learned', batch: delivery.name, maxBytes, count };
    log[count === undefined ? 'debug' : 'warn'](fields, 'a post was too large: posts become smaller');
  }

  #logRefused(delivery: BatchDelivery, batch: Batch, verdict: Verdict): void {
    const { clock, log } = this.#parts;
    // The slices of a batch are the same happening, which what goes to quarantine ends.
    const isFirst = !delivery.wasDivided;
    const count = isFirst ? this.#repeats.note(`refused:${delivery.asset}`, clock.monotonicMs()) : undefined;
    const { status, words } = verdict;
    const facts = {
      batch: delivery.name,
      asset: delivery.asset,
      slice: batch.id,
      status,
      words,
      values: batch.values,
      count,
    };
    const level = count === undefined ? 'debug' : 'warn';
    log[level]({ event: 'uplink.refused', ...facts }, 'the platform refused a post: it is divided');
  }

  /**
   * Says what the delivery does next: `over`, `ready` (a slice waits for its turn) or `parked` (it is not known yet whether
   * the platform takes anything).
   */
  decide(delivery: BatchDelivery): 'over' | 'ready' | 'parked' {
    const { faults, clock } = this.#parts;
    delivery.tryAgain(delivery.deferred.filter((one) => faults.hasTakenSince(one.at)));
    this.#unshelveHopeful(delivery);
    if (delivery.waiting.length > 0) return 'ready';
    if (delivery.isOver) return 'over';
    if (delivery.deferred.length === 0) {
      delivery.unshelve();
      return 'ready';
    }
    const nowMs = clock.monotonicMs();
    if (faults.isAlone(delivery.asset, nowMs)) {
      if (delivery.taken > 0) {
        delivery.tryAgain(delivery.deferred);
        return 'ready';
      }
      if (delivery.shelved.length > 0 && delivery.loneRefusals < MAX_LONE_TRIES) {
        delivery.unshelve();
        return 'ready';
      }
      this.#outage(delivery);
    } else if (faults.isPlatform('refused', nowMs)) this.#outage(delivery);
    else if (delivery.trial) this.#parts.answered(delivery);
    return 'parked';
  }

  #outage(delivery: BatchDelivery): void {
    const { refusal } = delivery.deferred[0]!;
    this.#parts.outage(delivery, { code: String(refusal.status), words: refusal.message });
  }

  async #quarantine(delivery: BatchDelivery, batch: Batch, refusal: Refusal): Promise<void> {
    const { buffer, hooks } = this.#parts;
    const series = batch.series[0]!;
    await this.#parts.keep(() => buffer.quarantine(batch.id, refusal));
    this.quarantinedValues += batch.values;
    hooks.quarantined?.(String(refusal.status), batch.values);
    this.#logQuarantined(delivery, batch.id, series, refusal);
    await this.#letWait(delivery, series, refusal);
  }

  #logQuarantined({ name, asset }: BatchDelivery, slice: number, series: number, refusal: Refusal): void {
    const { clock, log } = this.#parts;
    const { status, message: words } = refusal;
    // One wrong unit or asset has many series.
    const count = this.#repeats.note(`quarantined:${asset}:${status}`, clock.monotonicMs());
    const facts = { batch: name, asset, slice, series, status, words, count, hint: QUARANTINE_HINT };
    log[count === undefined ? 'debug' : 'warn'](
      { event: 'uplink.quarantined', ...facts },
      'a value that the platform refuses is in quarantine',
    );
  }

  /** Enough of its values were refused alone: the series waits, and its slices go back to their places. */
  async #letWait(delivery: BatchDelivery, series: number, refusal: Refusal): Promise<void> {
    const { waits, clock, log, buffer } = this.#parts;
    if (waits.rejections(series) < MAX_LONE_REFUSALS) return;
    if (delivery.hasUndecided(series)) return;
    const isNew = waits.hold(delivery.asset, series, refusal, clock.monotonicMs());
    await this.#parts.holdSeries();
    for (const slice of delivery.takeOut(series)) await this.#parts.keep(() => buffer.release(slice.id));
    if (!isNew) return;
    const { status, message: words } = refusal;
    const count = this.#repeats.note(`waits:${delivery.asset}:${status}`, clock.monotonicMs());
    const facts = { batch: delivery.name, asset: delivery.asset, series, status, words, count, hint: QUARANTINE_HINT };
    log[count === undefined ? 'debug' : 'error'](
      { event: 'uplink.series_waits', ...facts },
      'the platform refuses one value of a series after the other: it waits',
    );
  }

  /** Something of a shelved series was taken meanwhile: it is worth dividing on. */
  #unshelveHopeful(delivery: BatchDelivery): void {
    const { waits } = this.#parts;
    if (delivery.shelved.length === 0) return;
    const isHopeless = (slice: Batch) => waits.rejections(slice.series[0]!) >= MAX_LONE_REFUSALS;
    if (!delivery.shelved.every(isHopeless)) {
      const hopeless = delivery.shelved.filter(isHopeless);
      delivery.shelved = delivery.shelved.filter((slice) => !isHopeless(slice));
      delivery.unshelve();
      delivery.shelved = hopeless;
    }
  }
}
