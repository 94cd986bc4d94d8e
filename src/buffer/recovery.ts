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
import { unpackRanges } from './settled-ranges.ts';
import { MOST_ENTRIES, markGone, newSpan, type Span, unpackDirectory } from './span.ts';
import type { StoreState } from './state.ts';
import { prepareTables, type RunRow, readSeries, type SpanRow } from './tables.ts';

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
): Recovered {
  if (!prepareTables(database)) {
    throw new StoreError('the buffer was written by another version of tagferry', {
      code: 'store.format',
      hint: 'Run the version that wrote it until the buffer is empty, or move buffer.db away.',
    });
  }
  const damaged: Recovered['damaged'] = [];
  const series = readSeries(database);
  for (const one of series) state.addSeries(one);
  const runs = database.prepare('SELECT * FROM run ORDER BY id').all() as RunRow[];
  const sameBoot = new Set(runs.filter((run) => run.boot === now.boot).map((run) => run.id));
  const run = { id: (runs.at(-1)?.id ?? 0) + 1, boot: now.boot, isNew: true, openedMs: now.monotonicMs, sameBoot };
  readSpans(database, state, pending, damaged, now.wallMs);
  readLog(database, state, pending, damaged, { run, wallMs: now.wallMs });
  return { series, run, damaged };
}

function readSpans(
  database: Database,
  state: StoreState,
  pending: Pending,
  damaged: Recovered['damaged'],
  wallMs: number,
): void {
  const gone = new Map(
    (database.prepare('SELECT span, gone FROM span_gone').raw().all() as [number, Buffer][]).map(([id, bits]) => [
      id,
      bits,
    ]),
  );
  const progress = database.prepare('SELECT segment, ranges FROM segment_progress').raw().all() as [number, Buffer][];
  const byId = new Map<number, Span>();
  for (const row of database.prepare('SELECT * FROM span ORDER BY place').iterate() as Iterable<SpanRow>) {
    state.nextSpan = Math.max(state.nextSpan, row.id + 1);
    state.nextPlace = Math.max(state.nextPlace, row.place + 1);
    const span = readSpan(row);
    if (!span) {
      pending.aside.push({ what: 'span', place: row.id, atMs: wallMs, bytes: row.directory });
      damaged.push({ what: 'span', values: 0 });
      continue;
    }
    const bits = gone.get(row.id);
    if (bits) markGone(span, bits);
    byId.set(row.id, span);
  }
  for (const [segment, ranges] of progress) {
    const span = byId.get(Math.floor(segment / MOST_ENTRIES));
    const entry = segment % MOST_ENTRIES;
    if (span?.gone[entry] !== 0) continue;
    // Progress that does not read is forgotten: the segment is posted again from its start.
    try {
      span.progress.set(entry, unpackRanges(ranges));
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      damaged.push({ what: 'progress', values: 0 });
    }
  }
  for (const span of byId.values()) state.addSpan(span);
}

function readSpan(row: SpanRow): Span | undefined {
  try {
    return newSpan(
      { id: row.id, place: row.place, run: row.run, acceptedMs: row.accepted_ms },
      unpackDirectory(row.directory),
    );
  } catch (error) {
    if (error instanceof StoreError) return undefined;
    throw error;
  }
}

function readLog(
  database: Database,
  state: StoreState,
  pending: Pending,
  damaged: Recovered['damaged'],
  now: { run: RunHead; wallMs: number },
): void {
  const settled: LogRow['settled'] = [];
  for (const [id, bytes] of database.prepare('SELECT id, row FROM log ORDER BY id').raw().iterate() as Iterable<
    [number, Buffer]
  >) {
    state.nextRow = id + 1;
    const row = readRow(bytes);
    if (!row || !knowsAll(state, row)) {
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
    for (let i = 0; i < values.length; i++) {
      const series = state.seriesOf(values.series[i]!);
      const time = values.timeMs[i]!;
      series.queue.push(time, values.value[i]!, row.firstSeq + i, values.flags[i]!, time <= series.backlogTimeMs);
      state.touched.add(series.asset);
    }
    state.logValues += values.length;
    state.nextSeq = row.firstSeq + values.length;
  }
  for (const run of settled) settleRun(state, run);
}

function readRow(bytes: Uint8Array): LogRow | undefined {
  try {
    return readLogRow(bytes);
  } catch (error) {
    if (error instanceof StoreError) return undefined;
    throw error;
  }
}

function knowsAll(state: StoreState, row: LogRow): boolean {
  for (let i = 0; i < row.values.length; i++) if (!state.series[row.values.series[i]!]) return false;
  return true;
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
