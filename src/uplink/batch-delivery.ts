/**
 * The delivery of one batch: from the moment it is taken until every slice of it has ended.
 *
 *   waiting ──► posting ──► taken: settled
 *      ▲           │   └──► refused: divided, the slices wait in its place, in order of acceptance
 *      ├───────────┘            └──► refused alone: deferred until it is known that the platform takes anything
 *      └── once more: refused again, it goes to quarantine ◄──┘
 *
 * One slice is posted at a time, and none overtakes an earlier one of the same series. The one exception is a value that
 * was refused alone and is taken the second time: a platform that refused everything for a moment has come back between
 * it and the next. `shelved` are slices of a series that was refused alone too often; they wait until it is decided
 * whether the series waits.
 */
import type { Batch, Refusal } from '../buffer/client/lanes.ts';
import type { ProbeView } from './planner.ts';

export interface Deferred {
  batch: Batch;
  series: number;
  refusal: Refusal;
  /** When it was refused, in the order of posts. */
  at: number;
}

export class BatchDelivery {
  /** What every line of the log about it carries. */
  readonly name: string;
  readonly asset: number;
  readonly lane: 'live' | 'backlog';
  readonly kind: 'live' | 'backlog' | 'probe';
  /** What a probe tries. */
  readonly probe: ProbeView | undefined;
  /** The one post that is tried while the platform is away. */
  trial: boolean;
  waiting: Batch[] = [];
  posting: Batch | undefined;
  /** Being taken, posted or decided upon: it has one of the sockets. */
  isBusy = true;
  deferred: Deferred[] = [];
  shelved: Batch[] = [];
  /** Ids of lone slices that are posted a second time: refused again, they go to quarantine. */
  readonly again = new Set<number>();
  /** Lone rejections of this delivery that were not decided when it went on from 8 of a series. */
  loneRefusals = 0;
  /** Parts that were taken. */
  taken = 0;
  wasDivided = false;
  /** The platform went away, or the asset is held: what is still posting ends, nothing else is posted. */
  abandoned = false;
  /** Monotonic; since when the next slice could be posted. Infinity while it cannot. */
  readySinceMs = Number.POSITIVE_INFINITY;
  #last: Promise<void> = Promise.resolve();

  constructor(facts: Pick<BatchDelivery, 'name' | 'asset' | 'lane' | 'kind' | 'probe' | 'trial'>) {
    this.name = facts.name;
    this.asset = facts.asset;
    this.lane = facts.lane;
    this.kind = facts.kind;
    this.probe = facts.probe;
    this.trial = facts.trial;
  }

  /** The next slice, which is posting from now on. */
  start(): Batch | undefined {
    this.readySinceMs = Number.POSITIVE_INFINITY;
    this.posting = this.waiting.shift();
    return this.posting;
  }

  /** The slice that was posting takes its place again, itself or divided. */
  putBack(slices: readonly Batch[]): void {
    this.posting = undefined;
    this.waiting.unshift(...slices);
  }

  /** Puts the waiting slices of one series aside. */
  shelve(series: number): void {
    this.shelved.push(...this.waiting.filter((slice) => isOnly(slice, series)));
    this.waiting = this.waiting.filter((slice) => !isOnly(slice, series));
  }

  /** Shelved slices come first: they are older than what waits of their series. */
  unshelve(): void {
    this.waiting.unshift(...this.shelved);
    this.shelved = [];
  }

  /** These are posted once more, before everything else. */
  tryAgain(deferred: readonly Deferred[]): void {
    this.deferred = this.deferred.filter((one) => !deferred.includes(one));
    for (const { batch } of deferred) this.again.add(batch.id);
    this.waiting.unshift(...deferred.map((one) => one.batch));
  }

  /** Whether a lone value of the series has not been decided upon yet. */
  hasUndecided(series: number): boolean {
    const waits = this.waiting.some((slice) => this.again.has(slice.id) && isOnly(slice, series));
    return waits || this.deferred.some((one) => one.series === series);
  }

  /** Takes out the slices that hold nothing but this series. */
  takeOut(series: number): Batch[] {
    const all = [...this.shelved, ...this.waiting];
    this.shelved = this.shelved.filter((slice) => !isOnly(slice, series));
    this.waiting = this.waiting.filter((slice) => !isOnly(slice, series));
    return all.filter((slice) => isOnly(slice, series));
  }

  /** Takes out everything but what is posting. */
  takeOutAll(): Batch[] {
    const all = [...this.deferred.map((one) => one.batch), ...this.shelved, ...this.waiting];
    this.deferred = [];
    this.shelved = [];
    this.waiting = [];
    return all;
  }

  get isOver(): boolean {
    return this.posting === undefined && this.waiting.length + this.shelved.length + this.deferred.length === 0;
  }

  /** Runs `work` after everything else that works on this delivery. */
  exclusively(work: () => Promise<void>): Promise<void> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done;
  }
}

function isOnly(slice: Batch, series: number): boolean {
  return slice.series.length === 1 && slice.series[0] === series;
}
