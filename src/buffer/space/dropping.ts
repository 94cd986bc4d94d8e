/**
 * Keeps the configured bounds by dropping what is oldest, a step with each commit, and counts what was dropped, by reason,
 * once that is committed. For the bound on bytes the disk is measured before each step, and only as much goes as is too
 * much then: first copies of damaged rows, then quarantine, oldest first, then values, oldest first.
 */
import type { SegmentReader } from '../batches/segment-reader.ts';
import { dropSpan } from '../compaction/compaction.ts';
import { type Flush, rowsOfOneRun } from '../compaction/flush.ts';
import type { Pending } from '../pending.ts';
import { type Span, segmentId } from '../span.ts';
import type { StoreState } from '../state.ts';
import type { DropReason, StepSize } from '../store-facts.ts';
import type { Statements } from '../tables.ts';
import { type BufferBounds, type DiskUse, excessBytes } from './bounds.ts';
import { Trimming } from './trimming.ts';

/** What one commit deletes at most: deleting reads the pages of what goes. */
const STEP_BYTES = 8 * 1024 * 1024;
/** A little more than must go, so that not every commit drops. */
const SLACK_SHARE = 1 / 64;
const MIN_SLACK_BYTES = 16 * 1024;
const MAX_SLACK_BYTES = 4 * 1024 * 1024;
/** Values that were flushed together go together where they are no more than this share of the bound, or than must go. */
const WHOLE_SHARE = 1 / 16;
/** What a compaction puts together at most: less than that, for values differ in size. */
const GROUP_SHARE = WHOLE_SHARE / 2;
/** An export in which a trimmed value would come twice is waited for while the bound is passed by no more than this. */
const OVERSHOOT_BYTES = 12 * 1024 * 1024;
/** Number, header and place of a row in its page. */
const ROW_BYTES = 16;
const ROWS_A_STEP = 1_000;
const TRIM_STEP: StepSize = { values: 32 * 1024, segments: 512 };

/** Values that fell by a bound, or by an operator's word. */
export interface Dropped {
  reason: DropReason;
  values: number;
}

/** What a bound would drop if it were in force. */
export interface DropForecast {
  values: number;
  quarantined: number;
}

export interface DroppingParts {
  state: StoreState;
  pending: Pending;
  flush: Flush;
  segments: SegmentReader;
  statements: Statements;
  bounds: BufferBounds;
  /** Whether a reader needs the values in their place. */
  isRead(): boolean;
  stepSize?: StepSize | undefined;
}

export class Dropping {
  readonly #parts: DroppingParts;
  #dropped: Dropped[] = [];
  /** Gone in memory, and not on disk yet: a commit that fails leaves them here, and nothing is said of them. */
  #uncommitted: Dropped[] = [];
  /** Something goes with the next commit: the disk is measured after it, and not counted on before. */
  #isUnmeasured = false;
  #trimming: Trimming | undefined;
  /** The bound is passed by what nothing can be dropped of. */
  #isExhausted = false;

  constructor(parts: DroppingParts) {
    this.#parts = parts;
  }

  /** The deletions are on disk. `true` where there were any: the disk is to be looked at before more is dropped. */
  committed(): boolean {
    const any = this.#isUnmeasured || this.#uncommitted.length > 0;
    this.#isUnmeasured = false;
    this.#dropped.push(...this.#uncommitted);
    this.#uncommitted = [];
    return any;
  }

  /** There is a step to do, though no commit comes. */
  isDue(disk: DiskUse): boolean {
    return this.#mustShrink(disk) && !this.#isUnmeasured && !this.#isExhausted;
  }

  #mustShrink(disk: DiskUse): boolean {
    const { bounds } = this.#parts;
    return bounds.full === 'drop-oldest' && excessBytes(disk, bounds) > 0;
  }

  /** One step. Gives the values that left quarantine by it. */
  keep(disk: DiskUse, ageOf: (span: Span) => number): number {
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

  /** Of rows that did not read: an expert may want them, but values that can be posted go before no copy. */
  #dropCopies(wanted: number): number {
    const { statements, pending } = this.#parts;
    let bytes = 0;
    for (const row of statements.oldestAside.iterate(ROWS_A_STEP)) {
      if (bytes >= wanted) break;
      pending.droppedAside.push(row.id);
      bytes += row.bytes + ROW_BYTES;
    }
    if (bytes > 0) this.#isUnmeasured = true;
    return bytes;
  }

  #dropQuarantine(wanted: number): { bytes: number; values: number } {
    const { statements, pending } = this.#parts;
    // What is on its way out already frees its space by itself.
    const leaving = new Set(pending.releasedQuarantine);
    let bytes = 0;
    let values = 0;
    for (const row of statements.oldestQuarantine.iterate(ROWS_A_STEP)) {
      if (bytes >= wanted) break;
      bytes += row.bytes + ROW_BYTES;
      if (leaving.has(row.id)) continue;
      pending.releasedQuarantine.push(row.id);
      values += row.count;
    }
    if (bytes > 0) this.#isUnmeasured = true;
    this.count('quarantine', values);
    return { bytes, values };
  }

  /** Gives the bytes that go with the next commit, about; 0 where there is nothing more to drop, or not now. */
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
    const { state, pending } = this.#parts;
    this.#trimming = new Trimming(state, pending, group, wanted / bytes);
    const trimmed = this.#trim();
    // All of it is under way: what the platform takes of it in this moment, it has; the rest is dropped like any other.
    return trimmed === 0 && !this.#trimming ? this.#dropGroup(group, 'bytes', bytes) : trimmed;
  }

  /** One step of a trimming ends the step: what it frees is seen after the commit. */
  #trim(): number {
    const values = this.#trimming!.step(this.#parts.segments, this.#parts.stepSize ?? TRIM_STEP);
    if (this.#trimming!.isDone) this.#trimming = undefined;
    this.count('bytes', values);
    if (values === 0) return 0;
    this.#isUnmeasured = true;
    return Number.POSITIVE_INFINITY;
  }

  /** The spans of the oldest time: what one holds of some series belongs with what the others hold of that time. */
  #oldestGroup(): Span[] {
    const { state, flush } = this.#parts;
    const first = state.spans[0];
    if (!first || flush.made(first)) flush.finish();
    if (state.spans.length === 0) {
      const rows = rowsOfOneRun(state.rows, state.rows.length);
      if (rows > 0 && state.logValues > 0) {
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
    const { state, pending } = this.#parts;
    this.#isUnmeasured = true;
    for (const span of group) this.#uncommitted.push({ reason, values: dropSpan(state, pending, span) });
    return bytes;
  }

  /** What the rows of a span take on disk. */
  #bytesOf(span: Span): number {
    const { pending, statements } = this.#parts;
    const rows = span.left * ROW_BYTES;
    if (!pending.newSpans.has(span)) {
      return (
        rows + (statements.bytesOfSegments.get(segmentId(span.id, 0), segmentId(span.id, span.series.length)) ?? 0)
      );
    }
    let bytes = rows;
    for (let entry = 0; entry < span.series.length; entry++) {
      bytes += pending.segments.get(segmentId(span.id, entry))?.length ?? 0;
    }
    return bytes;
  }

  /** Values that may be put together in one group, so that it can be dropped whole. */
  maxGroupValues({ usedBytes }: DiskUse): number {
    const { state, bounds } = this.#parts;
    const values = state.logValues + state.segmentValues;
    if (bounds.maxBytes === 0 || values === 0) return Number.POSITIVE_INFINITY;
    return (bounds.maxBytes * GROUP_SHARE * values) / Math.max(1, usedBytes);
  }

  /** What would fall under another bound, about, counted without reading the values. */
  forecast(disk: DiskUse, bounds: Pick<BufferBounds, 'maxBytes'>): DropForecast {
    const { state, statements } = this.#parts;
    // The WAL is met by a checkpoint first.
    const excess = excessBytes({ ...disk, walBytes: 0 }, bounds);
    if (excess === 0) return { values: 0, quarantined: 0 };
    const quarantine = statements.sizeOfQuarantine.get() ?? { values: 0, bytes: 0, rows: 0 };
    const quarantineBytes = quarantine.bytes + quarantine.rows * ROW_BYTES;
    if (quarantineBytes >= excess) {
      return { values: 0, quarantined: Math.ceil((quarantine.values * excess) / quarantineBytes) };
    }
    const values = state.logValues + state.segmentValues;
    const valueBytes = Math.max(1, disk.usedBytes - quarantineBytes);
    const share = Math.min(1, (excess - quarantineBytes) / valueBytes);
    return { values: Math.ceil(values * share), quarantined: quarantine.values };
  }

  /** Counts what something else dropped, once it is on disk. */
  count(reason: DropReason, values: number): void {
    if (values > 0) this.#uncommitted.push({ reason, values });
  }

  /** What was dropped for good since this was last asked. */
  take(): Dropped[] {
    const dropped = this.#dropped;
    this.#dropped = [];
    return dropped;
  }
}
