import { randomInt } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, totalmem } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { readDuration } from '../../src/base/quantity.ts';
import { ManualClock } from '../../test/doubles/manual-clock.ts';
import { liveDay } from '../../test/prove/day.ts';
import { WHOLE_FAULTS } from '../../test/prove/faults.ts';
import { pullPlug } from '../../test/prove/plug.ts';
import { mixed, scheduleText } from '../../test/prove/schedule.ts';
import { liveMonth } from '../../test/prove/session-month.ts';
import { machineTasks } from './machine.ts';
import { peerTasks } from './peers.ts';
import { reportText } from './report.ts';
import { type Kept, keepResult, PARTS, type Part, readResults, readShown, showResults, type Task } from './results.ts';
import { soak } from './soak.ts';

/** All but whole machines: those take an hour. */
const QUICK: readonly Part[] = ['faults', 'stops', 'reloads', 'mixed', 'plug', 'session', 'soak'];
/** Of the quick way: so many of the faults that a stop or new files come into. */
const EVERY = 6;
const MACHINE = { cores: cpus().length, gib: Math.round(totalmem() / 2 ** 30) };
/** What the page's sections stand in where `--report` names one that is not there yet. */
const PAGE = join(import.meta.dirname, '../../docs/proof.md');
/** Into a start. */
const STARTING_MS = [0, 300, 600, 900, 1_200, 2_000, 3_000, 5_000];

function fail(text: string): never {
  console.error(
    `prove: ${text}\nusage: scripts/prove [${PARTS.join('|')}]... [--quick] [--seed N] [--for 1h] [--again] [--report FILE]`,
  );
  process.exit(2);
}

function readArguments() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        quick: { type: 'boolean' },
        again: { type: 'boolean' },
        seed: { type: 'string' },
        for: { type: 'string' },
        report: { type: 'string' },
      },
    });
    for (const name of positionals) if (!PARTS.includes(name as Part)) fail(`there is no part "${name}"`);
    const soakFor = readDuration(values.for ?? (values.quick ? '1m' : '1h'));
    if ('reason' in soakFor) fail(`${values.for} is no duration`);
    const seed = values.seed === undefined ? undefined : Number(values.seed);
    if (seed !== undefined && (!Number.isSafeInteger(seed) || seed < 0)) fail(`${values.seed} is no seed`);
    const quick = values.quick ?? false;
    const parts = positionals.length > 0 ? (positionals as Part[]) : quick ? QUICK : PARTS;
    return { ...values, quick, seed, parts, soakMs: soakFor.value };
  } catch (error) {
    fail(error instanceof Error ? error.message : String(error));
  }
}

const options = readArguments();

function tasksOf(part: Part): Task[] {
  const seeds = (count: number) =>
    options.seed === undefined ? Array.from({ length: count }, (_, i) => i + 1) : [options.seed];
  if (part === 'faults' || part === 'stops' || part === 'reloads') {
    const meanwhile = ({ faults: {}, stops: { meanwhile: 'stop' }, reloads: { meanwhile: 'reload' } } as const)[part];
    const each = Object.entries(WHOLE_FAULTS).map(([fault, { holdMs }]) => ({
      fault,
      atMs: 0,
      forMs: Math.max(1_500, holdMs[0]),
    }));
    // A start is a fault of many moments to one who asks it to end.
    const starts = STARTING_MS.map((forMs) => ({
      fault: 'SIGKILL',
      atMs: 0,
      forMs,
      as: `a start, ${forMs / 1000} s into it`,
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
    return [{ part, name: isWhole ? 'each alone' : `every ${EVERY}th`, minutes, run }];
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
  if (part === 'plug') return [false, true].map((isControl) => plugTask(seeds(1)[0]!, isControl));
  if (part === 'session') {
    const days = options.quick ? 7 : 30;
    return seeds(1).map((seed) => ({
      part,
      name: `seed ${seed}, ${days} days`,
      minutes: options.quick ? 1 : 3,
      run: async () => {
        const report = await liveMonth(seed, days);
        const wrong = [
          ...(report.deadTokens > 0 ? [`${report.deadTokens} calls carried a dead token`] : []),
          ...(report.renewalsAtOnce > 1 ? [`${report.renewalsAtOnce} renewals at once`] : []),
          ...(report.leftAfterStop > 0 ? [`${report.leftAfterStop} tokens alive after a clean stop`] : []),
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
  return [{ part, name: `seed ${options.seed ?? 'of its own'}`, minutes: Math.ceil(options.soakMs / 60_000), run }];
}

function plugTask(seed: number, isControl: boolean): Task {
  const cuts = isControl ? 4 : options.quick ? 5 : 40;
  const run: Task['run'] = async () => {
    const report = await pullPlug({ seed, cuts, isNormal: isControl });
    const wrong = valuesWrong(report.values, report.allowedRepeats);
    if (report.events.missing > 0) wrong.push(`${report.events.missing} acknowledged events have no reaction`);
    return { report, isControl, wrong: isControl ? controlWrong(report.values.missing) : wrong };
  };
  const name = `${isControl ? 'control' : `seed ${seed}`}, ${cuts} cuts`;
  return { part: 'plug', name, minutes: Math.ceil(cuts / 12), run };
}

function controlWrong(missing: number): string[] {
  return missing > 0 ? [] : ['the control lost nothing: the test proves nothing'];
}

function valuesWrong(
  values: Record<'missing' | 'invented' | 'different' | 'repeated', number>,
  allowed: number,
): string[] {
  const wrong = (['missing', 'invented', 'different'] as const).flatMap((what) =>
    values[what] > 0 ? [`${values[what]} values ${what}`] : [],
  );
  return values.repeated > allowed ? [...wrong, `${values.repeated} values came again, ${allowed} may`] : wrong;
}

const tasks = options.parts.flatMap(tasksOf);
const known = options.again || options.seed !== undefined ? [] : readResults();
const isDone = ({ part, name }: Task) =>
  known.some((one) => one.part === part && one.name === name && one.wrong.length === 0);
const open = tasks.filter((task) => !isDone(task));
const minutes = open.reduce((sum, task) => sum + task.minutes, 0);
console.log(
  `prove: ${open.length} runs, about ${minutes} min on a quiet machine; ${tasks.length - open.length} were done before (--again does them too)`,
);
let wrong = 0;
for (const task of open) {
  const label = `${task.part}, ${task.name}`;
  console.log(`${label}: about ${task.minutes} min`);
  const began = performance.now();
  const say = (what: string) => console.log(`  ${what}`);
  const found = await task.run(say).catch((error: unknown) => ({
    report: undefined,
    wrong: [`it came to no end: ${error instanceof Error ? error.message : String(error)}`],
  }));
  const result = {
    part: task.part,
    name: task.name,
    at: new Date().toISOString(),
    tookMs: Math.round(performance.now() - began),
    load: Math.round((loadavg()[0]! / MACHINE.cores) * 10) / 10,
    machine: MACHINE,
    ...found,
  } as Kept;
  keepResult(result);
  console.log(`${label}: ${found.wrong.length === 0 ? 'nothing wrong' : `WRONG: ${found.wrong.join('; ')}`}`);
  if (found.wrong.length > 0) wrong++;
}
if (options.report !== undefined) writeReport(resolve(options.report));
console.log(wrong === 0 ? 'prove: nothing acknowledged was lost' : `prove: FAILED in ${wrong} of ${open.length} runs`);
process.exit(wrong === 0 ? 0 : 1);

/** What was run here goes into the data beside the page, and all that is there into the page. */
function writeReport(page: string): void {
  const folder = page.replace(/\.md$/, '');
  const asked = new Set(options.parts);
  showResults(
    folder,
    readResults().filter(({ part }) => asked.has(part)),
  );
  const text = readFileSync(existsSync(page) ? page : PAGE, 'utf8');
  writeFileSync(page, reportText(text, readShown(folder), folder));
}
