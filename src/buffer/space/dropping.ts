/**
 * Enforces the configured bounds by dropping the oldest data, one step per commit. Counts dropped values by reason
 * after they are committed. For the bound on bytes, the disk is measured before each step. Copies of damaged rows are
 * dropped first, then quarantined values, then buffered values, always oldest first.
 */
import type { SegmentReader } from '../batches/segment-reader.ts';
import { type Flush, rowsOfOneRun } from '../compaction/flush.ts';
import { type Span, segmentId } from '../span.ts';
import type { StoreState } from '../state.ts';
import type { DropReason, StepSize } from '../store-facts.ts';
import type { Statements } from '../tables.ts';
import { type BufferBounds, type DiskUse, excessBytes } from './bounds.ts';
import { Trimming } from './trimming.ts';

/** Maximum size of one deletion, which reads the deleted pages. */
const STEP_BYTES = 8 * 1024 * 1024;
/** Share of additional bytes to drop, so that not every commit drops values. */
const SLACK_SHARE = 1 / 64;
const MIN_SLACK_BYTES = 16 * 1024;
const MAX_SLACK_BYTES = 4 * 1024 * 1024;
/**
 * A group of values that were flushed together is dropped as a whole up to this share of the limit, or up to the
 * excess.
 */
const WHOLE_SHARE = 1 / 16;
/** Maximum share of the limit that one compaction combines; less than WHOLE_SHARE, because values differ in size. */
const GROUP_SHARE = WHOLE_SHARE / 2;
/** A running export delays trimming until the limit is exceeded by this much. */
const OVERSHOOT_BYTES = 12 * 1024 * 1024;
/** Fixed cost of a row in its page. */
const ROW_BYTES = 16;
const ROWS_A_STEP = 1_000;
const TRIM_STEP: StepSize = { values: 32 * 1024, segments: 512 };

/** Values dropped by a bound or an operator. */
export interface Dropped {
  reason: DropReason;
  values: number;
}

/** Values that a different bound would drop. */
export interface DropForecast {
  values: number;
  quarantined: number;
}

export interface DroppingParts {
  state: StoreState;
  flush: Flush;
  segments: SegmentReader;
  statements: Statements;
  bounds: BufferBounds;
  /** Whether a reader requires that values are not moved. */
  isRead(): boolean;
  stepSize?: StepSize | undefined;
}

export class Dropping {
  readonly #parts: DroppingParts;
  #dropped: Dropped[] = [];
  /** Values that were dropped in memory but not committed. They remain here after a failed commit. */
  #uncommitted: Dropped[] = [];
  /** Whether a deletion is pending, so that the disk is measured after the commit. */
  #isUnmeasured = false;
  #trimming: Trimming | undefined;
  /** Whether the bound is exceeded and nothing is left to drop. */
  #isExhausted = false;

  constructor(parts: DroppingParts) {
    this.#parts = parts;
  }

  /** Records that the deletions are on disk. Returns true if there were any. */
  committed(): boolean {
    const any = this.#isUnmeasured || this.#uncommitted.length > 0;
    this.#isUnmeasured = false;
    this.#dropped.push(...this.#uncommitted);
    this.#uncommitted = [];
    return any;
  }

  /** Whether a step is due even if there is nothing to commit. */
  isDue(disk: DiskUse): boolean {
    return this.#mustShrink(disk) && !this.#isUnmeasured && !this.#isExhausted;
  }

  #mustShrink(disk: DiskUse): boolean {
    const { bounds } = this.#parts;
    return bounds.full === 'drop-oldest' && excessBytes(disk, bounds) > 0;
  }

  /** Performs one step. Returns the number of values dropped from quarantine. */
  enforce(disk: DiskUse, ageOf: (span: Span) => number): number {
    let quarantined = 0;
    if (!this.#mustShrink(disk)) {
      this.#trimming = undefined;
      this.#isExhausted = false;
    } else if (!this.#isUnmeasured) quarantined = this.#dropForBytes(excessBytes(disk, this.#parts.bounds));
    this.#dropOld(ageOf);
    return quarantined;
  }

  #dropOld(ageOf: (span: Span) => number): void {
    const { maxAgeMs } = this.#parts.bounds;
    const { spans } = this.#parts.state;
    while (maxAgeMs > 0 && spans[0] && ageOf(spans[0]) > maxAgeMs) {
      this.#dropGroup(this.#oldestGroup(), 'age');
    }
  }

  #dropForBytes(excess: number): number {
    const { maxBytes } = this.#parts.bounds;
    const slack = Math.min(MAX_SLACK_BYTES, Math.max(MIN_SLACK_BYTES, maxBytes * SLACK_SHARE));
    const wanted = Math.min(excess + slack, STEP_BYTES);
    let freed = this.#dropCopies(wanted);
    const quarantine = this.#dropQuarantine(wanted - freed);
    freed += quarantine.bytes;
    while (freed < wanted) {
      const bytes = this.#dropOldest(wanted - freed, excess);
      if (bytes === 0) break;
      freed += bytes;
    }
    this.#isExhausted = freed === 0 && this.#trimming === undefined;
    return quarantine.values;
  }

  /** Drops copies of damaged rows first, because they are less valuable than values that can be posted. */
  #dropCopies(wanted: number): number {
    const { statements, state } = this.#parts;
    let bytes = 0;
    for (const row of statements.oldestAside.iterate(ROWS_A_STEP)) {
      if (bytes >= wanted) break;
      state.pending.droppedAside.push(row.id);
      bytes += row.bytes + ROW_BYTES;
    }
    if (bytes > 0) this.#isUnmeasured = true;
    return bytes;
  }

  #dropQuarantine(wanted: number): { bytes: number; values: number } {
    const { statements, state } = this.#parts;
    // Rows that are being requeued are deleted in any case.
    const leaving = new Set(state.pending.releasedQuarantine);
    let bytes = 0;
    let values = 0;
    for (const row of statements.oldestQuarantine.iterate(ROWS_A_STEP)) {
      if (bytes >= wanted) break;
      bytes += row.bytes + ROW_BYTES;
      if (leaving.has(row.id)) continue;
      state.pending.releasedQuarantine.push(row.id);
      values += row.count;
    }
    if (bytes > 0) this.#isUnmeasured = true;
    this.count('quarantine', values);
    return { bytes, values };
  }

  /** Returns the approximate number of bytes that the next commit frees; 0 if nothing can be dropped now. */
  #dropOldest(wanted: number, excess: number): number {
    const isRead = this.#parts.isRead();
    if (isRead) this.#trimming = undefined;
    if (this.#trimming) return this.#trim();
    const group = this.#oldestGroup();
    if (group.length === 0) return 0;
    const bytes = group.reduce((sum, span) => sum + this.#bytesOf(span), 0);
    if (bytes <= Math.max(wanted, this.#parts.bounds.maxBytes * WHOLE_SHARE))
      return this.#dropGroup(group, 'bytes', bytes);
    if (isRead) return excess > OVERSHOOT_BYTES ? this.#dropGroup(group, 'bytes', bytes) : 0;
    this.#trimming = new Trimming(this.#parts.state, group, wanted / bytes);
    const trimmed = this.#trim();
    // All values are in flight. Those that the platform does not accept are dropped later.
    return trimmed === 0 && !this.#trimming ? this.#dropGroup(group, 'bytes', bytes) : trimmed;
  }

  /** Performs one trimming step. The space that it frees is measured after the commit. */
  #trim(): number {
    const values = this.#trimming!.step(this.#parts.segments, this.#parts.stepSize ?? TRIM_STEP);
    if (this.#trimming!.isDone) this.#trimming = undefined;
    this.count('bytes', values);
    if (values === 0) return 0;
    this.#isUnmeasured = true;
    return Number.POSITIVE_INFINITY;
  }

  /** Returns the spans of the oldest flush, which are dropped together. */
  #oldestGroup(): Span[] {
    const { state, flush } = this.#parts;
    const first = state.spans[0];
    if (!first || flush.isWriting(first)) flush.finish();
    if (state.spans.length === 0) {
      const rows = rowsOfOneRun(state.rows, state.rows.length);
      if (rows > 0 && state.counts.logValues > 0) {
        flush.begin(rows);
        flush.finish();
      }
    }
    const oldest = state.spans[0];
    if (!oldest) return [];
    const { run, acceptedMs } = oldest;
    const end = state.spans.findIndex((span) => span.run !== run || span.acceptedMs > acceptedMs);
    return state.spans.slice(0, end < 0 ? undefined : end);
  }

  #dropGroup(group: readonly Span[], reason: 'bytes' | 'age', bytes = 0): number {
    const { state } = this.#parts;
    if (group.length > 0) this.#isUnmeasured = true;
    for (const span of group) this.#uncommitted.push({ reason, values: state.removeSpan(span) });
    return bytes;
  }

  /** Returns the size of the span's rows on disk, in bytes. */
  #bytesOf(span: Span): number {
    const { state, statements } = this.#parts;
    const rows = span.left * ROW_BYTES;
    if (!state.pending.newSpans.has(span)) {
      return (
        rows + (statements.bytesOfSegments.get(segmentId(span.id, 0), segmentId(span.id, span.series.length)) ?? 0)
      );
    }
    let bytes = rows;
    for (let entry = 0; entry < span.series.length; entry++) {
      bytes += state.pending.segments.get(segmentId(span.id, entry))?.length ?? 0;
    }
    return bytes;
  }

  /** Returns the maximum number of values in one group. */
  maxGroupValues({ usedBytes }: DiskUse): number {
    const { state, bounds } = this.#parts;
    const values = state.counts.logValues + state.counts.segmentValues;
    if (bounds.maxBytes === 0 || values === 0) return Number.POSITIVE_INFINITY;
    return (bounds.maxBytes * GROUP_SHARE * values) / Math.max(1, usedBytes);
  }

  /** Estimates how much a different bound would drop, without reading values. */
  forecast(disk: DiskUse, bounds: Pick<BufferBounds, 'maxBytes'>): DropForecast {
    const { state, statements } = this.#parts;
    // The WAL is not counted, because a checkpoint empties it first.
    const excess = excessBytes({ ...disk, walBytes: 0 }, bounds);
    if (excess === 0) return { values: 0, quarantined: 0 };
    const quarantine = statements.sizeOfQuarantine.get() ?? { values: 0, bytes: 0, rows: 0 };
    const quarantineBytes = quarantine.bytes + quarantine.rows * ROW_BYTES;
    if (quarantineBytes >= excess) {
      return { values: 0, quarantined: Math.ceil((quarantine.values * excess) / quarantineBytes) };
    }
    const values = state.counts.logValues + state.counts.segmentValues;
    const valueBytes = Math.max(1, disk.usedBytes - quarantineBytes);
    const share = Math.min(1, (excess - quarantineBytes) / valueBytes);
    return { values: Math.ceil(values * share), quarantined: quarantine.values };
  }

  /** Counts values that were dropped elsewhere. They are reported once the change is committed. */
  count(reason: DropReason, values: number): void {
    if (values > 0) this.#uncommitted.push({ reason, values });
  }

  /** Returns values dropped since the previous call. */
  collectDropped(): Dropped[] {
    const dropped = this.#dropped;
    this.#dropped = [];
    return dropped;
  }
}
