import type { Columns } from '../format/value-columns.ts';

/**
 * Values of one commit as they came, columns of all series mixed. While the platform is away nobody asks for them by
 * series before they are flushed, and then sorting many commits at once costs a fraction of filling a queue for each.
 */
export interface Arrival {
  columns: Columns;
  /** Order of acceptance of the first value; the others follow by one. */
  firstSeq: number;
}

/** Values series by series, each in order of acceptance: those of a series stand from `start` to `start + count`. */
export interface SortedValues {
  /** `firstSeq`: of the first of its values, in the order of acceptance. */
  series: { id: number; start: number; count: number; firstSeq: number }[];
  /** Of all series. */
  count: number;
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;
}

/** Sorts arrivals by series. `order` names every series that is wanted, in the order that is wanted. */
export function sortArrivals(arrivals: readonly Arrival[], order: readonly number[], seriesRoom: number): SortedValues {
  const counts = new Uint32Array(seriesRoom);
  const firstSeqs = new Float64Array(seriesRoom);
  for (const { columns, firstSeq } of arrivals) {
    const { series, length } = columns;
    for (let i = 0; i < length; i++) {
      const id = series[i]!;
      if (counts[id]!++ === 0) firstSeqs[id] = firstSeq + i;
    }
  }
  const total = order.reduce((sum, id) => sum + counts[id]!, 0);
  const next = new Int32Array(seriesRoom).fill(NOT_WANTED);
  const sorted: SortedValues = {
    series: [],
    count: total,
    timeMs: new Float64Array(total),
    value: new Float64Array(total),
    flags: new Uint8Array(total),
  };
  let start = 0;
  for (const id of order) {
    const count = counts[id]!;
    if (count === 0) continue;
    sorted.series.push({ id, start, count, firstSeq: firstSeqs[id]! });
    next[id] = start;
    start += count;
  }
  for (const { columns } of arrivals) scatter(columns, next, sorted);
  return sorted;
}

const NOT_WANTED = -1;

function scatter({ length, series, timeMs, value, flags }: Columns, next: Int32Array, to: SortedValues): void {
  const { timeMs: times, value: values, flags: allFlags } = to;
  for (let i = 0; i < length; i++) {
    const id = series[i]!;
    const at = next[id]!;
    if (at === NOT_WANTED) continue;
    next[id] = at + 1;
    times[at] = timeMs[i]!;
    values[at] = value[i]!;
    allFlags[at] = flags[i]!;
  }
}
