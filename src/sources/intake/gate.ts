/**
 * Gate of a source. Every reading passes through `accept`, which scales it, suppresses it within the dead band, stamps
 * it, and adds it to the batch of the current event loop turn.
 *
 *   accept, accept, … ──► batch ──► append ──► on disk: last values are updated, readings are counted
 *                           ▲         │
 *                           └─ later ─┘ the store rejects the batch
 *
 * Batches are written concurrently, and a rejected batch may be written after later ones. If the kind requires order
 * (`inOrder`), values accepted during a write are queued and written together. The last sent values change only when a
 * batch is committed. A reading may be suppressed because of an uncommitted value. Its batch then waits for that value,
 * so that the reading is not confirmed if the value is lost. A crash loses waiting values, none of which have been
 * confirmed.
 */
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, SourceStopped, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { Note } from '../../buffer/client/notes.ts';
import {
  type Columns,
  STAMPED_HERE,
  STATUS_FLAGS,
  STATUS_MASK,
  ValueColumns,
} from '../../buffer/format/value-columns.ts';
import type { GroupMember, Source } from '../../config/tags.ts';
import type { Point } from '../points.ts';
import { Arrivals } from './arrivals.ts';
import { Batch, type PointState, untilOver } from './batch.ts';
import type { LastReadings } from './last-readings.ts';
import { isSent, numberOf, problemOfReading, type RawReading, scaledOf } from './shaping.ts';
import { aheadBeyondMs, countAheadOf, type Stamps } from './stamps.ts';
import { TroubleLog } from './trouble-log.ts';
import { type CountIngested, retryAfterOf, type ValueSink } from './value-sink.ts';
import { observeAll, type ValueWatch } from './value-watch.ts';

export type Quality = keyof typeof STATUS_FLAGS;

export interface GateOptions {
  /** Name of the source in tags.yaml. */
  source: string;
  /** `arrival`: timestamps sent with values are ignored. */
  timeFrom: 'arrival' | 'source';
  /** Index of this agent in its group. */
  member?: GroupMember | undefined;
  sink: ValueSink;
  stamps: Stamps;
  clock: Clock;
  log: Logger;
  countIngested?: CountIngested;
  /** Called with the number of values whose timestamp is more than a day ahead of a trusted clock. */
  countAhead?: CountIngested;
  /** Latest readings, for display. */
  readings?: LastReadings | undefined;
  watch?: ValueWatch | undefined;
  /** Maximum number of values waiting for the disk. Default: 20,000. */
  maxWaiting?: number;
  /** Values are committed in the order in which they were accepted. */
  inOrder?: boolean;
}

const MAX_WAITING = 20_000;
const MIN_RETRY_MS = 100;
/** Time limit for storing rule transitions when a source stops. */
const STOP_PATIENCE_MS = 2_000;
/** Maximum initial capacity of a batch, in values. */
const MAX_ROOM = 4_096;

export class Gate {
  readonly #options: GateOptions;
  readonly #trouble: TroubleLog;
  readonly #states = new Map<number, PointState>();
  readonly #end = new AbortController();
  #open: Batch | undefined;
  /** Size of the previous batch, used as the initial capacity of the next batch. */
  #room = 0;
  #batches = new Set<Batch>();
  /** Batches waiting for the current write if order is required. */
  #queued: Batch[] = [];
  #isWriting = false;
  /** Whether the source stopped while the store was rejecting its values. */
  #hasStoppedRetrying = false;
  #waiting = 0;
  /** Number of readings on disk, and the monotonic time of the latest one. */
  stored = 0;
  lastStoredMs: number | undefined;
  /** Monotonic time of the latest valid reading, whether sent or suppressed by the dead band. */
  lastAcceptedMs: number | undefined;
  readonly arrivals: Arrivals;

  constructor(options: GateOptions) {
    this.#options = options;
    this.#trouble = new TroubleLog(options.log, options.clock);
    this.arrivals = new Arrivals(options);
  }

  /** Returns whether this gate assigns times according to the configuration of the source. */
  usesTimesOf({ timeFrom, member }: Pick<Source, 'timeFrom' | 'member'>): boolean {
    const { timeFrom: from, member: own } = this.#options;
    return from === timeFrom && own?.index === member?.index && own?.of === member?.of;
  }

  /** Whether no more values should be read because too many are waiting for the disk. */
  get isFull(): boolean {
    return this.#waiting >= (this.#options.maxWaiting ?? MAX_WAITING);
  }

  /** Throws `source.busy` while the gate is full. */
  throwIfFull(): void {
    if (!this.isFull) return;
    throw new TagferryError('too many values are waiting for the disk', { code: 'source.busy', retryable: true });
  }

  /** Returns the latest value received since the source was opened, even if it was not sent. */
  latestOf({ series }: Pick<Point, 'series'>): number | undefined {
    return this.#states.get(series)?.received;
  }

  /** Number of values waiting for the disk. */
  get waiting(): number {
    return this.#waiting;
  }

  /**
   * Accepts one reading: a number, or a text or boolean if the value has a map. `timeMs` is the reading's own timestamp
   * (an integer, 1970 to 9999). If omitted, the arrival time is used. A reading without a number is a failure. Returns
   * whether the value is sent; `committed` resolves when it is on disk.
   */
  accept(point: Point, raw: RawReading, timeMs?: number, quality?: Quality): boolean {
    const number = numberOf(raw, point.map);
    if (number === undefined) return this.rejectReading(point, problemOfReading(raw, point.map));
    const value = scaledOf(number, point.shaping);
    if (!Number.isFinite(value)) return this.recordFailure(point, `${raw} is not a finite number after scaling`);
    this.arrivals.noteNumber(point);
    const nowMs = this.#batch().atMs;
    this.lastAcceptedMs = nowMs;
    this.#options.readings?.record(point.series, value, number, timeMs ?? Number.NaN, nowMs, quality === 'bad');
    if (this.arrivals.hasListeners) {
      const time = timeMs === undefined ? {} : { timeMs };
      this.arrivals.notify({ point, raw, ...time, ...(quality === undefined ? {} : { quality }) });
    }
    this.#observe(point, value, timeMs, quality);
    let state = this.#states.get(point.series);
    if (state === undefined) {
      state = { received: value, sent: undefined, next: undefined };
      this.#states.set(point.series, state);
    } else {
      state.received = value;
    }
    return this.#add(state, point, value, timeMs, quality === undefined ? 0 : STATUS_FLAGS[quality]);
  }

  /** Records a reading that is not a number: counts it, logs it and treats it as a failure. */
  rejectReading(point: Point, problem: string): boolean {
    this.arrivals.noteNotNumber(point, problem);
    return this.recordFailure(point, problem);
  }

  /**
   * Records a failed reading, with the problem if data arrived. With `on_failure: bad`, sends the latest value again
   * with the current time and the status bad.
   */
  recordFailure(point: Point, problem?: string): boolean {
    if (problem !== undefined) this.arrivals.noteUnread(point, problem);
    if (point.shaping.onFailure !== 'bad') return false;
    const state = this.#states.get(point.series);
    const last = state?.next?.sent ?? state?.sent;
    if (state === undefined || last === undefined) return false;
    this.#observe(point, last.value, undefined, 'bad');
    return !last.isBad && this.#add(state, point, last.value, undefined, STATUS_FLAGS.bad);
  }

  /** Adds values that already have timestamps and are sent unchanged. */
  add(columns: Columns): void {
    if (columns.length === 0) return;
    const batch = this.#batch();
    this.lastAcceptedMs = batch.atMs;
    batch.columns.addAll(columns);
    this.arrivals.noteAll(columns);
    for (const stored of observeAll(this.#options.watch, columns)) batch.after.add(this.#untilStopped(stored));
    this.#options.readings?.recordAll(columns, batch.atMs);
    batch.ahead += countAheadOf(columns, batch.wallMs);
    this.#waiting += columns.length;
  }

  /** Adds values that are older than accepted ones. Displays and rules on local values do not show or see them. */
  addPast(columns: Columns): void {
    this.#batch().columns.addAll(columns);
    this.#waiting += columns.length;
  }

  /** Adds notes to the transaction of the accepted values. */
  note(...notes: Note[]): void {
    if (notes.length === 0) return;
    this.#batch().notes.push(...notes);
  }

  /**
   * Resolves when all values accepted in this event loop turn are on disk. Rejects if the source stops first or the
   * store fails permanently.
   */
  committed(): Promise<void> {
    return this.#open?.done ?? Promise.resolve();
  }

  /** Resolves when all values accepted so far are on disk; rejects like `committed`. */
  async settled(): Promise<void> {
    await Promise.all([...this.#batches].map((batch) => batch.done));
  }

  /** Requests an early commit, because the sender is waiting for it. */
  commitSoon(): void {
    // The batch of this turn reaches the store at the end of the turn.
    setImmediate(() => this.#options.sink.commitSoon?.());
  }

  /** Stops retrying rejected values. Resolves when pending writes have completed or failed. */
  async stop(): Promise<void> {
    this.#end.abort(new SourceStopped());
    await Promise.allSettled([...this.#batches].map((batch) => batch.done));
  }

  #observe({ series }: Point, value: number, timeMs: number | undefined, quality: Quality | undefined): void {
    const { watch, timeFrom } = this.#options;
    if (!watch?.uses(series)) return;
    const isOwn = timeMs !== undefined && timeFrom === 'source';
    const batch = this.#batch();
    const stored = watch.observe(series, value, isOwn ? timeMs : batch.wallMs, quality);
    if (stored) batch.after.add(this.#untilStopped(stored));
  }

  /**
   * Waits for rule transitions to be stored. Once the source has stopped, rejects after a time limit, because a failing
   * store must not delay shutdown.
   */
  #untilStopped(stored: Promise<void>): Promise<void> {
    const { signal } = this.#end;
    const stopped = Promise.withResolvers<never>();
    const onAbort = () => this.#options.clock.after(STOP_PATIENCE_MS, () => stopped.reject(signal.reason));
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
    const over = Promise.race([stored, stopped.promise]).finally(() => signal.removeEventListener('abort', onAbort));
    // The promise may be awaited only later, when the batch is written.
    over.catch(() => {});
    return over;
  }

  #add(state: PointState, point: Point, value: number, timeMs: number | undefined, status: number): boolean {
    const { stamps, timeFrom, member } = this.#options;
    const isBad = (status & STATUS_MASK) === STATUS_FLAGS.bad;
    const { series, shaping } = point;
    const batch = this.#batch();
    const { atMs: nowMs, wallMs } = batch;
    if (!isSent(shaping, state.next?.sent ?? state.sent, value, isBad, nowMs)) {
      if (state.next && state.next.batch !== batch) batch.after.add(state.next.batch.done);
      return false;
    }
    const isOwn = timeMs !== undefined && timeFrom === 'source';
    const stampMs = isOwn ? timeMs : stamps.next(series, wallMs, member);
    if (isOwn && timeMs > aheadBeyondMs(wallMs)) batch.ahead++;
    batch.columns.add(series, stampMs, value, isOwn ? status : status | STAMPED_HERE);
    if (state.next?.batch !== batch) {
      state.next = { state, batch, sent: { value, isBad, atMs: nowMs } };
      batch.pendingValues.push(state.next);
    } else {
      state.next.sent.value = value;
      state.next.sent.isBad = isBad;
    }
    this.#waiting++;
    return true;
  }

  #batch(): Batch {
    if (this.#open) return this.#open;
    const { clock } = this.#options;
    const batch = new Batch(clock.monotonicMs(), this.#options.stamps.nowMs(clock), this.#room);
    this.#open = batch;
    this.#batches.add(batch);
    batch.done.catch(() => {});
    queueMicrotask(() => {
      this.#open = undefined;
      this.#room = Math.min(batch.columns.length, MAX_ROOM);
      void (this.#options.inOrder ? this.#writeInOrder(batch) : this.#write([batch]));
    });
    return batch;
  }

  async #writeInOrder(batch: Batch): Promise<void> {
    this.#queued.push(batch);
    if (this.#isWriting) return;
    this.#isWriting = true;
    while (this.#queued.length > 0) await this.#write(this.#queued.splice(0));
    this.#isWriting = false;
  }

  /** Writes batches in one transaction: either all or none of them reach the disk. */
  async #write(batches: readonly Batch[]): Promise<void> {
    try {
      await untilOver(batches);
      await this.#append(batches);
      for (const batch of batches) this.#keep(batch);
    } catch (error) {
      for (const { pendingValues, reject } of batches) {
        for (const next of pendingValues) if (next.state.next === next) next.state.next = undefined;
        reject(error);
      }
    } finally {
      for (const batch of batches) {
        this.#waiting -= batch.columns.length;
        this.#batches.delete(batch);
      }
    }
  }

  #keep({ pendingValues, columns, ahead, resolve }: Batch): void {
    for (const next of pendingValues) {
      const { state, sent } = next;
      // A rejected batch that is retried may be written after a later batch.
      if (!state.sent || state.sent.atMs <= sent.atMs) state.sent = sent;
      if (state.next === next) state.next = undefined;
    }
    this.#count(columns.length, ahead);
    resolve();
  }

  #count(values: number, ahead: number): void {
    if (values === 0) return;
    const { source, clock, countIngested, countAhead } = this.#options;
    this.stored += values;
    this.lastStoredMs = clock.monotonicMs();
    countIngested?.(source, values);
    if (ahead > 0) countAhead?.(source, ahead);
  }

  async #append(batches: readonly Batch[]): Promise<void> {
    const { sink, clock, source, inOrder } = this.#options;
    const { signal } = this.#end;
    const length = batches.reduce((sum, { columns }) => sum + columns.length, 0);
    const notes = batches.length === 1 ? batches[0]!.notes : batches.flatMap((batch) => batch.notes);
    if (length === 0 && notes.length === 0) return;
    for (;;) {
      if (inOrder && this.#hasStoppedRetrying) throw signal.reason;
      // Pass a copy, because the sink owns the columns it receives and rejected values are passed again.
      const copy = new ValueColumns(length);
      for (const { columns } of batches) copy.addAll(columns);
      try {
        const written = sink.append(copy, notes);
        // After the source has stopped, no further batch follows, so commit immediately.
        if (signal.aborted) sink.commitSoon?.();
        await written;
        this.#trouble.recovered('source.store_refused', { source }, 'source values accepted again');
        return;
      } catch (error) {
        const retryAfterMs = retryAfterOf(error);
        const fields = { source, code: codeOf(error), error: messageOf(error) };
        this.#trouble.report({ event: 'source.store_refused', ...fields }, 'source values rejected by the store');
        if (retryAfterMs === undefined) throw error;
        await clock.sleep(Math.max(MIN_RETRY_MS, retryAfterMs), signal).catch((reason: unknown) => {
          this.#hasStoppedRetrying = true;
          throw reason;
        });
      }
    }
  }
}
