import { randomInt } from 'node:crypto';
import { liveDay } from '../../test/prove/day.ts';
import { WHOLE_FAULTS } from '../../test/prove/faults.ts';
import { pullPlug } from '../../test/prove/plug.ts';
import { mixed, scheduleText } from '../../test/prove/schedule.ts';
import { liveMonth } from '../../test/prove/session-month.ts';
import { ManualClock } from '../../test/unit/doubles/manual-clock.ts';
import { crashTasks } from './crash.ts';
import { machineTasks } from './machine.ts';
import { peerTasks } from './peers.ts';
import type { Part, Task } from './results.ts';
import { soak } from './soak.ts';

/** With --quick, only every n-th fault of stops and reloads is run. */
const EVERY = 6;
/** Moments of a stop during startup. */
const STARTING_MS = [0, 300, 600, 900, 1_200, 2_000, 3_000, 5_000];

export interface PlanOptions {
  quick: boolean;
  /** Seed of random schedules; part of the run's name. */
  seed: number | undefined;
  soakMs: number;
}

/** Returns a part's runs. The name contains everything that identifies a run on the page. */
export function tasksOf(part: Part, options: PlanOptions): Task[] {
  const seeds = (count: number) =>
    options.seed === undefined ? Array.from({ length: count }, (_, i) => i + 1) : [options.seed];
  if (part === 'faults' || part === 'stops' || part === 'reloads') {
    const meanwhile = ({ faults: {}, stops: { meanwhile: 'stop' }, reloads: { meanwhile: 'reload' } } as const)[part];
    const each = Object.entries(WHOLE_FAULTS).map(([fault, { holdMs }]) => ({
      fault,
      atMs: 0,
      forMs: Math.max(1_500, holdMs[0]),
    }));
    // Stops at several moments of a startup.
    const starts = STARTING_MS.map((forMs) => ({
      fault: 'SIGKILL',
      atMs: 0,
      forMs,
      as: `startup, after ${forMs / 1000} s`,
    }));
    const whole = part === 'stops' ? [...each, ...starts] : each;
    const isWhole = part === 'faults' || !options.quick;
    const schedule = isWhole ? whole : whole.filter((_, at) => at % EVERY === 0);
    const run: Task['run'] = async (say) => {
      const report = await liveDay({
        seed: options.seed ?? 1,
        schedule,
        perSecond: 400,
        oneByOne: true,
        ...meanwhile,
        isTimed: true,
        isWhole: true,
        say,
      });
      return { report, wrong: report.wrong };
    };
    const minutes = Math.ceil((schedule.length * (part === 'stops' ? 9 : 6)) / 60);
    const name = isWhole ? 'each alone' : `every ${EVERY}th`;
    return [{ part, name: options.seed === undefined ? name : `${name}, seed ${options.seed}`, minutes, run }];
  }
  if (part === 'mixed') {
    return seeds(options.quick ? 2 : 20).map((seed) => ({
      part,
      name: `seed ${seed}`,
      minutes: 1,
      run: async (say) => {
        const schedule = mixed(seed, 30_000, Object.keys(WHOLE_FAULTS).length + 6, WHOLE_FAULTS);
        say(scheduleText(schedule));
        const report = await liveDay({ seed, schedule, perSecond: 400, isTimed: true, isWhole: true });
        return { report, wrong: report.wrong };
      },
    }));
  }
  if (part === 'plug') return [false, true].map((isControl) => plugTask(seeds(1)[0]!, isControl, options.quick));
  if (part === 'crash') return crashTasks(options.seed ?? 1, options.quick);
  if (part === 'session') {
    const days = options.quick ? 7 : 30;
    return seeds(1).map((seed) => ({
      part,
      name: `seed ${seed}, ${days} days`,
      minutes: options.quick ? 1 : 3,
      run: async () => {
        const report = await liveMonth(seed, days);
        const wrong = [
          ...(report.deadTokens > 0 ? [`${report.deadTokens} calls used an invalid token`] : []),
          ...(report.renewalsAtOnce > 1 ? [`${report.renewalsAtOnce} concurrent renewals`] : []),
          ...(report.leftAfterStop > 0 ? [`${report.leftAfterStop} tokens not revoked after a clean stop`] : []),
        ];
        return { report, wrong };
      },
    }));
  }
  if (part === 'machine') return machineTasks(options.seed ?? 1);
  if (part === 'peers') return peerTasks(options.seed ?? 1);
  const seed = options.seed ?? randomInt(1, 1_000_000);
  const run: Task['run'] = async (say) => {
    const chance = new ManualClock(0, seed);
    const report = await soak(seed, options.soakMs, () => chance.random(), say);
    const wrong = valuesWrong(report.values, report.allowedRepeats);
    return { report, wrong: report.endedBy === undefined ? wrong : [report.endedBy, ...wrong] };
  };
  const minutes = Math.ceil(options.soakMs / 60_000);
  return [{ part, name: `seed ${options.seed ?? 'random'}, ${minutes} min`, minutes, run }];
}

function plugTask(seed: number, isControl: boolean, isQuick: boolean): Task {
  const cuts = isControl ? 4 : isQuick ? 5 : 40;
  const run: Task['run'] = async () => {
    const report = await pullPlug({ seed, cuts, isNormal: isControl });
    const wrong = valuesWrong(report.values, report.allowedRepeats);
    if (report.events.missing > 0) wrong.push(`${report.events.missing} acknowledged events without a reaction`);
    return { report, isControl, wrong: isControl ? controlWrong(report.values.missing) : wrong };
  };
  const name = `${isControl ? 'control' : `seed ${seed}`}, ${cuts} cuts`;
  return { part: 'plug', name, minutes: Math.ceil(cuts / 12), run };
}

function controlWrong(missing: number): string[] {
  return missing > 0 ? [] : ['the control lost no values, so the test proves nothing'];
}

function valuesWrong(
  values: Record<'missing' | 'invented' | 'different' | 'repeated', number>,
  allowed: number,
): string[] {
  const wrong = (['missing', 'invented', 'different'] as const).flatMap((what) =>
    values[what] > 0 ? [`${values[what]} values ${what}`] : [],
  );
  return values.repeated > allowed ? [...wrong, `${values.repeated} duplicates, ${allowed} allowed`] : wrong;
}
