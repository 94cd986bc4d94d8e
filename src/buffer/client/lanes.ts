/**
 * What the uplink sees of the buffer. The store thread holds the values; the main thread holds, for each asset, how many
 * wait in which lane, kept current by the answers of the store.
 *
 * A batch is taken, then ends in exactly one way: settled, released (it waits again, in its old place), divided (its
 * parts are batches of their own), or quarantined. What is taken and not ended when the process dies waits again.
 */
export interface AssetLanes {
  asset: number;
  /** Values that wait in the live lane, without those of held series and those under way. */
  live: number;
  /** Acceptance time of the oldest of them on this run's monotonic clock; Infinity if there is none. */
  oldestLiveAtMs: number;
  /** Values that wait in the backlog, likewise. */
  backlog: number;
  /** Where the oldest of them stands in the order of acceptance: smaller is older; Infinity where there is none. */
  oldestBacklogAt: number;
}

export interface TakeRequest {
  asset: number;
  /** `live` takes along as much of the backlog as fits where `alongValues` says so. */
  lane: 'live' | 'backlog';
  maxValues: number;
  /** Bytes of the body. */
  maxBytes: number;
  /** With `live`: at most so many values of the asset's backlog beside them; 0 is none. */
  alongValues?: number;
  /**
   * VALUES_PATH names an instrumentation: only values of one in the batch, of another each time. Series that were accepted
   * without one go alone, because where they go is looked up at sending.
   */
  oneInstrumentation?: boolean;
  /** Only these series, held or not: for a probe of something held. */
  onlySeries?: readonly number[];
  /** Trusted time minus monotonic clock: corrects times that were stamped before the clock was trusted. */
  trustedOffsetMs?: number;
}

export interface Batch {
  id: number;
  asset: number;
  /** Series ids in it. */
  series: readonly number[];
  /** What its series were bound to at acceptance; with `oneInstrumentation` that of all of them. */
  instrumentation?: number;
  values: number;
  liveValues: number;
  backlogValues: number;
  /** Times in it that were corrected, and that are doubtful and stand as they are. */
  corrected?: number;
  doubtful?: number;
  /** The request body, ready to be sent. */
  body: Uint8Array;
}

/** Why the platform refused a value, in its words. */
export interface Refusal {
  status: number;
  message: string;
}

export interface OutgoingBuffer {
  /** `false` until times can be corrected: batches that are taken before contain uncorrected times. */
  isReady(): boolean;
  /** Every asset that has values waiting. */
  lanes(): ReadonlyMap<number, AssetLanes>;
  /** Called whenever lanes changed; the function it returns takes the listener away. */
  onChange(listener: () => void): () => void;
  /** `undefined` where nothing (that is not held or under way) waits. At most one batch of an asset's series is under way in a lane. */
  take(request: TakeRequest): Promise<Batch | undefined>;
  /** The platform took it. Saved with the next commit. */
  settle(batch: number): Promise<void>;
  /** It was not taken: waits again. */
  release(batch: number): Promise<void>;
  /** By series where it has several, else into halves in order of acceptance; a lone value cannot be divided: `[]`. The batch itself is ended. */
  divide(batch: number): Promise<Batch[]>;
  /** Puts its values aside with the reason. */
  quarantine(batch: number, refusal: Refusal): Promise<void>;
  /** Series that must not be taken (but by `onlySeries`), the whole set. Held assets are the planner's business. */
  holdSeries(series: readonly number[]): Promise<void>;
}
