import { ByteReader, ByteWriter, damaged } from './bytes.ts';

/**
 * Settled values of a segment as sorted, disjoint [from, to) pairs. Usually one pair from 0; more if parts of a divided
 * batch ended separately.
 */
export type SettledRanges = number[];

/** Returns a new list with [from, to) added. */
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

/** Returns the first unsettled run at or after `at` in a segment of `count` values; `undefined` if there is none. */
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
  // Each boundary has at least one byte, so no memory is allocated for a corrupt length.
  if (length > reader.left) throw damaged('the progress of a segment');
  const ranges = Array.from({ length }, () => reader.varint());
  const inOrder = ranges.every((edge, at) => at === 0 || edge > ranges[at - 1]!);
  if (length % 2 === 1 || !inOrder) throw damaged('the progress of a segment');
  return ranges;
}
