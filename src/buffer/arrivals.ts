import type { Columns } from './value-columns.ts';

/**
 * Values of one commit as they came, columns of all series mixed. While the platform is away nobody asks for them by
 * series before they are folded, and then sorting many commits at once costs a fraction of filling a queue for each.
 */
export interface Arrival {
  columns: Columns;
  /** Order of acceptance of the first value; the others follow by one. */
  firstSeq: number;
}

/** Values series by series, each in order of acceptance: those of a series stand from `start` to `start + count`. */
export interface SortedValues {
  series: { id: number; start: number; count: number }[];
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;
}

/** How many values of each series are in arrivals, by its number. */
export function countArrivals(arrivals: readonly Arrival[], seriesRoom: number): Uint32Array {
  const counts = new Uint32Array(seriesRoom);
  for (const { columns } of arrivals) {
    const { series, length } = columns;
    for (let i = 0; i < length; i++) counts[series[i]!]!++;
  }
  return counts;
}

/**
 * Sorts what arrivals hold of some series, in the order in which `wanted` names them; `counts` are those of `countArrivals`.
 * `onTaken` is told how many values each arrival gave.
 */
export function sortArrivals(
  arrivals: readonly Arrival[],
  wanted: readonly number[],
  counts: Uint32Array,
  onTaken: (arrival: Arrival, values: number) => void,
): SortedValues {
  const total = wanted.reduce((sum, id) => sum + counts[id]!, 0);
  const next = new Int32Array(counts.length).fill(NOT_WANTED);
  const sorted: SortedValues = {
    series: [],
    timeMs: new Float64Array(total),
    value: new Float64Array(total),
    flags: new Uint8Array(total),
  };
  let start = 0;
  for (const id of wanted) {
    const count = counts[id]!;
    sorted.series.push({ id, start, count });
    next[id] = start;
    start += count;
  }
  for (const arrival of arrivals) {
    const taken = scatter(arrival.columns, next, sorted);
    if (taken > 0) onTaken(arrival, taken);
  }
  return sorted;
}

const NOT_WANTED = -1;

function scatter({ length, series, timeMs, value, flags }: Columns, next: Int32Array, to: SortedValues): number {
  const { timeMs: times, value: values, flags: allFlags } = to;
  let taken = 0;
  for (let i = 0; i < length; i++) {
    const id = series[i]!;
    const at = next[id]!;
    if (at === NOT_WANTED) continue;
    next[id] = at + 1;
    times[at] = timeMs[i]!;
    values[at] = value[i]!;
    allFlags[at] = flags[i]!;
    taken++;
  }
  return taken;
}
