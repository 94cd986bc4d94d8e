/**
 * View of the store thread for the uplink. Batches are exchanged by message; lanes are read from memory and reflect the
 * latest store result.
 */
import type { Clock } from '../../base/clock.ts';
import type { StoreFacts } from '../store-facts.ts';
import type { AssetLanes, Batch, OutgoingBuffer, Refusal, TakenBatch, TakeRequest } from './lanes.ts';

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
  readonly #time: TrustedTime;
  readonly #lanes = new Map<number, AssetLanes>();
  readonly #listeners = new Set<() => void>();
  /** Ends of batches that the store has not recorded, because a call failed. Repeated after its next result. */
  #owed: (() => Promise<StoreFacts>)[] = [];

  /** `note` receives every store result. */
  constructor(port: OutgoingPort, clock: Clock, note: (facts: StoreFacts) => void, time: TrustedTime = {}) {
    this.#port = port;
    this.#clock = clock;
    this.#note = note;
    this.#time = time;
  }

  /** Updates lanes from a store result. */
  update(lanes: readonly AssetLanes[]): void {
    for (const call of this.#owed.splice(0)) void this.#insist(call).catch(() => {});
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

  async take(request: TakeRequest): Promise<TakenBatch | undefined> {
    const trustedMs = this.#time.nowMs?.();
    const timed =
      trustedMs === undefined ? request : { ...request, trustedOffsetMs: trustedMs - this.#clock.monotonicMs() };
    const { batch, facts } = await this.#port.take(timed);
    this.#note(facts);
    if (batch?.corrected || batch?.doubtful) this.#time.restamped?.(batch.corrected ?? 0, batch.doubtful ?? 0);
    return batch && this.#taken(batch);
  }

  async holdSeries(series: readonly number[]): Promise<void> {
    this.#note(await this.#port.holdSeries(series));
  }

  #taken(whole: Batch): TakenBatch {
    const port = this.#port;
    const open = new Set([whole.id]);
    return {
      whole,
      divide: async (part) => {
        const { batches, facts } = await port.divide(part.id);
        if (batches.length > 0) open.delete(part.id);
        for (const { id } of batches) open.add(id);
        this.#note(facts);
        return batches;
      },
      settle: (part) => {
        open.delete(part.id);
        return this.#insist(() => port.settle(part.id));
      },
      quarantine: async (part, refusal) => {
        this.#note(await port.quarantine(part.id, { ...refusal, atMs: this.#clock.wallMs() }));
        open.delete(part.id);
      },
      end: async () => {
        const released = [...open].map((id) => this.#insist(() => port.release(id)));
        open.clear();
        await Promise.all(released);
      },
    };
  }

  /** Makes a store call, which is repeated later if it fails. Rejects with the error of the first attempt. */
  async #insist(call: () => Promise<StoreFacts>): Promise<void> {
    try {
      this.#note(await call());
    } catch (error) {
      this.#owed.push(call);
      throw error;
    }
  }
}
