/**
 * The uplink's view of the store thread: batches by message, lanes by memory. Lanes are current as of the store's last
 * answer, whichever call it answered.
 */
import type { Clock } from '../../base/clock.ts';
import type { StoreFacts } from '../store-facts.ts';
import type { AssetLanes, Batch, OutgoingBuffer, Refusal, TakeRequest } from './lanes.ts';

/** What it needs of the store thread. */
export interface OutgoingPort {
  take(request: TakeRequest): Promise<{ batch: Batch | undefined; facts: StoreFacts }>;
  settle(batch: number): Promise<StoreFacts>;
  release(batch: number): Promise<StoreFacts>;
  divide(batch: number): Promise<{ batches: Batch[]; facts: StoreFacts }>;
  quarantine(batch: number, refusal: Refusal & { atMs: number }): Promise<StoreFacts>;
  holdSeries(series: readonly number[]): Promise<StoreFacts>;
}

/** Corrects times that the agent stamped before its clock could be trusted; without `nowMs` they leave as they are. */
export interface TrustedTime {
  nowMs?(): number | undefined;
  /** Whether a sign-in is about to tell the time. */
  isExpected?(): boolean;
  /** Told how many times of a batch were corrected, and how many are doubtful and left so. */
  restamped?(corrected: number, doubtful: number): void;
}

export class StoredValues implements OutgoingBuffer {
  readonly #port: OutgoingPort;
  readonly #clock: Clock;
  readonly #note: (facts: StoreFacts) => void;
  readonly #lanes = new Map<number, AssetLanes>();
  readonly #listeners = new Set<() => void>();

  readonly #time: TrustedTime;

  /** `note` passes on every answer: the committer learns from it that something waits to be written. */
  constructor(port: OutgoingPort, clock: Clock, note: (facts: StoreFacts) => void, time: TrustedTime = {}) {
    this.#port = port;
    this.#clock = clock;
    this.#note = note;
    this.#time = time;
  }

  /** Takes in what an answer says about lanes. */
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
