/**
 * The delivery of one batch, from the moment it is to be taken until every slice of it has ended: one value, whose state says
 * what it does now.
 *
 *   taking ──► paying ──► posting ──► deciding ──► ready ──► paying …
 *                            │           ▲   │
 *                            ╰► dividing ╯   ├──► parked: what is left was refused alone, and it is not known yet
 *                                            │            whether the platform takes anything
 *                                            ╰──► returning ──► over
 *
 * One slice is posted at a time, and none overtakes an earlier one of the same series. The one exception is a value that
 * was refused alone and is taken the second time: a platform that refused everything for a moment has come back between
 * it and the next.
 */
import type { Batch, Refusal } from '../buffer/client/lanes.ts';
import type { ProbeView } from './planner.ts';

export interface BatchDelivery {
  /** What every line of the log about it carries. */
  readonly name: string;
  readonly asset: number;
  readonly lane: 'live' | 'backlog';
  readonly kind: 'live' | 'backlog' | 'probe';
  /** Monotonic, of the oldest live value of its asset when it was to be taken; left out for what takes none. */
  readonly acceptedMs?: number | undefined;
  /** What a probe tries. */
  readonly probe: ProbeView | undefined;
  /** The one post that is tried while the platform is unavailable. */
  readonly trial: boolean;
  /** Replaced whole, by effects.ts alone; outcome.ts says by what. */
  state: DeliveryState;
}

/** What comes after what is being done: the next slice, or everything that is left goes back to its place. */
export type After = 'next' | 'return';

export type DeliveryState =
  /** The store cuts the batch. */
  | { kind: 'taking'; after: After }
  /** It has a socket; its first slice waits for its request. */
  | { kind: 'paying'; after: After; slices: Slices }
  | { kind: 'posting'; after: After; slices: Slices; slice: Batch }
  /** The store divides what was refused. */
  | { kind: 'dividing'; after: After; slices: Slices; slice: Batch; refusal: LoneRefusal }
  /** What the answer means is being carried out. */
  | { kind: 'deciding'; after: After; slices: Slices }
  /** A slice could be posted: it waits for its turn. */
  | { kind: 'ready'; slices: Slices; sinceMs: number }
  | { kind: 'parked'; slices: Slices }
  /** The store takes back what is left. */
  | { kind: 'returning' }
  | { kind: 'over' };

/** A value that was refused alone. */
export interface LoneRefusal {
  refusal: Refusal;
  /** When, in the order of posts: the number of the next. */
  at: number;
}

export interface Deferred extends LoneRefusal {
  batch: Batch;
}

/** What has become of the batch's slices. */
export interface Slices {
  /** To be posted, in order of acceptance. */
  readonly waiting: readonly Batch[];
  /** Refused alone; it is not known yet whether the platform takes anything. */
  readonly deferred: readonly Deferred[];
  /** Of series that were refused alone too often: it is decided first whether the series waits. */
  readonly shelved: readonly Batch[];
  /** Ids of lone slices that are posted a second time: refused again, they go to quarantine. */
  readonly again: ReadonlySet<number>;
  /** Lone values of it that were refused. */
  readonly loneRefusals: number;
  /** Slices that were taken. */
  readonly taken: number;
  readonly isDivided: boolean;
}

export function slicesOf(batch: Batch): Slices {
  return { ...NONE, waiting: [batch] };
}

const NONE: Slices = {
  waiting: [],
  deferred: [],
  shelved: [],
  again: new Set(),
  loneRefusals: 0,
  taken: 0,
  isDivided: false,
};

/** Its slices; none while the batch is being cut and once it is over. */
export function slicesIn(state: DeliveryState): Slices {
  return 'slices' in state ? state.slices : NONE;
}

/** Whether it has one of the sockets. */
export function isBusy({ kind }: DeliveryState): boolean {
  return kind !== 'ready' && kind !== 'parked' && kind !== 'over';
}

/** The slice that was posting takes its place again, itself or divided. */
export function putBack(slices: Slices, back: readonly Batch[]): Slices {
  return { ...slices, waiting: [...back, ...slices.waiting] };
}

/** Puts the waiting slices of one series aside. */
export function shelve(slices: Slices, series: number): Slices {
  const { waiting, shelved } = slices;
  return {
    ...slices,
    shelved: [...shelved, ...waiting.filter((slice) => isOnly(slice, series))],
    waiting: waiting.filter((slice) => !isOnly(slice, series)),
  };
}

/** Those shelved that `which` names wait again; they come first: they are older than what waits of their series. */
export function unshelve(slices: Slices, which: (slice: Batch) => boolean = () => true): Slices {
  const { waiting, shelved } = slices;
  return {
    ...slices,
    waiting: [...shelved.filter(which), ...waiting],
    shelved: shelved.filter((slice) => !which(slice)),
  };
}

/** Those deferred that `which` names are posted once more, before everything else. */
export function tryAgain(slices: Slices, which: (deferred: Deferred) => boolean = () => true): Slices {
  const chosen = slices.deferred.filter(which).map(({ batch }) => batch);
  if (chosen.length === 0) return slices;
  return {
    ...slices,
    deferred: slices.deferred.filter((one) => !which(one)),
    again: new Set([...slices.again, ...chosen.map(({ id }) => id)]),
    waiting: [...chosen, ...slices.waiting],
  };
}

/** Whether a lone value of the series has not been decided upon yet. */
export function hasUndecided({ waiting, again, deferred }: Slices, series: number): boolean {
  const waits = waiting.some((slice) => again.has(slice.id) && isOnly(slice, series));
  return waits || deferred.some(({ batch }) => batch.series[0] === series);
}

/** Parts the slices that hold nothing but this series from the others. */
export function takeOut(slices: Slices, series: number): { out: readonly Batch[]; left: Slices } {
  const { waiting, shelved } = slices;
  const out = [...shelved, ...waiting].filter((slice) => isOnly(slice, series));
  const left = {
    ...slices,
    shelved: shelved.filter((slice) => !isOnly(slice, series)),
    waiting: waiting.filter((slice) => !isOnly(slice, series)),
  };
  return { out, left };
}

export function allOf({ deferred, shelved, waiting }: Slices): readonly Batch[] {
  return [...deferred.map(({ batch }) => batch), ...shelved, ...waiting];
}

function isOnly(slice: Batch, series: number): boolean {
  return slice.series.length === 1 && slice.series[0] === series;
}
