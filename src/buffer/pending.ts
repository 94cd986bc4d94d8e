/**
 * What has happened in memory and is not on disk yet. It goes with the next commit, so that settling and flushing cost
 * no sync of their own. A crash before that loses none of it for good: the rows of the log that it came from are
 * still there, and are posted or flushed again. A commit that fails leaves it here for the next.
 */
import type { SettledRun } from './format/log-row.ts';
import { packRanges } from './format/settled-ranges.ts';
import { type Columns, NO_VALUES, ValueColumns } from './format/value-columns.ts';
import type { Series } from './series.ts';
import { MAX_ENTRIES, packDirectory, packGone, type Span, segmentId } from './span.ts';
import { quarantineSum, type Statements, spanSum, writeSeries } from './tables.ts';

export interface QuarantineEntry {
  series: number;
  count: number;
  packed: Uint8Array;
  status: number;
  message: string;
  atMs: number;
}

export class Pending {
  /** Of values that stand in the log. */
  settled: SettledRun[] = [];
  readonly segments = new Map<number, Uint8Array>();
  readonly newSpans = new Set<Span>();
  readonly goneSegments = new Set<number>();
  readonly progress = new Map<number, Span>();
  readonly changedSpans = new Set<Span>();
  readonly droppedSpans = new Set<Span>();
  quarantine: QuarantineEntry[] = [];
  releasedQuarantine: number[] = [];
  /**
   * Values that change their place: out of quarantine, or of a series into another. They become values of the log in the
   * commit that records that they left the old place, so a crash finds them in one of the two, never in both or none.
   */
  moved = new ValueColumns();
  /** Series that values move to. */
  readonly newSeries = new Map<number, Series>();
  aside: { what: string; place: number; atMs: number; bytes: Uint8Array | undefined }[] = [];
  /** Copies of damaged rows that go for want of space. */
  droppedAside: number[] = [];
  /** Damaged rows of the log, kept in `aside`. */
  droppedRows: number[] = [];
  /** Series whose row is damaged. */
  droppedSeries: number[] = [];
  /** Rows of the log up to this one hold nothing any more. */
  dropRowsThrough = 0;
  /** Nothing stands in files that were set aside alone (`recovery/carrying.ts`). */
  isCarried = false;

  get isEmpty(): boolean {
    return (
      this.settled.length === 0 &&
      this.segments.size === 0 &&
      this.newSpans.size === 0 &&
      this.goneSegments.size === 0 &&
      this.progress.size === 0 &&
      this.changedSpans.size === 0 &&
      this.droppedSpans.size === 0 &&
      this.quarantine.length === 0 &&
      this.releasedQuarantine.length === 0 &&
      this.moved.length === 0 &&
      this.aside.length === 0 &&
      this.droppedAside.length === 0 &&
      this.droppedRows.length === 0 &&
      this.droppedSeries.length === 0 &&
      this.dropRowsThrough === 0 &&
      !this.isCarried
    );
  }

  /** The values of the next row of the log: moved values, then the new ones. */
  withMoved(columns: Columns | undefined): Columns {
    if (this.moved.length === 0) return columns ?? NO_VALUES;
    const all = new ValueColumns();
    all.addAll(this.moved);
    if (columns) all.addAll(columns);
    return all;
  }

  /** Nothing of the span is left: neither it nor its segments have to be written any more. */
  dropSpan(span: Span): void {
    const isNew = this.newSpans.delete(span);
    this.changedSpans.delete(span);
    // A compaction drops a hundred spans of some hundred segments in one step.
    for (const waiting of [this.segments, this.goneSegments, this.progress]) {
      for (let entry = 0; waiting.size > 0 && entry < span.series.length; entry++) {
        waiting.delete(segmentId(span.id, entry));
      }
    }
    if (!isNew) this.droppedSpans.add(span);
  }

  /** Nothing of the segment is left. */
  dropSegment(span: Span, entry: number): void {
    const id = segmentId(span.id, entry);
    this.progress.delete(id);
    if (!this.segments.delete(id)) this.goneSegments.add(id);
    this.changedSpans.add(span);
  }

  /** Runs inside the transaction of a commit. What goes, goes first: what comes takes its pages, and the file need not grow. */
  write(statements: Statements): void {
    if (this.isCarried) statements.dropOrigins.run();
    for (const id of this.droppedAside) statements.dropAside.run(id);
    for (const id of this.droppedRows) statements.dropRow.run(id);
    if (this.dropRowsThrough > 0) statements.dropRows.run(this.dropRowsThrough);
    for (const id of this.droppedSeries) statements.dropSeries.run(id);
    for (const series of this.newSeries.values()) writeSeries(statements, series);
    for (const span of this.droppedSpans) {
      const first = segmentId(span.id, 0);
      statements.dropSegments.run(first, first + MAX_ENTRIES - 1);
      statements.dropProgresses.run(first, first + MAX_ENTRIES - 1);
      statements.dropGone.run(span.id);
      statements.dropSpan.run(span.id);
    }
    for (const { from, to } of neighbouring(this.goneSegments)) {
      statements.dropSegments.run(from, to);
      statements.dropProgresses.run(from, to);
    }
    for (const span of this.newSpans) {
      const { id, place, run, acceptedMs } = span;
      statements.addSpan.run(id, place, run, acceptedMs, packDirectory(span), spanSum(id, place, run, acceptedMs));
    }
    for (const [id, packed] of this.segments) statements.addSegment.run(id, packed);
    for (const span of this.changedSpans) statements.setGone.run(span.id, packGone(span));
    for (const [id, span] of this.progress) {
      const ranges = span.progress.get(id - segmentId(span.id, 0));
      if (ranges) statements.setProgress.run(id, packRanges(ranges));
    }
    for (const { series, count, packed, status, message, atMs } of this.quarantine) {
      const sum = quarantineSum(series, count, status, message, atMs);
      statements.addQuarantine.run(series, count, packed, status, message, atMs, sum);
    }
    for (const id of this.releasedQuarantine) statements.dropQuarantine.run(id);
    for (const { what, place, atMs, bytes } of this.aside) statements.setAside.run(what, place, atMs, bytes ?? null);
  }

  /** The commit is on disk. */
  clear(): void {
    this.settled = [];
    this.segments.clear();
    this.newSpans.clear();
    this.goneSegments.clear();
    this.progress.clear();
    this.changedSpans.clear();
    this.droppedSpans.clear();
    this.quarantine = [];
    this.releasedQuarantine = [];
    this.newSeries.clear();
    if (this.moved.length > 0) this.moved = new ValueColumns();
    this.aside = [];
    this.droppedAside = [];
    this.droppedRows = [];
    this.droppedSeries = [];
    this.dropRowsThrough = 0;
    this.isCarried = false;
  }
}

/** Numbers as they come, those that follow one on another as one range: a compaction deletes thousands, side by side. */
function neighbouring(ids: Iterable<number>): { from: number; to: number }[] {
  const ranges: { from: number; to: number }[] = [];
  for (const id of ids) {
    const last = ranges.at(-1);
    if (last?.to === id - 1) last.to = id;
    else ranges.push({ from: id, to: id });
  }
  return ranges;
}
