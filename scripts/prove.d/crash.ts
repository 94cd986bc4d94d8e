import { CRASH_POINTS, type CrashPoint } from '../../src/base/crash-points.ts';
import { type CrashReport, type CrashRun, crashAt } from '../../test/prove/crash/crash-run.ts';
import { ManualClock } from '../../test/unit/doubles/manual-clock.ts';
import type { Result, Task } from './results.ts';
import { table } from './table.ts';

const EFFECTS = ['kill', 'full'] as const;
const RUNS_PER_EFFECT = 2;
/** Number of announcements that every run reaches before the scenario waits for the point. */
const ANNOUNCEMENTS: Record<CrashPoint, number> = {
  'commit.before': 120,
  'commit.after': 120,
  'commit.unacknowledged': 120,
  flush: 8,
  merge: 1,
  'rescue.copy': 60,
  'post.unsettled': 40,
  'event.undispatched': 16,
  'action.before': 16,
  'action.after': 16,
};

/**
 * Returns the runs of a seed: each point with each effect, at announcements that the seed selects. A quick plan has one
 * run per point.
 */
export function crashTasks(seed: number, isQuick: boolean): Task[] {
  const chance = new ManualClock(0, seed);
  const below = (bound: number) => Math.floor(chance.random() * bound);
  const points = Object.entries(ANNOUNCEMENTS) as [CrashPoint, number][];
  return points.flatMap(([point, announcements]) => {
    const all = EFFECTS.flatMap((effect) =>
      Array.from({ length: RUNS_PER_EFFECT }, (_, i) => {
        const nth = [1 + below(announcements)];
        // The second run also kills the agent shortly after its restart.
        if (effect === 'kill' && i > 0) nth.push(1 + below(3));
        return crashTask({ point, effect, nth });
      }),
    );
    if (isQuick) return [all[below(all.length)]!];
    // A point with few announcements can be selected twice.
    return all.filter(({ name }, at) => all.findIndex((one) => one.name === name) === at);
  });
}

function crashTask(crash: CrashRun): Task {
  const name = `${crash.point} ${crash.effect} ${crash.nth.join('+')}`;
  const run: Task['run'] = async () => {
    const report = await crashAt(crash);
    return { report, wrong: report.wrong };
  };
  return { part: 'crash', name, minutes: 0.5, run };
}

/** Returns the points with the counts of their runs. */
export function crashText(runs: readonly Extract<Result, { part: 'crash' }>[]): string {
  const sum = (reports: readonly CrashReport[], count: (report: CrashReport) => number) =>
    reports.reduce((total, report) => total + count(report), 0);
  const rows = Object.entries(CRASH_POINTS).map(([point, state]) => {
    const reports = runs.map(({ report }) => report).filter((report) => report.point === point);
    const kills = reports.filter(({ effect }) => effect === 'kill').length;
    const wrong = sum(reports, (report) => report.wrong.length);
    return [
      `\`${point}\``,
      state,
      `${kills} / ${reports.length - kills}`,
      sum(reports, ({ acknowledged }) => acknowledged),
      sum(reports, ({ events }) => events),
      wrong,
    ];
  });
  return table(['point', 'state', 'runs: kill / full', 'values', 'events', 'errors'], rows);
}
