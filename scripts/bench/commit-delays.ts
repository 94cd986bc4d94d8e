/**
 * Measures how long flush and compaction delay commits: steps for which a commit may wait, and its own writes. Each
 * commit of the store is followed by one of the bare log with the same readings, so that a temporary slowdown of the
 * machine affects both.
 */
import { bareLog } from './bare-loops.ts';
import { benchStore } from './bench-store.ts';
import { table } from './measure.ts';
import { Plant } from './plant.ts';

/** `everyMs` is simulated time, so that the run need not wait until work is due. */
const LOADS = [
  {
    name: '500 series, decimals, 20,000/s',
    series: 500,
    kind: 'decimals',
    perCommit: 1000,
    everyMs: 50,
    commits: 1000,
  },
  { name: '500 series, doubles, 20,000/s', series: 500, kind: 'doubles', perCommit: 1000, everyMs: 50, commits: 1000 },
  {
    name: '5,000 series, decimals, 20,000/s',
    series: 5000,
    kind: 'decimals',
    perCommit: 1000,
    everyMs: 50,
    commits: 1000,
  },
  {
    name: '5,000 series, doubles, 20,000/s',
    series: 5000,
    kind: 'doubles',
    perCommit: 1000,
    everyMs: 50,
    commits: 1000,
  },
  {
    name: '5,000 series, decimals, 500/s, for an hour',
    series: 5000,
    kind: 'decimals',
    perCommit: 500,
    everyMs: 1000,
    commits: 3600,
  },
] as const;

const HEAD = [
  'load, platform unavailable',
  'steps',
  'worst ms',
  'p99 ms',
  'commits',
  'worst ms',
  'p99 ms',
  'bare log: worst ms',
  'p99 ms',
];

/** `pathOf` returns a database path by name. */
export function commitDelays(pathOf: (name: string) => string): string {
  return table(
    HEAD,
    LOADS.map((load, i) => measure(load, (name) => pathOf(`delays-${name}-${i}`))),
  );
}

function measure(load: (typeof LOADS)[number], pathOf: (name: string) => string): string[] {
  const { store, catalogue } = benchStore(pathOf('store'), load.series);
  const bare = bareLog(pathOf('log'));
  const plant = new Plant(load.kind, load.series);
  const steps: number[] = [];
  const commits: number[] = [];
  const bareCommits: number[] = [];
  const timed = <Result>(times: number[], work: () => Result): Result => {
    const start = performance.now();
    const result = work();
    times.push(performance.now() - start);
    return result;
  };
  let monotonicMs = 0;
  // New series are written once.
  store.commit({ columns: undefined, newSeries: catalogue.takeUnsaved(), monotonicMs });
  for (let i = 0; i < load.commits; i++) {
    monotonicMs += load.everyMs;
    const columns = plant.next(load.perCommit);
    timed(bareCommits, () => bare.commit(columns));
    let facts = timed(commits, () => store.commit({ columns, newSeries: [], monotonicMs }));
    while (facts.maintenanceDue) facts = timed(steps, () => store.maintain({ monotonicMs }));
  }
  store.close();
  bare.close();
  return [load.name, ...summary(steps), ...summary(commits), ...summary(bareCommits).slice(1)];
}

function summary(times: number[]): string[] {
  const sorted = times.toSorted((a, b) => b - a);
  const ms = (at: number) => (sorted[at] ?? 0).toFixed(1);
  return [sorted.length.toLocaleString('en'), ms(0), ms(Math.floor(sorted.length / 100))];
}
