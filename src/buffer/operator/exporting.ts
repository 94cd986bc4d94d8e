/**
 * Copies values out of the buffer, page by page. The spans come first, in order of acceptance and sorted by series
 * within each span. They are followed by the values that were in the log when the export began. Each series is
 * therefore exported in its order of acceptance.
 *
 * The store continues to operate during the export. Values that are delivered, purged or quarantined before their page,
 * and values accepted after the export began, are not exported. Every other value is exported exactly once, or the
 * export is reported as incomplete:
 * - The export lease prevents values from moving between spans. If a reader pauses for longer than its lease, its
 *   export ends.
 * - Spans dropped by a bound, unreadable segments, and values moved to another asset make the export incomplete.
 */
import { StoreError } from '../../base/errors.ts';
import type { SegmentReader } from '../batches/segment-reader.ts';
import { type Columns, ValueColumns } from '../format/value-columns.ts';
import type { ReadLeases } from '../read-leases.ts';
import type { SeriesState } from '../records.ts';
import { LOST, openRuns, type Span } from '../span.ts';
import type { StoreState } from '../state.ts';

/** Each segment is read and unpacked, which takes tens of microseconds. */
const SEGMENTS_A_PAGE = 100;
const VALUES_A_PAGE = 5_000;

export interface ExportRequest {
  /** Only these series. Default: all. */
  series?: readonly number[] | undefined;
  /** Number of segments read per page. */
  pageSegments?: number;
}

export interface ExportPage {
  columns: Columns;
  done: boolean;
  /** False if values are missing that were neither delivered nor purged. */
  isComplete: boolean;
}

export interface ExportParts {
  state: StoreState;
  segments: SegmentReader;
  readers: ReadLeases;
}

class Exporting {
  readonly #segments: SegmentReader;
  readonly #wanted: ReadonlySet<number> | undefined;
  readonly #pageSegments: number;
  /** Spans that existed when the export began, starting with the span of the next page. */
  readonly #spans: Span[];
  #nextEntry = 0;
  /** Values in the log when the export began. They may be flushed or delivered before their page. */
  readonly #log = new ValueColumns();
  #nextLog = 0;
  #isComplete = true;

  constructor({ state, segments }: ExportParts, request: ExportRequest) {
    const { series: wanted, pageSegments = SEGMENTS_A_PAGE } = request;
    this.#pageSegments = pageSegments;
    this.#segments = segments;
    this.#wanted = wanted && new Set(wanted);
    this.#spans = [...state.spans];
    for (const series of state.series) if (series && this.#wants(series.series.id)) this.#copyQueue(series);
    this.#copyMoved(state.pending.moved);
  }

  #wants(series: number): boolean {
    return this.#wanted === undefined || this.#wanted.has(series);
  }

  #copyQueue({ series, queue }: SeriesState): void {
    const { timeMs, value, flags } = queue.copy(queue.popped, queue.length);
    for (let i = 0; i < queue.length; i++) {
      if (!queue.isSettled(queue.popped + i)) this.#log.add(series.id, timeMs[i]!, value[i]!, flags[i]!);
    }
  }

  /** Copies values that are being moved. They are in the log after the next commit. */
  #copyMoved({ length, series, timeMs, value, flags }: ValueColumns): void {
    for (let i = 0; i < length; i++) {
      if (this.#wants(series[i]!)) this.#log.add(series[i]!, timeMs[i]!, value[i]!, flags[i]!);
    }
  }

  noteMoved(series: readonly number[]): void {
    if (series.some((id) => this.#wants(id))) this.#isComplete = false;
  }

  /** Returns the next page, which contains several thousand values. */
  page(): ExportPage {
    const columns = new ValueColumns();
    let read = 0;
    for (let span = this.#spans[0]; span; span = this.#spans[0]) {
      for (; this.#nextEntry < span.series.length; this.#nextEntry++) {
        if (read >= this.#pageSegments || columns.length >= VALUES_A_PAGE) return this.#pageOf(columns, false);
        if (!this.#wants(span.series[this.#nextEntry]!)) continue;
        if (!span.gone[this.#nextEntry]) read++;
        if (!this.#addEntry(span, this.#nextEntry, columns)) return this.#pageOf(columns, false);
      }
      this.#spans.shift();
      this.#nextEntry = 0;
    }
    const { length, series, timeMs, value, flags } = this.#log;
    for (; this.#nextLog < length && columns.length < VALUES_A_PAGE; this.#nextLog++) {
      const at = this.#nextLog;
      columns.add(series[at]!, timeMs[at]!, value[at]!, flags[at]!);
    }
    return this.#pageOf(columns, this.#nextLog === length);
  }

  /**
   * Returns false if the segment may still be found in a file that was set aside. The next page then starts with this
   * segment.
   */
  #addEntry(span: Span, entry: number, columns: ValueColumns): boolean {
    const values = span.gone[entry] ? undefined : this.#segments.readOnce(span, entry);
    if (values) {
      const { timeMs, value, flags } = values;
      for (const { from, to } of openRuns(span, entry)) {
        for (let i = from; i < to; i++) columns.add(span.series[entry]!, timeMs[i]!, value[i]!, flags[i]!);
      }
    } else if (!span.gone[entry]) return false;
    if (span.gone[entry] === LOST) this.#isComplete = false;
    return true;
  }

  #pageOf(columns: ValueColumns, done: boolean): ExportPage {
    return { columns: plain(columns), done, isComplete: this.#isComplete };
  }
}

/** Strips methods and truncates the arrays for the transfer to the main thread. */
function plain({ length, series, timeMs, value, flags }: ValueColumns): Columns {
  return {
    length,
    series: series.slice(0, length),
    timeMs: timeMs.slice(0, length),
    value: value.slice(0, length),
    flags: flags.slice(0, length),
  };
}

/** Duration of the lease, renewed with every page. */
const LEASE_MS = 600_000;

/** Running exports by lease number. */
export class Exports {
  readonly #parts: ExportParts;
  readonly #open = new Map<number, Exporting>();

  constructor(parts: ExportParts) {
    this.#parts = parts;
  }

  begin(request: ExportRequest, nowMs: number): number {
    const { readers, state } = this.#parts;
    const id = readers.open('export', nowMs, nowMs + LEASE_MS);
    // Removes the exports of readers that disappeared.
    for (const known of this.#open.keys()) if (!readers.has(known)) this.#open.delete(known);
    state.distribute();
    this.#open.set(id, new Exporting(this.#parts, request));
    return id;
  }

  page(id: number, nowMs: number): ExportPage {
    const one = this.#open.get(id);
    if (!one || !this.#parts.readers.renew(id, nowMs, nowMs + LEASE_MS)) {
      this.end(id);
      throw new StoreError('the export is incomplete: its reader paused for more than 10 minutes', {
        code: 'store.export_gone',
        hint: 'Export to a file with --output, then read that file.',
      });
    }
    return one.page();
  }

  end(id: number): void {
    this.#open.delete(id);
    this.#parts.readers.end(id);
  }

  /** Records that values of these series were moved. Running exports that include the series may be incomplete. */
  noteMoved(series: readonly number[]): void {
    for (const one of this.#open.values()) one.noteMoved(series);
  }
}
