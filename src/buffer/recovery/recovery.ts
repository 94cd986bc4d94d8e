/**
 * Restores the state of the store when it opens: the log as queues, spans as directories, and the series that they
 * refer to. Reads the log (a few seconds of values) and about twenty bytes per segment, never the backlog. Damaged rows
 * are copied to `set_aside` and counted.
 */
import type { Database } from '../../base/database.ts';
import { readable } from '../format/bytes.ts';
import { type LogRow, readLogRow } from '../format/log-row.ts';
import { unpackRanges } from '../format/settled-ranges.ts';
import type { RunHead } from '../run-row.ts';
import type { Series } from '../series.ts';
import { MAX_ENTRIES, markGone, newSpan, openValues, type Span, segmentId, unpackDirectory } from '../span.ts';
import type { StoreState } from '../state.ts';
import {
  prepareStatements,
  prepareTables,
  type RunRow,
  readNotes,
  runSum,
  type SpanRow,
  type Statements,
  seriesReader,
  spanSum,
} from '../tables.ts';
import { Carrying } from './carrying.ts';
import { rebuildDirectories } from './directories.ts';
import type { SeriesCopy } from './series-copy.ts';
import { MEASURE_NOTE, readMeasure } from './stamp-correction.ts';

/** Both clocks, in milliseconds, and the ID of the monotonic clock (`store/boot-id.ts`). */
export interface OpeningTime {
  monotonicMs: number;
  wallMs: number;
  boot: string;
}

export interface RecoveryRequest {
  path: string;
  copy: SeriesCopy;
  /** Maximum number of loaded series. */
  maxLoadedSeries?: number | undefined;
}

export interface Recovered {
  /** Set if segments are in files that were set aside. */
  carrying: Carrying | undefined;
  series: Series[];
  run: RunHead;
  damaged: { what: string; values: number }[];
}

/** Throws `store.format` for a different version (tables.ts), or a driver error if the file is corrupt. */
export function recoverState(
  database: Database,
  state: StoreState,
  now: OpeningTime,
  request: RecoveryRequest,
): Recovered {
  prepareTables(database);
  return new Recovery(database, state, now, request).recover();
}

class Recovery {
  readonly #database: Database;
  readonly #statements: Statements;
  readonly #state: StoreState;
  readonly #now: OpeningTime;
  readonly #copy: SeriesCopy;
  readonly #carrying: Carrying | undefined;
  readonly #series: Series[] = [];
  readonly #damaged: Recovered['damaged'] = [];
  readonly #readSeries: (id: number) => Series | 'damaged' | undefined;
  #copiedSeries: ReadonlyMap<number, Series> | undefined;
  readonly #maxSeries: number;
  readonly #admitted = new Set<number>();
  #isOverLimit = false;

  constructor(database: Database, state: StoreState, now: OpeningTime, request: RecoveryRequest) {
    this.#database = database;
    this.#statements = prepareStatements(database);
    this.#state = state;
    this.#now = now;
    this.#copy = request.copy;
    this.#maxSeries = request.maxLoadedSeries ?? Number.POSITIVE_INFINITY;
    this.#readSeries = seriesReader(database);
    this.#carrying = Carrying.resume(request.path, { database, statements: this.#statements, state });
  }

  recover(): Recovered {
    const state = this.#state;
    // Span numbers are unique across the old files.
    state.raiseNext({ span: this.#carrying?.below ?? 1 });
    const runs = this.#readRuns();
    this.#rebuildDamagedDirectories();
    this.#readSpans();
    this.#readLog();
    const { boot, ...began } = this.#now;
    const run = { id: this.#nextRun(runs), boot, isNew: true, began, notedMs: began.monotonicMs };
    this.#openClocks(run.id, runs);
    // The quarantine is available once everything is loaded.
    if (state.counts.notLoaded === 0) {
      const quarantined = this.#database.prepare<[], number>('SELECT DISTINCT series FROM quarantine').pluck();
      for (const id of quarantined.all()) this.#isLost(id);
    }
    return { carrying: this.#carrying, series: this.#series, run, damaged: this.#damaged };
  }

  #noteDamage(what: string, values = 0): void {
    this.#damaged.push({ what, values });
  }

  #setAside(what: string, place: number, bytes: Uint8Array | undefined): void {
    this.#state.pending.aside.push({ what, place, atMs: this.#now.wallMs, bytes });
  }

  /** Returns earlier runs in order. Runs with a wrong checksum are removed. */
  #readRuns(): RunRow[] {
    const all = this.#database.prepare<[], RunRow>('SELECT * FROM run ORDER BY id').all();
    return all.filter((row) => {
      if (row.sum === runSum(row)) return true;
      this.#statements.dropRun.run(row.id);
      this.#noteDamage('run');
      return false;
    });
  }

  /** Returns an unused number, because values can outlive the row of their run. */
  #nextRun(runs: readonly RunRow[]): number {
    const ofSpans = this.#database.prepare<[], number>('SELECT coalesce(max(run), 0) FROM span').pluck().get()!;
    const ofRows = this.#state.rows.reduce((last, { run }) => Math.max(last, run), 0);
    return 1 + Math.max(ofSpans, ofRows, runs.at(-1)?.id ?? 0);
  }

  #openClocks(run: number, runs: readonly RunRow[]): void {
    const { stamps, times } = this.#state;
    const { boot, monotonicMs, wallMs } = this.#now;
    const measure = readMeasure(readNotes(this.#statements, MEASURE_NOTE)[0]?.text);
    // A monotonic clock that went backwards is a different clock.
    const isThisClock = (row: RunRow) => row.boot === boot && row.last_ms <= monotonicMs;
    const measured = runs.find(({ id }) => id === measure?.run);
    for (const row of runs) {
      if (isThisClock(row)) stamps.noteRun(row.id, row.wall_ms, row.monotonic_ms);
      else if (measure && measured?.boot === row.boot && !isThisClock(measured))
        stamps.noteRun(row.id, row.wall_ms, row.monotonic_ms, measure.offsetMs);
    }
    times.open(
      run,
      monotonicMs,
      runs.map((row) => ({ id: row.id, beganMs: row.monotonic_ms, lastMs: row.last_ms })),
    );
    stamps.open(run, wallMs, monotonicMs, measured && isThisClock(measured) ? measure?.offsetMs : undefined);
  }

  /** Sets damaged directories aside and rebuilds them from their segments. */
  #rebuildDamagedDirectories(): void {
    const broken = [...this.#database.prepare<[], SpanRow>('SELECT * FROM span').iterate()].filter(
      (row) => !readSpan(row),
    );
    if (broken.length === 0) return;
    const { setAside, dropSpan, dropGone } = this.#statements;
    this.#database.transaction(() => {
      for (const { id, directory } of broken) {
        this.#carrying?.carryAllOf(id);
        setAside.run('span', id, this.#now.wallMs, directory);
        dropSpan.run(id);
        dropGone.run(id);
        this.#noteDamage('span');
      }
      rebuildDirectories(this.#database, this.#statements);
    })();
  }

  #readSpans(): void {
    const state = this.#state;
    const getGone = this.#database.prepare<[number], Buffer>('SELECT gone FROM span_gone WHERE span = ?').pluck();
    const byId = new Map<number, Span>();
    for (const row of this.#database.prepare<[], SpanRow>('SELECT * FROM span ORDER BY place, id').iterate()) {
      state.raiseNext({ span: row.id + 1, place: row.place + 1 });
      const span = readSpan(row);
      if (!span) continue;
      const bits = getGone.get(row.id);
      // Values are posted again unless they are known to be settled.
      if (bits && !readable(() => markGone(span, bits))) this.#noteDamage('progress');
      renameGoneEntries(span);
      if (this.#admit(span.series, span.left === 0 ? 0 : span.series.length)) byId.set(row.id, span);
      else for (let entry = 0; entry < span.series.length; entry++) state.leaveOnDisk(openValues(span, entry));
    }
    this.#readProgress(byId);
    for (const span of byId.values()) {
      for (let entry = 0; entry < span.series.length; entry++) {
        if (!span.gone[entry] && this.#isLost(span.series[entry]!)) this.#dropUnnamed(span, entry);
      }
      if (span.left > 0) state.addSpan(span);
      else state.pending.dropSpan(span);
    }
  }

  #readProgress(byId: ReadonlyMap<number, Span>): void {
    const rows = this.#database.prepare<[], [number, Buffer]>('SELECT segment, ranges FROM segment_progress').raw();
    for (const [segment, ranges] of rows.iterate()) {
      const span = byId.get(Math.floor(segment / MAX_ENTRIES));
      const entry = segment % MAX_ENTRIES;
      if (span?.gone[entry] !== 0) continue;
      // If the progress is unreadable, the segment is posted again from its start.
      const settled = readable(() => unpackRanges(ranges));
      if (settled) span.progress.set(entry, settled);
      else this.#noteDamage('progress');
    }
  }

  /** Drops a segment of a series whose name is lost. */
  #dropUnnamed(span: Span, entry: number): void {
    const id = segmentId(span.id, entry);
    this.#setAside('segment', id, this.#statements.getSegment.get(id));
    this.#noteDamage('segment', openValues(span, entry));
    span.gone[entry] = 1;
    span.left--;
    this.#state.pending.dropSegment(span, entry);
  }

  #readLog(): void {
    const state = this.#state;
    const settled: LogRow['settled'] = [];
    for (const [id, bytes] of this.#database
      .prepare<[], [number, Buffer]>('SELECT id, row FROM log ORDER BY id')
      .raw()
      .iterate()) {
      state.raiseNext({ row: id + 1 });
      const row = readable(() => readLogRow(bytes));
      if (!row) {
        this.#setAside('log', id, bytes);
        state.pending.droppedRows.push(id);
        this.#noteDamage('log');
        continue;
      }
      settled.push(...row.settled);
      const { values, firstSeq, run, monotonicMs } = row;
      // Sequence numbers are consecutive, so a gap indicates an unreadable row.
      if (state.rows.length > 0 && firstSeq > state.next.seq) this.#noteDamage('log', firstSeq - state.next.seq);
      const isLoaded = this.#admit(values.series, values.length);
      const head = { id, firstSeq, isLoaded, run, monotonicMs };
      const lost = state.restoreRow(head, values, (series) => this.#isLost(series));
      if (lost === 0) continue;
      this.#setAside('log', id, bytes);
      this.#noteDamage('log', lost);
    }
    for (const run of settled) state.restoreSettled(run);
  }

  /**
   * Returns whether the series of a span or row are loaded. They are loaded in the order in which values are posted.
   * After the first span or row beyond the limit, the rest remains on disk, so that no value is overtaken. The first
   * one is always loaded.
   */
  #admit(ids: Uint32Array, length: number): boolean {
    if (this.#maxSeries === Number.POSITIVE_INFINITY) return true;
    if (this.#isOverLimit) return false;
    const added = new Set(ids.subarray(0, length).filter((id) => !this.#admitted.has(id)));
    this.#isOverLimit = this.#admitted.size > 0 && this.#admitted.size + added.size > this.#maxSeries;
    if (this.#isOverLimit) return false;
    for (const id of added) this.#admitted.add(id);
    return true;
  }

  /**
   * Loads a series and returns whether its name is lost, which is the case if neither its row nor its copy is readable.
   * Its number then remains reserved, and its values are set aside.
   */
  #isLost(id: number): boolean {
    const { pending, series: known } = this.#state;
    if (known[id]) return known[id].series.asset === 0;
    const row = this.#readSeries(id);
    if (row === 'damaged') {
      pending.droppedSeries.push(id);
      this.#noteDamage('series');
    }
    let series = row === 'damaged' ? undefined : row;
    if (!series) {
      this.#copiedSeries ??= this.#copy.read();
      series = this.#copiedSeries.get(id);
      if (series) pending.newSeries.set(id, series);
    }
    series ??= { id, asset: 0, key: `lost-${id}`, group: undefined, unit: undefined, instrumentation: undefined };
    this.#state.addSeries(series);
    this.#series.push(series);
    return series.asset === 0;
  }
}

function readSpan(row: SpanRow): Span | undefined {
  const { id, place, run, accepted_ms: acceptedMs } = row;
  if (row.sum !== spanSum(id, place, run, acceptedMs)) return undefined;
  const entries = readable(() => unpackDirectory(row.directory));
  return entries && newSpan({ id, place, run, acceptedMs }, entries);
}

/** Assigns the series of a neighbour to gone entries, so that no series is loaded only for them. */
function renameGoneEntries({ series, gone }: Span): void {
  let neighbour = series[gone.indexOf(0)]!;
  for (let entry = 0; entry < series.length; entry++) {
    if (gone[entry]) series[entry] = neighbour;
    else neighbour = series[entry]!;
  }
}
