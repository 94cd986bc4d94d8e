/**
 * The gate of a source: every reading of every kind comes through `take`, which scales it, leaves out what the dead band
 * leaves out, stamps it, and gives it to the buffer with what else was taken in the same turn of the event loop.
 *
 *   take, take, … ──► batch ──► append ──► on disk: last values move on, readings are counted
 *                       ▲         │
 *                       └─ later ─┘ the store refuses
 *
 * Many batches may be under way at once, and one that was refused comes behind later ones; unless the kind keeps order (`inOrder`): then
 * what is taken meanwhile waits, and goes together. What was last sent moves on only with the commit: a reading that is left out
 * because of one under way waits for it, so nothing is confirmed on the strength of a value that is then lost. A crash loses what
 * waits, none of which was confirmed.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, SourceStopped, TagferryError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Note } from '../buffer/client/notes.ts';
import { type Columns, STAMPED_HERE, STATUS_FLAGS, STATUS_MASK, ValueColumns } from '../buffer/format/value-columns.ts';
import type { GroupMember, Source } from '../config/tags.ts';
import { aheadBeyondMs } from './ahead-times.ts';
import { Arrivals } from './arrivals.ts';
import type { LastReadings } from './last-readings.ts';
import type { Point } from './points.ts';
import { isSent, type LastSent, scaledOf } from './shaping.ts';
import type { Stamps } from './stamps.ts';
import { TroubleLog } from './trouble-log.ts';
import { type CountIngested, retryAfterOf, type ValueSink } from './value-sink.ts';

export type Quality = keyof typeof STATUS_FLAGS;

export interface GateOptions {
  /** Of the source in tags.yaml. */
  source: string;
  /** `arrival`: times that come with a value do not count. */
  timeFrom: 'arrival' | 'source';
  /** Which agent of its group this is. */
  member?: GroupMember | undefined;
  sink: ValueSink;
  stamps: Stamps;
  clock: Clock;
  log: Logger;
  countIngested?: CountIngested;
  /** Of them: values whose own time lies more than a day ahead of a clock that can be trusted. */
  countAhead?: CountIngested;
  /** For people who look. */
  readings?: LastReadings | undefined;
  /** Values that may wait for the disk; 20,000 unless told. */
  maxWaiting?: number;
  /** Nothing is on disk before what was taken before it. */
  inOrder?: boolean;
}

/** What is known of one series of a source. */
interface PointState {
  sent: LastSent | undefined;
  /** The last one under way. */
  next: UnderWay | undefined;
}

/** The last value of a series in a batch. */
interface UnderWay {
  readonly state: PointState;
  readonly batch: Batch;
  sent: LastSent;
}

const MAX_WAITING = 20_000;
const MIN_RETRY_MS = 100;
/** What a batch makes room for before anything is in it. */
const MAX_ROOM = 4_096;

export class Gate {
  readonly #options: GateOptions;
  readonly #trouble: TroubleLog;
  readonly #states = new Map<number, PointState>();
  readonly #end = new AbortController();
  #open: Batch | undefined;
  /** Of the last batch: polls bring the same number each time. */
  #room = 0;
  #batches = new Set<Batch>();
  /** Where order is kept: what waits for those that are being written. */
  #line: Batch[] = [];
  #isWriting = false;
  /** The source has stopped, and the store refused what it had taken. */
  #hasGivenUp = false;
  #waiting = 0;
  /** Readings that reached the disk, and the monotonic time of the last one. */
  stored = 0;
  lastStoredMs: number | undefined;
  /** Monotonic, of the last reading that was a number, sent or left out by the dead band. */
  lastTakenMs: number | undefined;
  readonly arrivals = new Arrivals();

  constructor(options: GateOptions) {
    this.#options = options;
    this.#trouble = new TroubleLog(options.log, options.clock);
  }

  /** Whether it gives times as the source is configured. */
  givesTimesOf({ timeFrom, member }: Pick<Source, 'timeFrom' | 'member'>): boolean {
    const { timeFrom: from, member: own } = this.#options;
    return from === timeFrom && own?.index === member?.index && own?.of === member?.of;
  }

  /** So many wait for the disk that nothing more should be read. */
  get isFull(): boolean {
    return this.#waiting >= (this.#options.maxWaiting ?? MAX_WAITING);
  }

  /** Throws `source.busy` while the gate is full. */
  demandRoom(): void {
    if (!this.isFull) return;
    throw new TagferryError('too many values wait for the disk', { code: 'source.busy', retryable: true });
  }

  /** Values that wait for the disk. */
  get waiting(): number {
    return this.#waiting;
  }

  /**
   * One reading. `timeMs` is the time that came with it (whole, 1970 to 9999), left out it has that of its arrival. One that is no
   * number is a failure. Gives whether it goes out; `committed` tells when it is on disk.
   */
  take(point: Point, raw: number, timeMs?: number, quality?: Quality): boolean {
    const value = scaledOf(raw, point.shaping);
    if (!Number.isFinite(value)) return this.fail(point, `${raw} is not a number that can be sent`);
    this.arrivals.note(point.series);
    const nowMs = this.#batch().atMs;
    this.lastTakenMs = nowMs;
    this.#options.readings?.take(point.series, value, raw, timeMs ?? Number.NaN, nowMs, quality === 'bad');
    if (this.arrivals.isHeard) {
      const time = timeMs === undefined ? {} : { timeMs };
      this.arrivals.tell({ point, raw, ...time, ...(quality === undefined ? {} : { quality }) });
    }
    return this.#add(point, value, timeMs, quality === undefined ? 0 : STATUS_FLAGS[quality]);
  }

  /**
   * A reading failed, with the problem of what came if anything came: by `on_failure: bad` the last value goes out once more, as bad,
   * now.
   */
  fail(point: Point, problem?: string): boolean {
    if (problem !== undefined) this.arrivals.noteUnread(point, problem);
    if (point.shaping.onFailure !== 'bad') return false;
    const last = this.#lastOf(point.series);
    return last !== undefined && !last.isBad && this.#add(point, last.value, undefined, STATUS_FLAGS.bad);
  }

  /** Values that are as they are to be sent, stamped already. */
  add(columns: Columns): void {
    if (columns.length === 0) return;
    const batch = this.#batch();
    this.lastTakenMs = batch.atMs;
    batch.columns.addAll(columns);
    this.arrivals.noteAll(columns);
    this.#options.readings?.takeAll(columns, batch.atMs);
    batch.ahead += countAheadOf(columns, batch.wallMs);
    this.#waiting += columns.length;
  }

  /** Facts that are written in the transaction of what was taken. */
  note(...notes: Note[]): void {
    if (notes.length === 0) return;
    this.#batch().notes.push(...notes);
  }

  /**
   * Resolves when all that was taken in this turn of the event loop is on disk. Rejects when the source stops before, or
   * with what the store refuses for good.
   */
  committed(): Promise<void> {
    return this.#open?.done ?? Promise.resolve();
  }

  /** Resolves when all that was taken until now is on disk; rejects as `committed` does. */
  async settled(): Promise<void> {
    await Promise.all([...this.#batches].map((batch) => batch.done));
  }

  /** More can only come after a commit: it comes early. */
  hurry(): void {
    // What was taken in this turn is given to the store at its end.
    setImmediate(() => this.#options.sink.hurry?.());
  }

  /** Ends waiting for a store that refuses; resolves when what is being written is on disk. */
  async stop(): Promise<void> {
    this.#end.abort(new SourceStopped());
    await Promise.allSettled([...this.#batches].map((batch) => batch.done));
  }

  #lastOf(series: number): LastSent | undefined {
    const state = this.#states.get(series);
    return state?.next?.sent ?? state?.sent;
  }

  #add(point: Point, value: number, timeMs: number | undefined, status: number): boolean {
    const { stamps, timeFrom, member } = this.#options;
    const isBad = (status & STATUS_MASK) === STATUS_FLAGS.bad;
    const { series, shaping } = point;
    let state = this.#states.get(series);
    if (state === undefined) {
      state = { sent: undefined, next: undefined };
      this.#states.set(series, state);
    }
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
    const sent = { value, isBad, atMs: nowMs };
    if (state.next?.batch === batch) state.next.sent = sent;
    else {
      state.next = { state, batch, sent };
      batch.underWay.push(state.next);
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
    this.#line.push(batch);
    if (this.#isWriting) return;
    this.#isWriting = true;
    while (this.#line.length > 0) await this.#write(this.#line.splice(0));
    this.#isWriting = false;
  }

  /** Together: all of them are on disk, or none. */
  async #write(batches: readonly Batch[]): Promise<void> {
    try {
      await untilOver(batches);
      await this.#append(batches);
      for (const batch of batches) this.#keep(batch);
    } catch (error) {
      for (const { underWay, reject } of batches) {
        for (const next of underWay) if (next.state.next === next) next.state.next = undefined;
        reject(error);
      }
    } finally {
      for (const batch of batches) {
        this.#waiting -= batch.columns.length;
        this.#batches.delete(batch);
      }
    }
  }

  #keep({ underWay, columns, ahead, resolve }: Batch): void {
    for (const next of underWay) {
      const { state, sent } = next;
      // One that was refused at first may come behind a later one.
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
      if (inOrder && this.#hasGivenUp) throw signal.reason;
      // The sink owns what it gets, and what it refuses is offered again: so it gets a copy.
      const copy = new ValueColumns(length);
      for (const { columns } of batches) copy.addAll(columns);
      try {
        const written = sink.append(copy, notes);
        // What waited for its turn when the source stopped is the last that comes.
        if (signal.aborted) sink.hurry?.();
        await written;
        this.#trouble.over('source.store_refused', { source }, 'the store takes the values of a source again');
        return;
      } catch (error) {
        const retryAfterMs = retryAfterOf(error);
        const fields = { source, code: codeOf(error), error: messageOf(error) };
        this.#trouble.again(
          { event: 'source.store_refused', ...fields },
          'the store does not take the values of a source',
        );
        if (retryAfterMs === undefined) throw error;
        await clock.sleep(Math.max(MIN_RETRY_MS, retryAfterMs), signal).catch((reason: unknown) => {
          this.#hasGivenUp = true;
          throw reason;
        });
      }
    }
  }
}

/** Until what they left something out because of is on disk; rejects where that failed. What is written with them is no reason to wait. */
async function untilOver(batches: readonly Batch[]): Promise<void> {
  if (batches.every(({ after }) => after.size === 0)) return;
  const own = new Set(batches.map(({ done }) => done));
  await Promise.all(batches.flatMap(({ after }) => [...after].filter((done) => !own.has(done))));
}

function countAheadOf({ length, timeMs, flags }: Columns, wallMs: number): number {
  const beyondMs = aheadBeyondMs(wallMs);
  let ahead = 0;
  for (let at = 0; at < length; at++) if (timeMs[at]! > beyondMs && (flags[at]! & STAMPED_HERE) === 0) ahead++;
  return ahead;
}

/** What was taken in one turn of the event loop. */
class Batch {
  /** When it was begun, by both clocks: what comes in one turn comes at once. */
  readonly atMs: number;
  readonly wallMs: number;
  readonly columns: ValueColumns;
  ahead = 0;
  readonly notes: Note[] = [];
  /** What this one's readings were left out because of. */
  readonly after = new Set<Promise<void>>();
  readonly underWay: UnderWay[] = [];
  readonly #done = Promise.withResolvers<void>();
  readonly done = this.#done.promise;
  readonly resolve = this.#done.resolve;
  readonly reject = this.#done.reject;

  constructor(atMs: number, wallMs: number, room: number) {
    this.atMs = atMs;
    this.wallMs = wallMs;
    this.columns = new ValueColumns(room);
  }
}
