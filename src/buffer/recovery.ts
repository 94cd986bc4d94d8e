/**
 * What the store knows when it opens: every series, the log as queues, spans as directories. It reads the log, which is
 * some seconds long, and twenty bytes for each segment: never the backlog.
 *
 * A row that is damaged is kept in `set_aside` and counted; the rest goes on.
 */
import type { Database } from '../database.ts';
import { StoreError } from '../errors.ts';
import { type LogRow, readLogRow } from './log-row.ts';
import type { Pending } from './pending.ts';
import type { Series } from './series.ts';
import type { SeriesCopy } from './series-copy.ts';
import { unpackRanges } from './settled-ranges.ts';
import { MOST_ENTRIES, markGone, newSpan, type Span, segmentId, unpackDirectory } from './span.ts';
import { openValues, type StoreState } from './state.ts';
import { prepareTables, type RunRow, readSeries, type SpanRow, spanSum } from './tables.ts';

/** This run of the agent, as the rows name it. */
export interface RunHead {
  id: number;
  boot: string;
  isNew: boolean;
  openedMs: number;
  /** Earlier runs since the machine's last start: their monotonic times compare with ours. */
  sameBoot: ReadonlySet<number>;
}

export interface Recovered {
  series: Series[];
  run: RunHead;
  damaged: { what: string; values: number }[];
}

/** Throws `store.format` for a database of another version, the driver's error where SQLite finds the file corrupt. */
export function recoverState(
  database: Database,
  state: StoreState,
  pending: Pending,
  now: { monotonicMs: number; wallMs: number; boot: string },
  copy: SeriesCopy,
): Recovered {
  if (!prepareTables(database)) {
    throw new StoreError('the buffer was written by another version of tagferry', {
      code: 'store.format',
      hint: 'Run the version that wrote it until the buffer is empty, or move buffer.db away.',
    });
  }
  const damaged: Recovered['damaged'] = [];
  const { series, damaged: brokenSeries } = readSeries(database);
  for (const one of series) state.addSeries(one);
  const lost = new LostSeries(state, pending, copy);
  for (const id of brokenSeries) {
    pending.droppedSeries.push(id);
    damaged.push({ what: 'series', values: 0 });
  }
  const runs = database.prepare('SELECT * FROM run ORDER BY id').all() as RunRow[];
  const sameBoot = new Set(runs.filter((run) => run.boot === now.boot).map((run) => run.id));
  for (const one of runs) if (sameBoot.has(one.id)) state.stamps.noteRun(one.id, one.wall_ms, one.monotonic_ms);
  const run = { id: (runs.at(-1)?.id ?? 0) + 1, boot: now.boot, isNew: true, openedMs: now.monotonicMs, sameBoot };
  state.stamps.noteRun(run.id, now.wallMs, now.monotonicMs);
  readSpans(database, state, pending, damaged, { lost, wallMs: now.wallMs });
  readLog(database, state, pending, damaged, { lost, run, wallMs: now.wallMs });
  return { series: [...series, ...lost.series], run, damaged };
}

function readSpans(
  database: Database,
  state: StoreState,
  pending: Pending,
  damaged: Recovered['damaged'],
  { lost, wallMs }: { lost: LostSeries; wallMs: number },
): void {
  const gone = new Map(
    (database.prepare('SELECT span, gone FROM span_gone').raw().all() as [number, Buffer][]).map(([id, bits]) => [
      id,
      bits,
    ]),
  );
  const progress = database.prepare('SELECT segment, ranges FROM segment_progress').raw().all() as [number, Buffer][];
  const byId = new Map<number, Span>();
  for (const row of database.prepare('SELECT * FROM span ORDER BY place, id').iterate() as Iterable<SpanRow>) {
    state.nextSpan = Math.max(state.nextSpan, row.id + 1);
    state.nextPlace = Math.max(state.nextPlace, row.place + 1);
    const span = readSpan(row);
    if (!span) {
      pending.aside.push({ what: 'span', place: row.id, atMs: wallMs, bytes: row.directory });
      damaged.push({ what: 'span', values: 0 });
      continue;
    }
    const bits = gone.get(row.id);
    // What is not known to be settled is posted again.
    if (bits && !attempt(() => markGone(span, bits))) damaged.push({ what: 'progress', values: 0 });
    byId.set(row.id, span);
  }
  for (const [segment, ranges] of progress) {
    const span = byId.get(Math.floor(segment / MOST_ENTRIES));
    const entry = segment % MOST_ENTRIES;
    if (span?.gone[entry] !== 0) continue;
    // Progress that does not read is forgotten: the segment is posted again from its start.
    const read = attempt(() => unpackRanges(ranges));
    if (read) span.progress.set(entry, read);
    else damaged.push({ what: 'progress', values: 0 });
  }
  const getSegment = database.prepare<[number], Buffer>('SELECT packed FROM segment WHERE id = ?').pluck();
  for (const span of byId.values()) {
    for (let entry = 0; entry < span.series.length; entry++) {
      if (!lost.has(span.series[entry]!) || span.gone[entry]) continue;
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

function readSpan(row: SpanRow): Span | undefined {
  const { id, place, run, accepted_ms: acceptedMs } = row;
  if (row.sum !== spanSum(id, place, run, acceptedMs)) return undefined;
  const entries = attempt(() => unpackDirectory(row.directory));
  return entries && newSpan({ id, place, run, acceptedMs }, entries);
}

/**
 * Series that values name and whose row is lost. The copy may know them; else nobody knows where their values belong:
 * their numbers are kept from being given to others, their values are set aside.
 */
class LostSeries {
  readonly series: Series[] = [];
  readonly #state: StoreState;
  readonly #pending: Pending;
  readonly #copy: SeriesCopy;
  #copied: ReadonlyMap<number, Series> | undefined;

  constructor(state: StoreState, pending: Pending, copy: SeriesCopy) {
    this.#state = state;
    this.#pending = pending;
    this.#copy = copy;
  }

  has(id: number): boolean {
    const known = this.#state.series[id];
    if (known) return known.series.asset === 0;
    this.#copied ??= this.#copy.read();
    const saved = this.#copied.get(id);
    const series: Series = saved ?? { id, asset: 0, key: `lost-${id}`, group: undefined, unit: undefined };
    if (saved) this.#pending.newSeries.set(id, saved);
    this.#state.addSeries(series);
    this.series.push(series);
    return saved === undefined;
  }
}

function readLog(
  database: Database,
  state: StoreState,
  pending: Pending,
  damaged: Recovered['damaged'],
  now: { lost: LostSeries; run: RunHead; wallMs: number },
): void {
  const settled: LogRow['settled'] = [];
  for (const [id, bytes] of database.prepare('SELECT id, row FROM log ORDER BY id').raw().iterate() as Iterable<
    [number, Buffer]
  >) {
    state.nextRow = id + 1;
    const row = attempt(() => readLogRow(bytes));
    if (!row) {
      pending.aside.push({ what: 'log', place: id, atMs: now.wallMs, bytes });
      pending.droppedRows.push(id);
      damaged.push({ what: 'log', values: 0 });
      continue;
    }
    settled.push(...row.settled);
    const { values } = row;
    // Times of another start of the machine say nothing here: such values are as old as this run.
    const monotonicMs = now.run.sameBoot.has(row.run) ? row.monotonicMs : now.run.openedMs;
    state.rows.push({
      id,
      firstSeq: row.firstSeq,
      count: values.length,
      left: values.length,
      run: row.run,
      monotonicMs,
    });
    let orphans = 0;
    for (let i = 0; i < values.length; i++) {
      if (now.lost.has(values.series[i]!)) {
        orphans++;
        continue;
      }
      const series = state.seriesOf(values.series[i]!);
      const time = values.timeMs[i]!;
      series.queue.push(time, values.value[i]!, row.firstSeq + i, values.flags[i]!, time <= series.backlogTimeMs);
      state.touched.add(series.asset);
    }
    if (orphans > 0) {
      pending.aside.push({ what: 'log', place: id, atMs: now.wallMs, bytes });
      damaged.push({ what: 'log', values: orphans });
      state.rows.at(-1)!.left -= orphans;
    }
    state.logValues += values.length - orphans;
    state.nextSeq = row.firstSeq + values.length;
  }
  for (const run of settled) settleRun(state, run);
}

function attempt<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof StoreError) return undefined;
    throw error;
  }
}

/** Applies a record of what was settled; values of it whose rows are gone already are no longer there. */
function settleRun(state: StoreState, run: LogRow['settled'][number]): void {
  const series = state.series[run.series];
  if (!series) return;
  const { queue } = series;
  let from = queue.popped + queue.countThrough(run.firstSeq - 1);
  const to = queue.popped + queue.countThrough(run.lastSeq);
  while (from < to && queue.isSettled(from)) from++;
  if (from >= to) return;
  state.leaveRows(series, from, to - from);
  queue.settle(from, to - from);
}
