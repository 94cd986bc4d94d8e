/**
 * Changes in memory that the next commit writes to disk, so settling and flushing do not require a separate sync. After
 * a crash, the affected log rows still exist and are posted or flushed again. After a failed commit, the changes remain
 * pending for the next one.
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
  /** Settled values in the log. */
  readonly settled: SettledRun[] = [];
  readonly segments = new Map<number, Uint8Array>();
  readonly newSpans = new Set<Span>();
  readonly #goneSegments = new Set<number>();
  readonly #progress = new Map<number, Span>();
  readonly #changedSpans = new Set<Span>();
  readonly #droppedSpans = new Set<Span>();
  readonly quarantine: QuarantineEntry[] = [];
  readonly releasedQuarantine: number[] = [];
  /**
   * Values that are removed from quarantine or moved to another series. One commit removes them from their previous
   * location and adds them to the log, so after a crash they are in exactly one of the two locations.
   */
  readonly moved = new ValueColumns();
  /** Series to which values are moved, and series restored from their copy. */
  readonly newSeries = new Map<number, Series>();
  /** Damaged rows that are copied to the table `set_aside`. */
  readonly aside: { what: string; place: number; atMs: number; bytes: Uint8Array | undefined }[] = [];
  /** Copies of damaged rows that are dropped to free space. */
  readonly droppedAside: number[] = [];
  /** Damaged log rows. */
  readonly droppedRows: number[] = [];
  /** Series with a damaged row. */
  readonly droppedSeries: number[] = [];
  #dropRowsThrough = 0;
  #isCarried = false;
  readonly #lists: unknown[][] = [
    this.settled,
    this.quarantine,
    this.releasedQuarantine,
    this.aside,
    this.droppedAside,
    this.droppedRows,
    this.droppedSeries,
  ];
  readonly #collections = [
    this.segments,
    this.newSpans,
    this.#goneSegments,
    this.#progress,
    this.#changedSpans,
    this.#droppedSpans,
    this.newSeries,
  ];

  get isEmpty(): boolean {
    return (
      this.#lists.every(({ length }) => length === 0) &&
      this.#collections.every(({ size }) => size === 0) &&
      this.moved.length === 0 &&
      this.#dropRowsThrough === 0 &&
      !this.#isCarried
    );
  }

  get isCarried(): boolean {
    return this.#isCarried;
  }

  /** Records that all segments have been copied from the files that were set aside (`recovery/carrying.ts`). */
  endCarrying(): void {
    this.#isCarried = true;
  }

  /** Returns the values of the next log row: moved values, then new values. */
  withMoved(columns: Columns | undefined): Columns {
    if (this.moved.length === 0) return columns ?? NO_VALUES;
    const all = new ValueColumns();
    all.addAll(this.moved);
    if (columns) all.addAll(columns);
    return all;
  }

  /** Deletes empty log rows up to `id`. Settled runs in these rows do not have to be recorded. */
  dropRows(id: number, throughSeq: number): void {
    this.#dropRowsThrough = Math.max(this.#dropRowsThrough, id);
    const later = this.settled.filter((run) => run.lastSeq > throughSeq);
    this.settled.splice(0, this.settled.length, ...later);
  }

  addSpan(span: Span, segments: readonly Uint8Array[]): void {
    this.newSpans.add(span);
    for (const [entry, packed] of segments.entries()) this.segments.set(segmentId(span.id, entry), packed);
  }

  /** Deletes an empty span, and discards its pending changes. */
  dropSpan(span: Span): void {
    const isNew = this.newSpans.delete(span);
    this.#changedSpans.delete(span);
    // A compaction drops a hundred spans with hundreds of segments in one step.
    for (const changes of [this.segments, this.#goneSegments, this.#progress]) {
      for (let entry = 0; changes.size > 0 && entry < span.series.length; entry++) {
        changes.delete(segmentId(span.id, entry));
      }
    }
    if (!isNew) this.#droppedSpans.add(span);
  }

  /** Deletes an empty segment. */
  dropSegment(span: Span, entry: number): void {
    const id = segmentId(span.id, entry);
    this.#progress.delete(id);
    if (!this.segments.delete(id)) this.#goneSegments.add(id);
    this.#changedSpans.add(span);
  }

  /** Stores the settled ranges of a segment. */
  storeProgress(span: Span, entry: number): void {
    this.#progress.set(segmentId(span.id, entry), span);
  }

  /** Runs in the transaction of a commit. Deletes first, so that inserts reuse the freed pages. */
  write(statements: Statements): void {
    if (this.#isCarried) statements.dropOrigins.run();
    for (const id of this.droppedAside) statements.dropAside.run(id);
    for (const id of this.droppedRows) statements.dropRow.run(id);
    if (this.#dropRowsThrough > 0) statements.dropRows.run(this.#dropRowsThrough);
    for (const id of this.droppedSeries) statements.dropSeries.run(id);
    for (const series of this.newSeries.values()) writeSeries(statements, series);
    for (const { id } of this.#droppedSpans) {
      const first = segmentId(id, 0);
      statements.dropSegments.run(first, first + MAX_ENTRIES - 1);
      statements.dropProgresses.run(first, first + MAX_ENTRIES - 1);
      statements.dropGone.run(id);
      statements.dropSpan.run(id);
    }
    for (const { from, to } of consecutive(this.#goneSegments)) {
      statements.dropSegments.run(from, to);
      statements.dropProgresses.run(from, to);
    }
    for (const span of this.newSpans) {
      const { id, place, run, acceptedMs } = span;
      statements.addSpan.run(id, place, run, acceptedMs, packDirectory(span), spanSum(id, place, run, acceptedMs));
    }
    for (const [id, packed] of this.segments) statements.addSegment.run(id, packed);
    for (const span of this.#changedSpans) statements.setGone.run(span.id, packGone(span));
    for (const [id, span] of this.#progress) {
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

  /** Discards the changes after their commit. */
  clear(): void {
    for (const list of this.#lists) list.length = 0;
    for (const collection of this.#collections) collection.clear();
    this.moved.clear();
    this.#dropRowsThrough = 0;
    this.#isCarried = false;
  }
}

/** Merges consecutive numbers into ranges, because a compaction deletes thousands of rows. */
function consecutive(ids: Iterable<number>): { from: number; to: number }[] {
  const ranges: { from: number; to: number }[] = [];
  for (const id of ids) {
    const last = ranges.at(-1);
    if (last?.to === id - 1) last.to = id;
    else ranges.push({ from: id, to: id });
  }
  return ranges;
}
