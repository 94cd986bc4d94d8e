/**
 * View of the store thread for the uplink. Batches are exchanged by message; lanes are read from memory and reflect the
 * latest store result.
 */
import type { Clock } from '../../base/clock.ts';
import type { StoreFacts } from '../store-facts.ts';
import type { AssetLanes, Batch, OutgoingBuffer, Refusal, TakeRequest } from './lanes.ts';

/** Store thread as used by the uplink. */
export interface OutgoingPort {
  take(request: TakeRequest): Promise<{ batch: Batch | undefined; facts: StoreFacts }>;
  settle(batch: number): Promise<StoreFacts>;
  release(batch: number): Promise<StoreFacts>;
  divide(batch: number): Promise<{ batches: Batch[]; facts: StoreFacts }>;
  quarantine(batch: number, refusal: Refusal & { atMs: number }): Promise<StoreFacts>;
  holdSeries(series: readonly number[]): Promise<StoreFacts>;
}

/** Source of trusted time. Without it, times are not corrected. */
export interface TrustedTime {
  nowMs?(): number | undefined;
  /** Whether a sign-in that provides the time is in progress. */
  isExpected?(): boolean;
  /** Called with the number of corrected times and the number of doubtful times in a batch. */
  restamped?(corrected: number, doubtful: number): void;
}

export class StoredValues implements OutgoingBuffer {
  readonly #port: OutgoingPort;
  readonly #clock: Clock;
  readonly #note: (facts: StoreFacts) => void;
  readonly #lanes = new Map<number, AssetLanes>();
  readonly #listeners = new Set<() => void>();

  readonly #time: TrustedTime;

  /** `note` receives every store result. */
  constructor(port: OutgoingPort, clock: Clock, note: (facts: StoreFacts) => void, time: TrustedTime = {}) {
    this.#port = port;
    this.#clock = clock;
    this.#note = note;
    this.#time = time;
  }

  /** Updates lanes from a store result. */
  update(lanes: readonly AssetLanes[]): void {
    if (lanes.length === 0) return;
    for (const lane of lanes) {
      if (lane.live === 0 && lane.backlog === 0) this.#lanes.delete(lane.asset);
      else this.#lanes.set(lane.asset, lane);
    }
    for (const listener of this.#listeners) listener();
  }

  isReady(): boolean {
    const { nowMs, isExpected } = this.#time;
    return nowMs === undefined || nowMs() !== undefined || isExpected?.() !== true;
  }

  lanes(): ReadonlyMap<number, AssetLanes> {
    return this.#lanes;
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async take(request: TakeRequest): Promise<Batch | undefined> {
    const trustedMs = this.#time.nowMs?.();
    const timed =
      trustedMs === undefined ? request : { ...request, trustedOffsetMs: trustedMs - this.#clock.monotonicMs() };
    const { batch, facts } = await this.#port.take(timed);
    this.#note(facts);
    if (batch?.corrected || batch?.doubtful) this.#time.restamped?.(batch.corrected ?? 0, batch.doubtful ?? 0);
    return batch;
  }

  async settle(batch: number): Promise<void> {
    this.#note(await this.#port.settle(batch));
  }

  async release(batch: number): Promise<void> {
    this.#note(await this.#port.release(batch));
  }

  async divide(batch: number): Promise<Batch[]> {
    const { batches, facts } = await this.#port.divide(batch);
    this.#note(facts);
    return batches;
  }

  async quarantine(batch: number, refusal: Refusal): Promise<void> {
    this.#note(await this.#port.quarantine(batch, { ...refusal, atMs: this.#clock.wallMs() }));
  }

  async holdSeries(series: readonly number[]): Promise<void> {
    this.#note(await this.#port.holdSeries(series));
  }
}
