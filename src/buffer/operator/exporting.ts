/**
 * Copies what stands in the buffer out, page by page, without taking anything away: spans in the order of acceptance, in
 * each span series by series, then what stood in the log at the start. So a series comes out in its order of acceptance.
 *
 * The store goes on meanwhile. What is delivered before its page is made does not come out; what is accepted after the
 * start does not either. Flush only adds spans behind the last of the start; compaction waits (`Maintenance.barCompaction`).
 */
import { StoreError } from '../../base/errors.ts';
import type { SegmentReader } from '../batches/segment-reader.ts';
import type { Maintenance } from '../compaction/maintenance.ts';
import { type Columns, ValueColumns } from '../format/value-columns.ts';
import { entryBehind, openRuns, type SpanCursor } from '../span.ts';
import type { SeriesState, StoreState } from '../state.ts';

/** Each is read and unpacked: some tens of microseconds. */
const SEGMENTS_A_PAGE = 100;
const VALUES_A_PAGE = 5_000;

export interface ExportRequest {
  /** Only these series; all where it is left out. */
  series?: readonly number[] | undefined;
  /** Segments read for one page. */
  pageSegments?: number;
}

export interface ExportPage {
  columns: Columns;
  done: boolean;
}

class Exporting {
  readonly #state: StoreState;
  readonly #segments: SegmentReader;
  readonly #wanted: ReadonlySet<number> | undefined;
  readonly #throughPlace: number;
  /** What stood in the log at the start: it may be flushed, or delivered, before its turn comes. */
  readonly #log: { id: number; count: number; timeMs: Float64Array; value: Float64Array; flags: Uint8Array }[] = [];
  readonly #pageSegments: number;
  #at: SpanCursor = { place: Number.NEGATIVE_INFINITY, span: 0, entry: 0 };
  #nextLog = 0;

  constructor(state: StoreState, segments: SegmentReader, request: ExportRequest) {
    const { series: wanted, pageSegments = SEGMENTS_A_PAGE } = request;
    this.#pageSegments = pageSegments;
    this.#state = state;
    this.#segments = segments;
    this.#wanted = wanted && new Set(wanted);
    this.#throughPlace = state.nextPlace - 1;
    for (const series of state.series) if (series && this.#wants(series.series.id)) this.#copyQueue(series);
  }

  #wants(series: number): boolean {
    return this.#wanted === undefined || this.#wanted.has(series);
  }

  #copyQueue(series: SeriesState): void {
    const { queue } = series;
    let at = queue.popped;
    while (at < queue.end) {
      const from = at;
      while (at < queue.end && !queue.isSettled(at)) at++;
      if (at > from) this.#log.push({ id: series.series.id, count: at - from, ...queue.copy(from, at - from) });
      while (at < queue.end && queue.isSettled(at)) at++;
    }
  }

  /** The next some thousand values; none but `done` at the end. */
  page(): ExportPage {
    const columns = new ValueColumns();
    let read = 0;
    const isFull = () => read >= this.#pageSegments || columns.length >= VALUES_A_PAGE;
    // Values lost to a damaged segment change the list of spans while it is walked.
    for (const span of [...this.#state.spans]) {
      if (span.place > this.#throughPlace) continue;
      for (let entry = entryBehind(this.#at, span); entry < span.series.length; entry++) {
        this.#at = { place: span.place, span: span.id, entry };
        if (isFull()) return { columns: plain(columns), done: false };
        const series = span.series[entry]!;
        if (span.gone[entry] || !this.#wants(series)) continue;
        const values = this.#segments.read(span, entry);
        read++;
        if (!values) {
          // It is looked for in a file that was set aside: the page ends here, and the next begins with it.
          if (!span.gone[entry]) return { columns: plain(columns), done: false };
          continue;
        }
        for (const { from, to } of openRuns(span, entry))
          for (let i = from; i < to; i++) columns.add(series, values.timeMs[i]!, values.value[i]!, values.flags[i]!);
      }
    }
    this.#at = { place: Number.POSITIVE_INFINITY, span: 0, entry: 0 };
    for (; this.#nextLog < this.#log.length; this.#nextLog++) {
      if (isFull()) return { columns: plain(columns), done: false };
      const { id, count, timeMs, value, flags } = this.#log[this.#nextLog]!;
      for (let i = 0; i < count; i++) columns.add(id, timeMs[i]!, value[i]!, flags[i]!);
    }
    return { columns: plain(columns), done: true };
  }
}

/** Without the methods: what crosses to the other thread, no longer than it has to be. */
function plain({ length, series, timeMs, value, flags }: ValueColumns): Columns {
  return {
    length,
    series: series.slice(0, length),
    timeMs: timeMs.slice(0, length),
    value: value.slice(0, length),
    flags: flags.slice(0, length),
  };
}

const MAX_EXPORTS = 4;
/** Renewed with every page. */
const COMPACTION_BARRED_MS = 600_000;

/** Exports under way, by number. */
export class Exports {
  readonly #state: StoreState;
  readonly #segments: SegmentReader;
  readonly #maintenance: Maintenance;
  readonly #open = new Map<number, Exporting>();
  #next = 1;

  constructor(state: StoreState, segments: SegmentReader, maintenance: Maintenance) {
    this.#state = state;
    this.#segments = segments;
    this.#maintenance = maintenance;
  }

  begin(request: ExportRequest, nowMs: number): number {
    // Whoever went away without a word is forgotten.
    for (const id of [...this.#open.keys()].slice(0, -MAX_EXPORTS + 1)) this.#open.delete(id);
    this.#state.distribute();
    this.#open.set(this.#next, new Exporting(this.#state, this.#segments, request));
    this.#maintenance.barCompaction(nowMs + COMPACTION_BARRED_MS);
    return this.#next++;
  }

  page(id: number, nowMs: number): ExportPage {
    const one = this.#open.get(id);
    if (!one) throw new StoreError('the export was given up for others', { code: 'store.export_gone' });
    this.#maintenance.barCompaction(nowMs + COMPACTION_BARRED_MS);
    return one.page();
  }

  end(id: number): void {
    this.#open.delete(id);
    if (this.#open.size === 0) this.#maintenance.barCompaction(0);
  }
}
