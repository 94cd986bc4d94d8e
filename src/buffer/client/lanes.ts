/**
 * The buffer as seen by the uplink. The store thread contains the values. The main thread has only the number of
 * waiting values per asset and lane, which is updated with every store result.
 */
export interface AssetLanes {
  asset: number;
  /** Number of waiting values in the live lane, excluding held series and batches in flight. */
  live: number;
  /** Acceptance time of the oldest live value on the monotonic clock of this run; Infinity if there is none. */
  oldestLiveAtMs: number;
  /** Number of waiting values in the backlog lane, with the same exclusions. */
  backlog: number;
  /** Position of the oldest backlog value in the order of acceptance; Infinity if there is none. */
  oldestBacklogAt: number;
}

export interface TakeRequest {
  asset: number;
  /** A `live` batch can include backlog values, see `alongValues`. */
  lane: 'live' | 'backlog';
  maxValues: number;
  /** Maximum size of the request body. */
  maxBytes: number;
  /** Maximum number of backlog values in a `live` batch. Default: 0. */
  alongValues?: number;
  /**
   * Set if VALUES_PATH contains an instrumentation. The batch then contains values of one instrumentation, in rotation.
   * A series without an instrumentation is posted in a batch of its own, because its target is looked up when it is
   * posted.
   */
  oneInstrumentation?: boolean;
  /** Takes values only from these series, held or not. Used to probe held series. */
  onlySeries?: readonly number[];
  /** Trusted time minus monotonic clock; corrects times assigned before the clock was trusted. */
  trustedOffsetMs?: number;
}

/** Values that were taken from the buffer, or a part of them, with their request body. */
export interface Batch {
  id: number;
  asset: number;
  /** Series numbers in the batch. */
  series: readonly number[];
  /** Instrumentation of the series at acceptance. With `oneInstrumentation`, the instrumentation of all series. */
  instrumentation?: number;
  values: number;
  liveValues: number;
  backlogValues: number;
  /** Number of corrected times, and number of doubtful times that were not corrected. */
  corrected?: number;
  doubtful?: number;
  body: Uint8Array;
}

/** Status and message with which the platform rejected a value. */
export interface Refusal {
  status: number;
  message: string;
}

/**
 * A batch that was taken from the buffer. Each of its values is settled, quarantined or waiting again after `end`.
 * After a crash, the values of unfinished batches are waiting again.
 */
export interface TakenBatch {
  /** All values of the batch. */
  readonly whole: Batch;
  /**
   * Divides a part by series, or a single series into halves in order of acceptance; `[]` for a single value. The parts
   * replace the divided one.
   */
  divide(part: Batch): Promise<Batch[]>;
  /** Marks a part as accepted by the platform. Saved with the next commit, even if this call fails. */
  settle(part: Batch): Promise<void>;
  /** Moves a part to quarantine. */
  quarantine(part: Batch, refusal: Refusal): Promise<void>;
  /** Ends the batch. Values that are neither settled nor quarantined are waiting again at their previous position. */
  end(): Promise<void>;
}

export interface OutgoingBuffer {
  /** Returns `false` until times can be corrected. Batches taken before then contain uncorrected times. */
  isReady(): boolean;
  /** Assets with waiting values. */
  lanes(): ReadonlyMap<number, AssetLanes>;
  /** Calls `listener` when lanes change. Returns a function that removes it. */
  onChange(listener: () => void): () => void;
  /** Resolves with undefined if no values can be taken. One batch per asset and lane is in flight at a time. */
  take(request: TakeRequest): Promise<TakenBatch | undefined>;
  /** Replaces the set of held series. Values of held series are taken only with `onlySeries`. */
  holdSeries(series: readonly number[]): Promise<void>;
}
