import { ByteReader, ByteWriter, damaged } from './bytes.ts';

/**
 * Which values of a segment are settled, as [from, to) pairs in order, none touching another. Nearly always one pair
 * from 0; more where a divided batch ended in parts.
 */
export type SettledRanges = number[];

/** Adds [from, to); gives a new list. */
export function addRange(ranges: SettledRanges, from: number, to: number): SettledRanges {
  const result: SettledRanges = [];
  let low = from;
  let high = to;
  let placed = false;
  for (let i = 0; i < ranges.length; i += 2) {
    const start = ranges[i]!;
    const end = ranges[i + 1]!;
    if (end < low) result.push(start, end);
    else if (start > high) {
      if (!placed) result.push(low, high);
      placed = true;
      result.push(start, end);
    } else {
      low = Math.min(low, start);
      high = Math.max(high, end);
    }
  }
  if (!placed) result.push(low, high);
  return result;
}

export function settledCount(ranges: SettledRanges): number {
  let count = 0;
  for (let i = 0; i < ranges.length; i += 2) count += ranges[i + 1]! - ranges[i]!;
  return count;
}

/** The first run at or behind `at` that is not settled, in a segment of `count` values; `undefined` where there is none. */
export function openRun(ranges: SettledRanges, count: number, at = 0): { from: number; to: number } | undefined {
  let from = at;
  for (let i = 0; i < ranges.length; i += 2) {
    if (from < ranges[i]!) return { from, to: ranges[i]! };
    from = Math.max(from, ranges[i + 1]!);
  }
  return from < count ? { from, to: count } : undefined;
}

export function packRanges(ranges: SettledRanges): Uint8Array {
  const writer = new ByteWriter(32);
  writer.reset(4);
  writer.varint(ranges.length);
  for (const edge of ranges) writer.varint(edge);
  return writer.seal();
}

export function unpackRanges(bytes: Uint8Array): SettledRanges {
  const reader = ByteReader.unseal(bytes, 'the progress of a segment');
  const length = reader.varint();
  // Each takes a byte at the least: a count that cannot be true is not an allocation.
  if (length > reader.left) throw damaged('the progress of a segment');
  const ranges = Array.from({ length }, () => reader.varint());
  const inOrder = ranges.every((edge, at) => at === 0 || edge > ranges[at - 1]!);
  if (length % 2 === 1 || !inOrder) throw damaged('the progress of a segment');
  return ranges;
}
