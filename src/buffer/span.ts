/**
 * A span is the result of one flush: a segment for each series with unsettled values. Spans are ordered by acceptance.
 * The segments of a span are adjacent in the file, asset by asset. A backlog is therefore read in the order in which it
 * is posted. In memory a span is only its directory, about twenty bytes per segment.
 */
import { ByteReader, ByteWriter, damaged } from './format/bytes.ts';
import { openRun, type SettledRanges, settledCount } from './format/settled-ranges.ts';

/** All values of the segment have been settled, quarantined or stored elsewhere. */
export const GONE = 1;
/** Values of the segment were dropped by a bound or are unreadable. */
export const LOST = 2;

/** Segments in columns; entry `i` has the segment ID `spanId × 2^20 + i`. */
export interface Span {
  id: number;
  /**
   * Position in the order of acceptance. A compacted span has the position of the first span it replaces; equal
   * positions are ordered by ID.
   */
  place: number;
  run: number;
  /** Acceptance time of the latest value, in milliseconds on the monotonic clock of `run`. */
  acceptedMs: number;
  /** Acceptance time of the first value, rounded to seconds. */
  firstAcceptedMs: number;
  series: Uint32Array;
  count: Uint32Array;
  /** Latest timestamp per segment. */
  lastTimeMs: Float64Array;
  /** Seconds from the acceptance of the segment's first value to `acceptedMs`, rounded up. */
  leadSeconds: Uint32Array;
  /** 0 while the segment has unsettled values, otherwise `GONE` or `LOST`. */
  gone: Uint8Array;
  /** Number of values when the span was created. */
  values: number;
  /** Number of segments that are not gone. */
  left: number;
  /** Settled ranges of partly settled segments. */
  progress: Map<number, SettledRanges>;
  /** Entries in flight, with the number of batches that contain values of each. */
  inFlight: Map<number, number>;
  /** Number of changes. A compaction is abandoned if its spans have changed since it read them. */
  changes: number;
}

/** A segment in a span directory. */
export interface SpanEntry {
  series: number;
  count: number;
  lastTimeMs: number;
  leadSeconds: number;
}

/** Position in a traversal of the spans: the next entry, which may no longer exist. */
export interface SpanCursor {
  place: number;
  span: number;
  entry: number;
}

/** Returns the first entry of a span at or after the cursor; Infinity if the span is before the cursor. */
export function entryBehind({ place, span: id, entry }: SpanCursor, span: Span): number {
  if (span.place === place && span.id === id) return entry;
  return span.place > place || (span.place === place && span.id > id) ? 0 : Number.POSITIVE_INFINITY;
}

export const MAX_ENTRIES = 2 ** 20;

export function segmentId(span: number, entry: number): number {
  return span * MAX_ENTRIES + entry;
}

export function newSpan(
  head: { id: number; place: number; run: number; acceptedMs: number },
  entries: readonly SpanEntry[],
): Span {
  return {
    ...head,
    firstAcceptedMs: head.acceptedMs - 1000 * entries.reduce((most, { leadSeconds }) => Math.max(most, leadSeconds), 0),
    series: Uint32Array.from(entries, (entry) => entry.series),
    count: Uint32Array.from(entries, (entry) => entry.count),
    lastTimeMs: Float64Array.from(entries, (entry) => entry.lastTimeMs),
    leadSeconds: Uint32Array.from(entries, (entry) => entry.leadSeconds),
    gone: new Uint8Array(entries.length),
    values: entries.reduce((sum, entry) => sum + entry.count, 0),
    left: entries.length,
    progress: new Map(),
    inFlight: new Map(),
    changes: 0,
  };
}

/** Yields the unsettled ranges of a segment, in order. */
export function* openRuns(span: Span, entry: number): Generator<{ from: number; to: number }, void> {
  const progress = span.progress.get(entry) ?? [];
  const count = span.count[entry]!;
  for (let run = openRun(progress, count); run; run = openRun(progress, count, run.to)) yield run;
}

/** Serializes the directory with a checksum. */
export function packDirectory(span: Span): Uint8Array {
  const writer = new ByteWriter(span.series.length * 8 + 16);
  writer.reset(4);
  writer.varint(span.series.length);
  let series = 0;
  let time = 0;
  for (let i = 0; i < span.series.length; i++) {
    writer.zigzag(span.series[i]! - series);
    writer.varint(span.count[i]!);
    writer.zigzag(span.lastTimeMs[i]! - time);
    series = span.series[i]!;
    time = span.lastTimeMs[i]!;
  }
  for (const lead of span.leadSeconds) writer.varint(lead);
  return writer.seal().slice();
}

/** Directories of format 2 do not contain `leadSeconds`: their values count as accepted at `acceptedMs`. */
export function unpackDirectory(bytes: Uint8Array): SpanEntry[] {
  const reader = ByteReader.unseal(bytes, 'the directory of a span');
  const length = reader.varint();
  if (length * 3 > reader.left) throw damaged('the directory of a span');
  let series = 0;
  let time = 0;
  const entries = Array.from({ length }, () => {
    series += reader.zigzag();
    const count = reader.varint();
    time += reader.zigzag();
    return { series, count, lastTimeMs: time, leadSeconds: 0 };
  });
  if (reader.left > 0) for (const entry of entries) entry.leadSeconds = reader.varint();
  return entries;
}

/** Returns the number of unsettled values of a segment. */
export function openValues(span: Span, entry: number): number {
  if (span.gone[entry]) return 0;
  const ranges = span.progress.get(entry);
  return span.count[entry]! - (ranges ? settledCount(ranges) : 0);
}

/**
 * Returns how many seconds before `acceptedMs` the oldest unsettled value of the segment was accepted. Only the times
 * of the first and last value are known; values in between are assumed to be evenly distributed.
 */
export function openLeadSeconds(span: Span, entry: number): number {
  const { value: first } = openRuns(span, entry).next();
  return first ? leadAt(span.leadSeconds[entry]!, first.from, span.count[entry]!) : 0;
}

/** Returns `leadSeconds` for the value at `position` of `count` values, given `leadSeconds` of the first value. */
export function leadAt(leadSeconds: number, position: number, count: number): number {
  return Math.ceil(leadSeconds * (1 - position / count));
}

/** Returns the acceptance time of the oldest unsettled value, on the clock of the span's run. */
export function oldestAcceptedMs(span: Span): number {
  let lead = 0;
  for (let entry = 0; entry < span.series.length; entry++) {
    if (!span.gone[entry] && span.leadSeconds[entry]! > lead) lead = Math.max(lead, openLeadSeconds(span, entry));
  }
  return span.acceptedMs - lead * 1000;
}

/** Serializes which segments are gone, one bit each, with a checksum. */
export function packGone(span: Span): Uint8Array {
  const bits = new Uint8Array(Math.ceil(span.gone.length / 8));
  for (let i = 0; i < span.gone.length; i++) if (span.gone[i]) bits[i >> 3]! |= 1 << (i & 7);
  const writer = new ByteWriter(bits.length + 4);
  writer.reset(4);
  writer.raw(bits);
  return writer.seal().slice();
}

/** Throws `store.damaged` if the bytes were not written for this span. */
export function markGone(span: Span, packed: Uint8Array): true {
  ByteReader.unseal(packed, 'the settled segments of a span');
  const bits = packed.subarray(4);
  if (bits.length !== Math.ceil(span.gone.length / 8)) throw damaged('the settled segments of a span');
  for (let i = 0; i < span.gone.length; i++) {
    if ((bits[i >> 3]! & (1 << (i & 7))) === 0 || span.gone[i]) continue;
    span.gone[i] = 1;
    span.left--;
  }
  return true;
}
