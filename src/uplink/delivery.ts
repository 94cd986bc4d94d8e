/**
 * The delivery of one batch, from reading the batch until every slice is settled, quarantined or returned to the
 * buffer. Only batch-results.ts changes a delivery.
 *
 *   reading ──► paying ──► posting ──► storing ──► ready ──► paying …
 *                                          ├─────► parked
 *                                          ╰─────► returning ──► over
 *
 * One slice is posted at a time, and slices of a series are posted in order. The only exception is a value that was
 * rejected individually and is accepted on the second attempt.
 */
import type { Batch, Refusal } from '../buffer/client/lanes.ts';
import type { DueProbe } from './ports.ts';
import { MAX_REJECTIONS } from './series-waits.ts';

type DeliveryPhase =
  /** The buffer is reading the batch. */
  | 'reading'
  /** The first waiting slice is waiting for a request from the budget. */
  | 'paying'
  /** The first waiting slice is being posted. */
  | 'posting'
  /** The result of a post is being stored, or a rejected slice is being divided. */
  | 'storing'
  /** The first waiting slice is waiting for its turn. */
  | 'ready'
  /**
   * All remaining values were rejected individually, and it is not known yet whether the platform accepts any values.
   */
  | 'parked'
  /** The remaining slices are being returned to the buffer. */
  | 'returning'
  | 'over';

export interface BatchDelivery {
  /** Name used in log lines. */
  readonly name: string;
  readonly asset: number;
  readonly lane: 'live' | 'backlog';
  readonly kind: 'live' | 'backlog' | 'probe';
  /** Monotonic acceptance time of the oldest live value of its asset, for batches with live values. */
  readonly acceptedMs?: number | undefined;
  /** Set for probes. */
  readonly probe: DueProbe | undefined;
  /** Whether this is the trial post of an outage. */
  readonly trial: boolean;
  phase: DeliveryPhase;
  slices: Slices;
  /** Monotonic time since which the delivery has been ready. */
  readySinceMs: number;
  /**
   * Whether the remaining slices are returned after the current step, because of an outage, a shutdown or a changed
   * address.
   */
  isRecalled: boolean;
}

/** Slice that contains a single rejected value. */
export interface Deferred {
  batch: Batch;
  refusal: Refusal;
  /** Number of the next post at the time of the rejection. */
  at: number;
}

/** Slices of a batch. */
export interface Slices {
  /** Slices to be posted, in order of acceptance. */
  readonly waiting: readonly Batch[];
  /** Slices whose value was rejected individually, until it is known whether the platform accepts any values. */
  readonly deferred: readonly Deferred[];
  /** Slices of series with too many individual rejections, until it is decided whether the series is paused. */
  readonly shelved: readonly Batch[];
  /** Ids of slices with a single value that are posted a second time. A second rejection moves them to quarantine. */
  readonly again: ReadonlySet<number>;
  /** Number of values that were rejected individually. */
  readonly rejections: number;
  /** Number of slices that the platform accepted. */
  readonly accepted: number;
  readonly isDivided: boolean;
}

export const NO_SLICES: Slices = {
  waiting: [],
  deferred: [],
  shelved: [],
  again: new Set(),
  rejections: 0,
  accepted: 0,
  isDivided: false,
};

/** Uplink state that determines the next step after a slice. */
export interface Evidence {
  /** Whether a post with this number or a later one was accepted. */
  acceptedSince(post: number): boolean;
  /** Number of individual rejections of a series since its latest accepted value. */
  rejections(series: number): number;
  /** Whether no other asset is active. */
  isAlone(): boolean;
  /** Whether the platform rejects the posts of every asset. */
  isEveryoneRejected(): boolean;
}

/** Number of individual rejections that count as an outage if only one asset is active. */
const MAX_ALONE_REJECTIONS = 32;

/**
 * Determines the next step after a slice, without side effects.
 *
 * A value is posted a second time if another value was accepted after its rejection. This distinguishes an invalid
 * value from a platform or proxy that rejects everything, which is an outage. If no other asset is active, an accepted
 * slice of the same batch is sufficient. If no slice was accepted, more values of the series are tried before the
 * rejections count as an outage.
 */
export function afterSlice(
  before: Slices,
  evidence: Evidence,
): { next: 'ready' | 'parked' | 'end' | 'outage'; slices: Slices } {
  const proven = tryAgain(before, ({ at }) => evidence.acceptedSince(at));
  // Continue with shelved series for which a value was accepted in the meantime.
  const slices = unshelve(proven, ({ series }) => evidence.rejections(series[0]!) < MAX_REJECTIONS);
  const { waiting, deferred, shelved, accepted, rejections } = slices;
  if (waiting.length > 0) return { next: 'ready', slices };
  if (deferred.length === 0) {
    return shelved.length === 0 ? { next: 'end', slices } : { next: 'ready', slices: unshelve(slices) };
  }
  if (evidence.isAlone()) {
    if (accepted > 0) return { next: 'ready', slices: tryAgain(slices) };
    const hasMore = shelved.length > 0 && rejections < MAX_ALONE_REJECTIONS;
    return hasMore ? { next: 'ready', slices: unshelve(slices) } : { next: 'outage', slices };
  }
  return { next: evidence.isEveryoneRejected() ? 'outage' : 'parked', slices };
}

/** Shelves the waiting slices of one series. */
export function shelve(slices: Slices, series: number): Slices {
  const { out, left } = takeOut({ ...slices, shelved: [] }, series);
  return { ...left, shelved: [...slices.shelved, ...out] };
}

/** Returns shelved slices to the front, because they are older than the waiting slices of their series. */
function unshelve(slices: Slices, which: (slice: Batch) => boolean = () => true): Slices {
  const { waiting, shelved } = slices;
  return {
    ...slices,
    waiting: [...shelved.filter(which), ...waiting],
    shelved: shelved.filter((slice) => !which(slice)),
  };
}

/** Schedules deferred values for a second post, before all other slices. */
function tryAgain(slices: Slices, which: (deferred: Deferred) => boolean = () => true): Slices {
  const chosen = slices.deferred.filter(which).map(({ batch }) => batch);
  return {
    ...slices,
    deferred: slices.deferred.filter((one) => !which(one)),
    again: new Set([...slices.again, ...chosen.map(({ id }) => id)]),
    waiting: [...chosen, ...slices.waiting],
  };
}

/** Whether a rejected value of the series is still undecided. */
export function hasUndecided({ waiting, again, deferred }: Slices, series: number): boolean {
  const waits = waiting.some((slice) => again.has(slice.id) && isOnly(slice, series));
  return waits || deferred.some(({ batch }) => batch.series[0] === series);
}

/** Separates the slices that contain only this series. */
export function takeOut(slices: Slices, series: number): { out: readonly Batch[]; left: Slices } {
  const { waiting, shelved } = slices;
  const isOther = (slice: Batch) => !isOnly(slice, series);
  const out = [...shelved, ...waiting].filter((slice) => isOnly(slice, series));
  return { out, left: { ...slices, shelved: shelved.filter(isOther), waiting: waiting.filter(isOther) } };
}

export function allOf({ deferred, shelved, waiting }: Slices): readonly Batch[] {
  return [...deferred.map(({ batch }) => batch), ...shelved, ...waiting];
}

function isOnly(slice: Batch, series: number): boolean {
  return slice.series.length === 1 && slice.series[0] === series;
}
