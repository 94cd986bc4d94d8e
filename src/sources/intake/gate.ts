/**
 * Gate of a source: the path of its values to the disk. `write` shapes readings (map, scale, dead band), stamps them and
 * adds them to the open batch of the source. It returns the promise of the batch, which resolves when the batch is on
 * disk. The acknowledgement to the sender is the next line.
 *
 *   write, write, … ──► open batch ──► pulled by the committer ──► on disk: the promise resolves
 *                           ▲                     │
 *                           └──── head of the ────┘ the commit failed
 *                                 open batch
 *
 * A source has at most two batches: one open, and one that is being written. After a failed commit, the batch becomes
 * the head of the open batch again, so values are stored in the order in which they were accepted. A gate whose senders
 * repeat their requests (`repeats`) rejects the batch instead.
 *
 * A reading that the dead band suppresses belongs to the open batch, or to the one that is being written, because these
 * may contain the value to which it was compared. A crash loses open batches, none of which have been confirmed.
 */
import type { Clock } from '../../base/clock.ts';
import { SourceStopped, StoreError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { Committer, PulledBatch, Supply } from '../../buffer/client/committer.ts';
import type { Note } from '../../buffer/client/notes.ts';
import {
  type Columns,
  STAMPED_HERE,
  STATUS_FLAGS,
  STATUS_MASK,
  ValueColumns,
} from '../../buffer/format/value-columns.ts';
import type { ValueStatus } from '../../contract/values.ts';
import type { Point } from '../points.ts';
import type { ObservedReading, SourceStatus } from '../status.ts';
import { differenceText } from './logger-time.ts';
import { isSent, type LastSent, type NoMeasurement, type RawReading, shape } from './shaping.ts';
import type { Stamps } from './stamps.ts';
import { type Duplicates, type TimeUnit, ValueTimes } from './times.ts';
import { TroubleLog } from './trouble-log.ts';

export type Quality = keyof typeof STATUS_FLAGS;
const STATUSES: readonly (ValueStatus | undefined)[] = [undefined, 'good', 'uncertain', 'bad'];

/** Rules on local values. They see accepted values in order of acceptance, before the dead band is applied. */
export interface ValueWatch {
  /** Whether any series is watched. */
  readonly isIdle: boolean;
  uses(series: number): boolean;
  /**
   * Returns a promise that resolves when the rule transitions caused by this value and by earlier values of the series
   * are on disk, or undefined if there are no such transitions. The value must not be confirmed before.
   */
  observe(
    series: number,
    value: number,
    timestampMs: number,
    status: ValueStatus | undefined,
  ): Promise<void> | undefined;
}

/** Records the latest readings for display. Times are monotonic; NaN in `raw` and `timeMs` means none. */
export interface ReadingRecorder {
  record(series: number, value: number, raw: number, timeMs: number, nowMs: number, isBad: boolean): void;
  recordAll(columns: Columns, nowMs: number): void;
}

/** Called after each commit with the source and the number of values. */
type CountIngested = (source: string, values: number) => void;

export interface GateOptions {
  /** Status of the source. Its name is the source name in tags.yaml, or the kind of push request. */
  status: SourceStatus;
  /** `arrival`: timestamps sent with values are ignored. */
  timeFrom: 'arrival' | 'source';
  committer: Pick<Committer, 'offer' | 'isFullFor' | 'isClosed' | 'commitSoon'>;
  stamps: Stamps;
  clock: Clock;
  log: Logger;
  countIngested?: CountIngested;
  /** Plausibility rules for timestamps. Default: rules with the default EARLIEST_TIME. */
  times?: ValueTimes | undefined;
  /** Latest readings, for display. */
  readings?: ReadingRecorder | undefined;
  watch?: ValueWatch | undefined;
  /** Latest sent values, by series, which the gate continues and updates. Default: none. */
  sent?: Map<number, Sent>;
  /** Returns the display name of a series that the source does not list. */
  nameOf?: (series: number) => string | undefined;
  /** Maximum number of values waiting for the disk. Default: 50,000. */
  maxWaiting?: number;
  /** Whether senders repeat a request after an error. A batch that cannot be stored is then rejected, not retried. */
  repeats?: boolean;
}

interface Sent extends LastSent {
  /** Timestamp from the source; NaN if the value has the arrival time. */
  ownMs: number;
}

/** Timestamp of a reading. */
interface ReadingTime {
  /** In milliseconds. If omitted, the arrival time is used. */
  timeMs?: number | undefined;
  /** Unit of a numeric timestamp, in milliseconds. */
  msOfUnit?: number | undefined;
  /** Returns the hint for a timestamp in another unit. */
  unitFix?: ((unit: TimeUnit) => string) | undefined;
  /**
   * Returns the time that replaces an implausible timestamp. `unknown`: the value was not read live, so it is rejected.
   * Default: the arrival time.
   */
  arrival?: 'unknown' | ((series: number) => number) | undefined;
}

/** A reading of one value: a number or a text, or the reason why there is none. */
export type Reading = { point: Point } & (
  | ({
      raw: RawReading;
      quality?: Quality | undefined;
      /** Power of ten by which the number is multiplied, from a scale register. */
      exponent?: number;
      /** Problem with the timestamp, shown by a test. */
      warning?: string;
    } & ReadingTime)
  /**
   * Data that arrived but is not a measurement; counted and logged here. Default of `fault`: `not_a_number`. `count`:
   * number of readings.
   */
  | ({ problem: string; fault?: NoMeasurement; count?: number } & ReadingTime)
  /**
   * The value could not be read; counted and logged by the source. `undefined` if no data arrived. `isUnavailable`:
   * whether the latest value is sent with the status bad regardless of `on_failure`.
   */
  | ({ failure: string | undefined; hint?: string | undefined; count?: number; isUnavailable?: true } & ReadingTime)
  /** Data that arrived without the value, which is not a failure. `isAlone`: whether it contains no other value. */
  | { absent: string; isAlone: boolean }
);
type NumberReading = Extract<Reading, { raw: RawReading }>;

const MAX_WAITING = 50_000;
/** Interval between checks whether the values of other sources have been committed. */
const ROOM_CHECK_MS = 100;
/** Time limit for storing rule transitions if a sender waits, or the source stops. */
const TRANSITIONS_MS = 5_000;
/** Maximum initial capacity of a batch, in values. */
const MAX_ROOM = 4_096;
const DONE = Promise.resolve();
/** Hints for duplicate timestamps, by source kind. */
const SAME_TIME_FIX = 'send timestamps with milliseconds, or set time_from: arrival';
const SAME_TIME_FIXES: Readonly<Record<string, string>> = {
  push: 'send timestamps with milliseconds (in line protocol, precision=ms or finer)',
  csv: 'check that time_column and time_format include the seconds and their fraction',
};

/** Time of the readings that are written together. */
interface Now {
  /** Monotonic. */
  ms: number;
  wallMs: number;
}

export class Gate implements Supply {
  readonly #options: GateOptions;
  readonly #trouble: TroubleLog;
  readonly #times: ValueTimes;
  readonly #sent: Map<number, Sent>;
  #open: Batch | undefined;
  #written: Batch | undefined;
  /** Batches on disk that wait for rule transitions. */
  readonly #observed = new Set<Batch>();
  /** Size of the previous batch, used as the initial capacity of the next batch. */
  #room = 0;
  #isStopped = false;
  /** Whether a timestamp without a UTC offset has been reported, which is then ahead. */
  #isZoneMissing = false;
  readonly status: SourceStatus;
  /** Timestamps that are used. */
  readonly timeFrom: GateOptions['timeFrom'];

  constructor(options: GateOptions) {
    this.#options = options;
    this.#sent = options.sent ?? new Map();
    this.#trouble = new TroubleLog(options.log, options.clock);
    this.status = options.status;
    this.timeFrom = options.timeFrom;
    this.#times = options.times ?? new ValueTimes();
  }

  /** Number of values waiting for the disk. */
  get waiting(): number {
    return (this.#open?.columns.length ?? 0) + (this.#written?.columns.length ?? 0);
  }

  /** Whether the source must not read more values, because too many are waiting for the disk. */
  get isFull(): boolean {
    const { maxWaiting = MAX_WAITING, committer } = this.#options;
    return this.waiting >= maxWaiting || committer.isFullFor(1);
  }

  /** Resolves when the source may read more values, which requests an early commit. */
  async untilRoom(): Promise<void> {
    const { clock } = this.#options;
    while (this.isFull && !this.#isStopped) {
      this.commitSoon();
      await (this.waiting > 0 ? this.#committed().catch(() => {}) : clock.sleep(ROOM_CHECK_MS));
    }
  }

  /**
   * Adds readings and notes to the open batch. Resolves when they are on disk together with all values to which they
   * were compared. Rejects if the source stops first, or with the `StoreError` if senders repeat their requests.
   */
  write(readings: readonly Reading[], notes: readonly Note[] = []): Promise<void> {
    if (readings.length > 0) {
      const now = this.#now();
      const before = this.#open?.columns.length ?? 0;
      for (const reading of readings) this.#accept(reading, now);
      if (this.#open !== undefined) this.#options.committer.offer(this, this.#open.columns.length - before);
    }
    if (notes.length > 0 && !this.#isStopped) {
      for (const note of notes) this.#batch().notes.set(note.name, note);
      this.#options.committer.offer(this, 0);
    }
    return this.#committed();
  }

  /** Like `write`, for a source that does not confirm its readings to anything. */
  record(readings: readonly Reading[], notes?: readonly Note[]): void {
    // Failed commits are reported and retried.
    this.write(readings, notes).catch(() => {});
  }

  /** Adds values that already have timestamps and are sent unchanged. Takes ownership of the columns. */
  writeColumns(columns: ValueColumns): Promise<void> {
    const { committer, readings, clock, repeats } = this.#options;
    const { length } = columns;
    if (length === 0) return this.#committed();
    if (committer.isClosed) return Promise.reject(unavailable('the agent is stopping', 'buffer.closing'));
    if (repeats && committer.isFullFor(length)) {
      return Promise.reject(unavailable('too many values are waiting for the disk', 'buffer.busy'));
    }
    const batch = this.#batch();
    if (repeats) this.#reportAheadIn(columns);
    const nowMs = clock.monotonicMs();
    this.status.recordValues(nowMs);
    this.#observeAll(columns, batch);
    readings?.recordAll(columns, nowMs);
    batch.addAll(columns);
    committer.offer(this, length);
    return batch.done;
  }

  /**
   * Adds values that are older than accepted ones, with notes. Displays do not show these values, and rules on
   * local values ignore them. Resolves and rejects like `write`.
   */
  writePast(columns: Columns, notes: readonly Note[]): Promise<void> {
    if (!this.#isStopped) {
      this.#batch().columns.addAll(columns);
      this.#options.committer.offer(this, columns.length);
    }
    return this.write([], notes);
  }

  #now(): Now {
    const { clock, stamps } = this.#options;
    return { ms: clock.monotonicMs(), wallMs: stamps.nowMs(clock) };
  }

  #accept(reading: Reading, now: Now): void {
    if ('raw' in reading) {
      const shaped = shape(reading.raw, reading.point, reading.exponent);
      if ('problem' in shaped) this.#fail(reading, shaped.problem, shaped.fault, now);
      else this.#acceptNumber(reading, shaped, now);
    } else if ('problem' in reading) {
      this.#fail(reading, reading.problem, reading.fault ?? 'not_a_number', now);
    } else if ('failure' in reading) {
      this.#fail(reading, reading.failure, undefined, now);
    } else {
      this.status.recordFailure(reading.point, reading.absent, {}, reading.isAlone ? 1 : 0);
    }
  }

  #acceptNumber(reading: NumberReading, { number, value }: { number: number; value: number }, now: Now): void {
    const { point, quality, arrival } = reading;
    let { timeMs, warning } = reading;
    const problem = this.#problemOf(reading, now);
    if (problem !== undefined) {
      if (arrival === 'unknown') {
        this.status.rejectTime(point, problem);
        return;
      }
      this.reportReplaced(`${point.name}: ${problem}`, point.name);
      timeMs = arrival?.(point.series);
      warning = `time of arrival used: ${problem}`;
    } else if (timeMs !== undefined && arrival !== 'unknown') this.reportIfAhead(timeMs, now.wallMs, point.name);
    this.status.recordNumber(warning === undefined ? reading : { ...reading, timeMs, warning }, value, now.ms);
    this.#options.readings?.record(point.series, value, number, timeMs ?? Number.NaN, now.ms, quality === 'bad');
    this.#add(point, value, timeMs, quality, now);
  }

  /** Returns why the timestamp of a reading is implausible; `undefined` if it is plausible or not used. */
  #problemOf({ timeMs, msOfUnit, unitFix }: ReadingTime, { wallMs }: Now): string | undefined {
    if (timeMs === undefined || this.timeFrom === 'arrival' || this.#times.isPlausible(timeMs, wallMs))
      return undefined;
    return this.#times.problemOf(timeMs, wallMs, msOfUnit, unitFix);
  }

  /** Reports an implausible timestamp that was replaced with the arrival time. */
  reportReplaced(problem: string, value?: string): void {
    if (this.timeFrom === 'source') this.status.warn('timeReplaced', problem, 1, value);
  }

  /** Reports a timestamp without a UTC offset that is probably local time. */
  reportMissingZone(problem: string): void {
    this.#isZoneMissing = true;
    if (this.timeFrom === 'source') this.status.warn('zoneMissing', problem);
  }

  /** Reports a plausible timestamp of a live value that is ahead of the arrival time. */
  reportIfAhead(timeMs: number, wallMs: number, value?: string): void {
    if (this.timeFrom === 'arrival' || this.#isZoneMissing || !this.#times.isAhead(timeMs, wallMs)) return;
    const problem = `${aheadText(timeMs, wallMs)}, or set time_from: arrival`;
    this.status.warn('timeAhead', value === undefined ? problem : `${value}: ${problem}`, 1, value);
  }

  /** Like `reportIfAhead`, for pushed values. */
  #reportAheadIn({ length, series, timeMs, flags }: Columns): void {
    const { wallMs } = this.#now();
    let count = 0;
    let latest = 0;
    for (let at = 0; at < length; at++) {
      if (!this.#times.isAhead(timeMs[at]!, wallMs) || (flags[at]! & STAMPED_HERE) !== 0) continue;
      count++;
      latest = at;
    }
    if (count === 0) return;
    this.status.warn('timeAhead', `${this.#nameOf(series[latest]!)}: ${aheadText(timeMs[latest]!, wallMs)}`, count);
  }

  /** Returns whether the timestamp of a live value is plausible. */
  isPlausible(timeMs: number): boolean {
    return this.#times.isPlausible(timeMs, this.#now().wallMs);
  }

  /**
   * Returns why the timestamp of a value that was not read live is implausible, or `undefined` if it is plausible or
   * not used. For the other arguments, see `ValueTimes.problemOf`.
   */
  problemOfTime(timeMs: number, msOfUnit?: number, unitFix?: (unit: TimeUnit) => string): string | undefined {
    return this.#problemOf({ timeMs, msOfUnit, unitFix }, this.#now());
  }

  /** Rejects a past value if its timestamp is implausible. Returns whether the value was rejected. */
  rejectsPast(point: Point, timeMs: number): boolean {
    const problem = this.problemOfTime(timeMs);
    if (problem !== undefined) this.status.rejectTime(point, problem);
    return problem !== undefined;
  }

  /**
   * With `on_failure: bad`, sends the latest value again with the status bad. Its time is that of the failed reading
   * or, if unknown, the current time. The time is always later than that of the latest value, which can be ahead of the
   * clock.
   */
  #fail(
    reading: { point: Point; count?: number; isUnavailable?: true } & ReadingTime &
      Pick<ObservedReading, 'raw' | 'hint'>,
    problem: string | undefined,
    fault: NoMeasurement | undefined,
    now: Now,
  ): void {
    const { point, raw, hint, count, arrival, isUnavailable } = reading;
    if (fault !== undefined) this.status.reportNoMeasurement(point, problem!, fault, count);
    this.status.recordFailure(point, problem, { raw, hint }, count);
    const sent = this.#sent.get(point.series);
    const sendsBad = point.shaping.onFailure === 'bad' || isUnavailable;
    if (!sendsBad || sent === undefined || sent.isBad) return;
    let { timeMs } = reading;
    if (this.#problemOf(reading, now) !== undefined) {
      if (arrival === 'unknown') return;
      timeMs = arrival?.(point.series);
    }
    if ((timeMs ?? now.wallMs) <= sent.ownMs) timeMs = sent.ownMs + 1;
    this.#add(point, sent.value, timeMs, 'bad', now);
  }

  /** Resolves when everything accepted so far is on disk; rejects like `write`. */
  #committed(): Promise<void> {
    const batch = this.#open ?? this.#written;
    if (batch !== undefined) return batch.done;
    return this.#isStopped ? Promise.reject(new SourceStopped()) : DONE;
  }

  /** Requests an early commit, because the sender is waiting for it. */
  commitSoon(): void {
    this.#options.committer.commitSoon();
  }

  /** Accepts no more values. Resolves when the accepted values are on disk, or their next commit has failed. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    if (this.#open) this.commitSoon();
    for (const batch of this.#observed) this.#limit(batch);
    await Promise.allSettled([this.#committed(), ...[...this.#observed].map(({ done }) => done)]);
  }

  /** Closes the open batch, for the commit that begins. */
  pull(): PulledBatch | undefined {
    const batch = this.#open;
    if (batch === undefined) return undefined;
    this.#open = undefined;
    this.#written = batch;
    this.#room = Math.min(batch.columns.length, MAX_ROOM);
    const { length } = batch.columns;
    const duplicates = this.#times.duplicatesIn(batch.columns);
    return {
      columns: batch.columns,
      notes: [...batch.notes.values()],
      isKept: !this.#options.repeats,
      stored: () => this.#stored(batch, length, duplicates),
      failed: (failure) => this.#failed(batch, failure),
    };
  }

  #stored(batch: Batch, values: number, duplicates: Duplicates | undefined): void {
    const { status, clock, countIngested, repeats } = this.#options;
    const source = status.name;
    this.#written = undefined;
    this.#trouble.recovered('source.store_refused', { source }, 'source values accepted again');
    if (values > 0) {
      status.stored += values;
      status.lastStoredMs = clock.monotonicMs();
      countIngested?.(source, values);
    }
    if (duplicates !== undefined) this.#reportDuplicates(duplicates);
    if (batch.after.length === 0) {
      batch.resolve();
      return;
    }
    this.#observed.add(batch);
    batch.done.catch(() => {}).finally(() => this.#observed.delete(batch));
    if (repeats || this.#isStopped) this.#limit(batch);
    Promise.all(batch.after).then(() => batch.resolve(), batch.reject);
  }

  #reportDuplicates({ count, series, timeMs }: Duplicates): void {
    const { status } = this.#options;
    const time = new Date(timeMs).toISOString();
    const fix = SAME_TIME_FIXES[status.kind] ?? SAME_TIME_FIX;
    status.warn('sameTime', `${this.#nameOf(series)} at ${time}: ${fix}`, count);
  }

  #nameOf(series: number): string {
    const { status, nameOf } = this.#options;
    return status.points.find((point) => point.series === series)?.name ?? nameOf?.(series) ?? 'a value';
  }

  /** Rejects a batch on disk if its rule transitions are not on disk in time, so that nothing waits for them forever. */
  #limit(batch: Batch): void {
    const error = this.#isStopped
      ? new SourceStopped()
      : unavailable('cannot store a rule on local values', 'buffer.busy');
    const cancel = this.#options.clock.after(TRANSITIONS_MS, () => batch.reject(error));
    batch.done.catch(() => {}).finally(cancel);
  }

  #failed(batch: Batch, failure: StoreError): void {
    const { status, repeats, committer } = this.#options;
    this.#written = undefined;
    const fields = { source: status.name, code: failure.code, error: failure.message };
    if (repeats) {
      batch.reject(failure);
      return;
    }
    this.#trouble.report({ event: 'source.store_refused', ...fields }, 'source values rejected by the store');
    const { length } = batch.columns;
    if (this.#open) batch.absorb(this.#open);
    this.#open = undefined;
    if (this.#isStopped) {
      // Later values must not be compared with values that are not on disk.
      for (const series of batch.columns.series.subarray(0, batch.columns.length)) this.#sent.delete(series);
      batch.reject(failure);
      return;
    }
    this.#open = batch;
    committer.offer(this, length);
  }

  #add(
    point: Point,
    value: number,
    timeMs: number | undefined,
    quality: Quality | undefined,
    { ms: nowMs, wallMs }: Now,
  ): void {
    if (this.#isStopped) return;
    const { stamps, watch } = this.#options;
    const { series, shaping } = point;
    const isOwn = timeMs !== undefined && this.timeFrom === 'source';
    const transition = watch?.uses(series) ? watch.observe(series, value, isOwn ? timeMs : wallMs, quality) : undefined;
    if (transition !== undefined) this.#batch().after.push(transition);
    const isBad = quality === 'bad';
    const sent = this.#sent.get(series);
    if (!isSent(shaping, sent, value, isBad, nowMs)) return;
    const batch = this.#batch();
    const stampMs = isOwn ? timeMs : stamps.next(series, wallMs);
    const status = quality === undefined ? 0 : STATUS_FLAGS[quality];
    batch.columns.add(series, stampMs, value, isOwn ? status : status | STAMPED_HERE);
    const ownMs = isOwn ? timeMs : Number.NaN;
    if (sent === undefined) this.#sent.set(series, { value, isBad, atMs: nowMs, ownMs });
    else {
      sent.value = value;
      sent.isBad = isBad;
      sent.atMs = nowMs;
      sent.ownMs = ownMs;
    }
  }

  #observeAll({ length, series, timeMs, value, flags }: Columns, batch: Batch): void {
    const { watch } = this.#options;
    if (watch === undefined || watch.isIdle) return;
    for (let at = 0; at < length; at++) {
      if (!watch.uses(series[at]!)) continue;
      const stored = watch.observe(series[at]!, value[at]!, timeMs[at]!, STATUSES[flags[at]! & STATUS_MASK]);
      if (stored) batch.after.push(stored);
    }
  }

  #batch(): Batch {
    this.#open ??= new Batch(this.#room);
    return this.#open;
  }
}

/** Values and notes that are committed together. */
class Batch {
  columns: ValueColumns;
  /** By name: a later note replaces an earlier one. */
  readonly notes = new Map<string, Note>();
  /** Rule transitions that must be on disk before the batch is confirmed. */
  readonly after: Promise<void>[] = [];
  readonly #done = Promise.withResolvers<void>();
  readonly done = this.#done.promise;
  readonly resolve = this.#done.resolve;
  readonly reject = this.#done.reject;

  constructor(room: number) {
    this.columns = new ValueColumns(room);
    // Not every sender waits for its values.
    this.done.catch(() => {});
  }

  /** Takes ownership of the columns. The first ones are not copied. */
  addAll(columns: ValueColumns): void {
    if (this.columns.length === 0) {
      this.columns = columns;
      return;
    }
    this.columns.addAll(columns);
    columns.release();
  }

  /** Appends a later batch, whose values are then confirmed together with the values of this batch. */
  absorb({ columns, notes, after, resolve, reject }: Batch): void {
    this.columns.addAll(columns);
    for (const [name, note] of notes) this.notes.set(name, note);
    this.after.push(...after);
    this.done.then(resolve, reject);
  }
}

function aheadText(timeMs: number, wallMs: number): string {
  const time = new Date(timeMs).toISOString();
  const difference = differenceText(timeMs - wallMs);
  return `timestamp ${time} is ${difference} the arrival time: check the clock and the time zone of the sender`;
}

function unavailable(message: string, code: string): StoreError {
  return new StoreError(message, { code, retryable: true });
}
