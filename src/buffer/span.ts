/**
 * A span: what one flushing of the log made, a segment for each series that had something unsettled. Spans stand in the
 * order of acceptance, and the segments of one span lie beside each other in the file, asset by asset: the order in
 * which a backlog is posted is the order in which it is read.
 *
 * In memory a span is its directory alone, some twenty bytes for each segment of hundreds of values.
 */
import { ByteReader, ByteWriter, damaged } from './format/bytes.ts';
import { openRun, type SettledRanges, settledCount } from './format/settled-ranges.ts';

/** Every value of the segment is settled, quarantined or stored elsewhere. */
export const GONE = 1;
/** Values of the segment were dropped by a bound, or could not be read. */
export const LOST = 2;

/** Segments of a span, in columns; entry `i` is the segment with the id `spanId × 2^20 + i`. */
export interface Span {
  id: number;
  /** Place in the order of acceptance. Spans that a compaction made have that of the first they replace; the later number comes later. */
  place: number;
  run: number;
  /** Monotonic milliseconds at which the last of its values was accepted, in that run. */
  acceptedMs: number;
  /** At which the first of them was, to the second. */
  firstAcceptedMs: number;
  series: Uint32Array;
  count: Uint32Array;
  /** The latest time of the segment's values. */
  lastTimeMs: Float64Array;
  /** Seconds from the acceptance of the segment's first value to `acceptedMs`, rounded up. */
  leadSeconds: Uint32Array;
  /** 0 while the segment has values that are not settled, else `GONE` or `LOST`. */
  gone: Uint8Array;
  /** Values it was made of. */
  values: number;
  /** Segments that are not gone. */
  left: number;
  /** Settled runs of segments that are partly settled. */
  progress: Map<number, SettledRanges>;
  /** Entries of which a batch has something, and how many batches. */
  underWay: Map<number, number>;
  /** Counts every change, so that a compaction notices that what it read is no longer so. */
  changes: number;
}

/** What the directory of a span says of a segment. */
export interface SpanEntry {
  series: number;
  count: number;
  lastTimeMs: number;
  leadSeconds: number;
}

/** Where somebody who walks through the spans has come to: the next entry of a span, which need not be there any more. */
export interface SpanCursor {
  place: number;
  span: number;
  entry: number;
}

/** The first entry of a span that lies at or behind the cursor; Infinity where it is passed. */
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
    underWay: new Map(),
    changes: 0,
  };
}

/** The runs of a segment's values that are not settled, in order. */
export function* openRuns(span: Span, entry: number): Generator<{ from: number; to: number }, void> {
  const progress = span.progress.get(entry) ?? [];
  const count = span.count[entry]!;
  for (let run = openRun(progress, count); run; run = openRun(progress, count, run.to)) yield run;
}

/** The directory as bytes, with checksum. */
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

/** A directory of an earlier version has no leads: its values count as accepted when the last of them was. */
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

/** Values of a segment that are not settled. */
export function openValues(span: Span, entry: number): number {
  if (span.gone[entry]) return 0;
  const ranges = span.progress.get(entry);
  return span.count[entry]! - (ranges ? settledCount(ranges) : 0);
}

/**
 * Seconds by which the segment's oldest open value was accepted before `acceptedMs`. A segment does not say when each of its
 * values was accepted: between the first and the last they count as evenly spread.
 */
export function openLeadSeconds(span: Span, entry: number): number {
  const { value: first } = openRuns(span, entry).next();
  return first ? leadAt(span.leadSeconds[entry]!, first.from, span.count[entry]!) : 0;
}

/** The lead of the value at `position` of `count` values, the first of which has the lead `leadSeconds`. */
export function leadAt(leadSeconds: number, position: number, count: number): number {
  return Math.ceil(leadSeconds * (1 - position / count));
}

/** Monotonic milliseconds at which the oldest value that is not settled was accepted, in the span's run. */
export function oldestAcceptedMs(span: Span): number {
  let lead = 0;
  for (let entry = 0; entry < span.series.length; entry++) {
    if (!span.gone[entry] && span.leadSeconds[entry]! > lead) lead = Math.max(lead, openLeadSeconds(span, entry));
  }
  return span.acceptedMs - lead * 1000;
}

/** Which segments are gone, a bit each, with checksum. */
export function packGone(span: Span): Uint8Array {
  const bits = new Uint8Array(Math.ceil(span.gone.length / 8));
  for (let i = 0; i < span.gone.length; i++) if (span.gone[i]) bits[i >> 3]! |= 1 << (i & 7);
  const writer = new ByteWriter(bits.length + 4);
  writer.reset(4);
  writer.raw(bits);
  return writer.seal().slice();
}

/** Throws `store.damaged` where the bytes are not what was written for this span. */
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
