/**
 * What the store knows when it opens: the log as queues, spans as directories, and the series that these and quarantine
 * name. It reads the log, which is some seconds long, and twenty bytes for each segment: never the backlog.
 *
 * A row that is damaged is kept in `set_aside` and counted; the rest goes on.
 */
import type { Database } from '../../base/database.ts';
import { type LogRow, readLogRow } from '../format/log-row.ts';
import { unpackRanges } from '../format/settled-ranges.ts';
import { readNotes } from '../note-rows.ts';
import type { Pending } from '../pending.ts';
import type { Series } from '../series.ts';
import { MAX_ENTRIES, markGone, newSpan, openValues, type Span, segmentId, unpackDirectory } from '../span.ts';
import type { StoreState } from '../state.ts';
import {
  prepareStatements,
  prepareTables,
  type RunRow,
  runSum,
  type SpanRow,
  type Statements,
  seriesReader,
  spanSum,
} from '../tables.ts';
import { Carrying } from './carrying.ts';
import { remakeDirectories } from './directories.ts';
import { readable } from './readable.ts';
import type { SeriesCopy } from './series-copy.ts';
import { MEASURE_NOTE, type Measure, readMeasure } from './stamp-correction.ts';

/** This run of the agent, as the rows name it. */
export interface RunHead {
  id: number;
  boot: string;
  isNew: boolean;
  /** Both clocks when the store opened. */
  began: { wallMs: number; monotonicMs: number };
  /** When its row was last told how long it lasts. */
  notedMs: number;
}

export interface Recovered {
  /** Where segments stand in files that were set aside. */
  carrying: Carrying | undefined;
  series: Series[];
  run: RunHead;
  damaged: { what: string; values: number }[];
}

/** Throws `store.format` for a database of another version (tables.ts), the driver's error where SQLite finds the file corrupt. */
export function recoverState(
  database: Database,
  state: StoreState,
  pending: Pending,
  now: { monotonicMs: number; wallMs: number; boot: string },
  {
    path,
    copy,
    maxLoadedSeries = Number.POSITIVE_INFINITY,
  }: { path: string; copy: SeriesCopy; maxLoadedSeries?: number | undefined },
): Recovered {
  prepareTables(database);
  const statements = prepareStatements(database);
  const carrying = Carrying.resume(path, { database, statements, state, pending });
  // A number serves one span: what the old files hold under it is no other's.
  state.nextSpan = carrying?.below ?? 1;
  const damaged: Recovered['damaged'] = [];
  const lost = new NamedSeries(database, { state, pending, damaged, copy });
  const runs = readRuns(database, statements, damaged);
  const room = new SeriesRoom(maxLoadedSeries);
  remakeDamaged(database, damaged, { statements, carrying, wallMs: now.wallMs });
  readSpans(database, state, pending, damaged, { lost, room, wallMs: now.wallMs });
  readLog(database, state, pending, damaged, { lost, room, wallMs: now.wallMs });
  const { boot, ...began } = now;
  const run = { id: nextRun(database, state, runs), boot, isNew: true, began, notedMs: now.monotonicMs };
  const measure = readMeasure(readNotes(statements, MEASURE_NOTE)[0]?.text);
  openClocks(state, run.id, { runs, measure }, now);
  // Who lists quarantine is answered once everything is loaded.
  if (state.notLoaded > 0) return { carrying, series: lost.series, run, damaged };
  const inQuarantine = database.prepare<[], number>('SELECT DISTINCT series FROM quarantine').pluck();
  for (const id of inQuarantine.all()) lost.has(id);
  return { carrying, series: lost.series, run, damaged };
}

/** The runs before this one, in order. Of one whose row does not fit its checksum nothing is known: neither its clock nor how long it was. */
function readRuns(database: Database, statements: Statements, damaged: Recovered['damaged']): RunRow[] {
  const all = database.prepare('SELECT * FROM run ORDER BY id').all() as RunRow[];
  const sound = all.filter((row) => row.sum === runSum(row));
  for (const { id } of all.filter((row) => !sound.includes(row))) {
    statements.dropRun.run(id);
    damaged.push({ what: 'run', values: 0 });
  }
  return sound;
}

/** A number that nothing in the buffer bears: the row of a run may be lost, and its values, of another clock, still be there. */
function nextRun(database: Database, state: StoreState, runs: readonly RunRow[]): number {
  const ofSpans = database.prepare<[], number>('SELECT coalesce(max(run), 0) FROM span').pluck().get()!;
  return 1 + state.rows.reduce((last, { run }) => Math.max(last, run), Math.max(ofSpans, runs.at(-1)?.id ?? 0));
}

function openClocks(
  state: StoreState,
  run: number,
  { runs, measure }: { runs: readonly RunRow[]; measure: Measure | undefined },
  now: { monotonicMs: number; wallMs: number; boot: string },
): void {
  // A clock that is behind what it was is another, whatever its name.
  const isOfNow = ({ boot, last_ms: lastMs }: RunRow) => boot === now.boot && lastMs <= now.monotonicMs;
  const measured = runs.find(({ id }) => id === measure?.run);
  for (const row of runs) {
    const { id, boot, wall_ms: wallMs, monotonic_ms: beganMs } = row;
    if (isOfNow(row)) state.stamps.noteRun(id, wallMs, beganMs);
    else if (measure && measured?.boot === boot && !isOfNow(measured))
      state.stamps.noteRun(id, wallMs, beganMs, measure.offsetMs);
  }
  const times = runs.map(({ id, monotonic_ms: beganMs, last_ms: lastMs }) => ({ id, beganMs, lastMs }));
  state.times.open(run, now.monotonicMs, times);
  const measureMs = measured && isOfNow(measured) ? measure?.offsetMs : undefined;
  state.stamps.open(run, now.wallMs, now.monotonicMs, measureMs);
}

function readSpans(
  database: Database,
  state: StoreState,
  pending: Pending,
  damaged: Recovered['damaged'],
  { lost, room, wallMs }: { lost: NamedSeries; room: SeriesRoom; wallMs: number },
): void {
  const getGone = database.prepare<[number], Buffer>('SELECT gone FROM span_gone WHERE span = ?').pluck();
  const byId = new Map<number, Span>();
  for (const row of database.prepare('SELECT * FROM span ORDER BY place, id').iterate() as Iterable<SpanRow>) {
    state.nextSpan = Math.max(state.nextSpan, row.id + 1);
    state.nextPlace = Math.max(state.nextPlace, row.place + 1);
    const span = readSpan(row);
    if (!span) continue;
    const bits = getGone.get(row.id);
    // What is not known to be settled is posted again.
    if (bits && !readable(() => markGone(span, bits))) damaged.push({ what: 'progress', values: 0 });
    nameNeighbours(span);
    if (room.take(span.series, span.left === 0 ? 0 : span.series.length)) byId.set(row.id, span);
    else for (let entry = 0; entry < span.series.length; entry++) state.notLoaded += openValues(span, entry);
  }
  const progress = database.prepare('SELECT segment, ranges FROM segment_progress').raw();
  for (const [segment, ranges] of progress.iterate() as Iterable<[number, Buffer]>) {
    const span = byId.get(Math.floor(segment / MAX_ENTRIES));
    const entry = segment % MAX_ENTRIES;
    if (span?.gone[entry] !== 0) continue;
    // Progress that does not read is forgotten: the segment is posted again from its start.
    const read = readable(() => unpackRanges(ranges));
    if (read) span.progress.set(entry, read);
    else damaged.push({ what: 'progress', values: 0 });
  }
  const getSegment = database.prepare<[number], Buffer>('SELECT packed FROM segment WHERE id = ?').pluck();
  for (const span of byId.values()) {
    for (let entry = 0; entry < span.series.length; entry++) {
      if (span.gone[entry] || !lost.has(span.series[entry]!)) continue;
      const place = segmentId(span.id, entry);
      pending.aside.push({ what: 'segment', place, atMs: wallMs, bytes: getSegment.get(place) });
      damaged.push({ what: 'segment', values: openValues(span, entry) });
      span.gone[entry] = 1;
      span.left--;
      pending.dropSegment(span, entry);
    }
    if (span.left > 0) state.addSpan(span);
    else pending.dropSpan(span);
  }
}

/** What is gone is named as its neighbour: a series of which nothing is left is not loaded for a place in a directory. */
function nameNeighbours({ series, gone }: Span): void {
  let neighbour = series[gone.indexOf(0)]!;
  for (let entry = 0; entry < series.length; entry++) {
    if (gone[entry]) series[entry] = neighbour;
    else neighbour = series[entry]!;
  }
}

/** A directory that does not fit its checksum is kept aside, and made anew from what its segments say. */
function remakeDamaged(
  database: Database,
  damaged: Recovered['damaged'],
  { statements, carrying, wallMs }: { statements: Statements; carrying: Carrying | undefined; wallMs: number },
): void {
  const broken: SpanRow[] = [];
  for (const row of database.prepare('SELECT * FROM span').iterate() as Iterable<SpanRow>) {
    if (!readSpan(row)) broken.push(row);
  }
  if (broken.length === 0) return;
  database.transaction(() => {
    for (const row of broken) {
      carrying?.carryAllOf(row.id);
      statements.setAside.run('span', row.id, wallMs, row.directory);
      statements.dropSpan.run(row.id);
      statements.dropGone.run(row.id);
      damaged.push({ what: 'span', values: 0 });
    }
    remakeDirectories(database, statements);
  })();
}

function readSpan(row: SpanRow): Span | undefined {
  const { id, place, run, accepted_ms: acceptedMs } = row;
  if (row.sum !== spanSum(id, place, run, acceptedMs)) return undefined;
  const entries = readable(() => unpackDirectory(row.directory));
  return entries && newSpan({ id, place, run, acceptedMs }, entries);
}

/**
 * How many series may be loaded: as many as the memory allows, in the order in which their values are posted. What comes behind
 * the first that finds no room stays on disk whole, so that no series' values overtake others of it. The first is let in
 * whatever it takes.
 */
class SeriesRoom {
  readonly #max: number;
  readonly #taken = new Set<number>();
  #isOver = false;

  constructor(max: number) {
    this.#max = max;
  }

  /** Whether the series of one span or row are loaded. */
  take(ids: Uint32Array, length: number): boolean {
    if (this.#max === Number.POSITIVE_INFINITY) return true;
    if (this.#isOver) return false;
    const fresh = new Set<number>();
    for (let i = 0; i < length; i++) if (!this.#taken.has(ids[i]!)) fresh.add(ids[i]!);
    this.#isOver = this.#taken.size > 0 && this.#taken.size + fresh.size > this.#max;
    if (this.#isOver) return false;
    for (const id of fresh) this.#taken.add(id);
    return true;
  }
}

/**
 * The series that something in the buffer names, each looked up when it is met; the others stay on disk. Where a row is lost
 * the copy may know the series; else nobody knows where its values belong: its number is kept from being given to others,
 * its values are set aside.
 */
class NamedSeries {
  readonly series: Series[] = [];
  readonly #read: (id: number) => Series | 'damaged' | undefined;
  readonly #to: { state: StoreState; pending: Pending; damaged: Recovered['damaged']; copy: SeriesCopy };
  #copied: ReadonlyMap<number, Series> | undefined;

  constructor(
    database: Database,
    to: { state: StoreState; pending: Pending; damaged: Recovered['damaged']; copy: SeriesCopy },
  ) {
    this.#read = seriesReader(database);
    this.#to = to;
  }

  /** Whether nobody knows what series the number stands for. */
  has(id: number): boolean {
    const known = this.#to.state.series[id];
    if (known) return known.series.asset === 0;
    const { state, pending, damaged, copy } = this.#to;
    const read = this.#read(id);
    if (read === 'damaged') {
      pending.droppedSeries.push(id);
      damaged.push({ what: 'series', values: 0 });
    }
    let series = read === 'damaged' ? undefined : read;
    if (!series) {
      this.#copied ??= copy.read();
      series = this.#copied.get(id);
      if (series) pending.newSeries.set(id, series);
    }
    series ??= { id, asset: 0, key: `lost-${id}`, group: undefined, unit: undefined, instrumentation: undefined };
    state.addSeries(series);
    this.series.push(series);
    return series.asset === 0;
  }
}

function readLog(
  database: Database,
  state: StoreState,
  pending: Pending,
  damaged: Recovered['damaged'],
  now: { lost: NamedSeries; room: SeriesRoom; wallMs: number },
): void {
  const settled: LogRow['settled'] = [];
  for (const [id, bytes] of database.prepare('SELECT id, row FROM log ORDER BY id').raw().iterate() as Iterable<
    [number, Buffer]
  >) {
    state.nextRow = id + 1;
    const row = readable(() => readLogRow(bytes));
    if (!row) {
      pending.aside.push({ what: 'log', place: id, atMs: now.wallMs, bytes });
      pending.droppedRows.push(id);
      damaged.push({ what: 'log', values: 0 });
      continue;
    }
    settled.push(...row.settled);
    const { values } = row;
    // Rows follow one on another: what is missing between two of them did not read.
    if (state.rows.length > 0 && row.firstSeq > state.nextSeq) {
      damaged.push({ what: 'log', values: row.firstSeq - state.nextSeq });
    }
    const isLoaded = now.room.take(values.series, values.length);
    state.rows.push({
      id,
      firstSeq: row.firstSeq,
      count: values.length,
      left: values.length,
      isLoaded,
      run: row.run,
      monotonicMs: row.monotonicMs,
    });
    if (!isLoaded) state.notLoaded += values.length;
    let orphans = 0;
    for (let i = 0; isLoaded && i < values.length; i++) {
      if (now.lost.has(values.series[i]!)) {
        orphans++;
        continue;
      }
      const series = state.seriesOf(values.series[i]!);
      const time = values.timeMs[i]!;
      const late = time <= series.backlogTimeMs;
      state.queueOf(series).push(time, values.value[i]!, row.firstSeq + i, values.flags[i]!, late);
      series.lastSeq = row.firstSeq + i;
      state.touched.add(series.asset);
    }
    if (orphans > 0) {
      pending.aside.push({ what: 'log', place: id, atMs: now.wallMs, bytes });
      damaged.push({ what: 'log', values: orphans });
      state.rows.at(-1)!.left -= orphans;
    }
    if (isLoaded) state.logValues += values.length - orphans;
    state.nextSeq = row.firstSeq + values.length;
  }
  for (const run of settled) settleRun(state, run);
}

/** Applies a record of what was settled; values of it whose rows are gone already are no longer there. */
function settleRun(state: StoreState, run: LogRow['settled'][number]): void {
  const series = state.series[run.series];
  if (!series) return;
  const { queue } = series;
  let from = queue.popped + queue.countThrough(run.firstSeq - 1);
  const to = queue.popped + queue.countThrough(run.lastSeq);
  while (queue.isSettled(from)) from++;
  if (from >= to) return;
  state.leaveRows(series, from, to - from);
  queue.settle(from, to - from);
  state.releaseQueue(series);
}
