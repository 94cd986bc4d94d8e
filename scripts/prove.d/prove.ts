import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, totalmem } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { readDuration } from '../../src/base/quantity.ts';
import { tasksOf } from './plan.ts';
import { reportText } from './report.ts';
import { type Kept, PARTS, type Part, readShown, showResults } from './results.ts';

/** All parts except whole machines, which take an hour. */
const QUICK: readonly Part[] = ['faults', 'stops', 'reloads', 'mixed', 'plug', 'crash', 'session', 'soak'];
const MACHINE = { cores: cpus().length, gib: Math.round(totalmem() / 2 ** 30) };
/** Template for a page that does not exist yet. */
const PAGE = join(import.meta.dirname, '../../docs/internals/proof.md');

function fail(text: string): never {
  console.error(
    `prove: ${text}\nusage: scripts/prove [${PARTS.join('|')}]... [--quick] [--only RUN] [--seed N] [--for 1h] [--report FILE]`,
  );
  process.exit(2);
}

function readArguments() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        quick: { type: 'boolean' },
        only: { type: 'string' },
        seed: { type: 'string' },
        for: { type: 'string' },
        report: { type: 'string' },
      },
    });
    for (const name of positionals) if (!PARTS.includes(name as Part)) fail(`unknown part "${name}"`);
    const soakFor = readDuration(values.for ?? (values.quick ? '1m' : '1h'));
    if ('reason' in soakFor) fail(`--for must be a duration, for example 1h`);
    const seed = values.seed === undefined ? undefined : Number(values.seed);
    if (seed !== undefined && (!Number.isSafeInteger(seed) || seed < 0)) fail(`--seed must be a non-negative integer`);
    const quick = values.quick ?? false;
    const parts = positionals.length > 0 ? (positionals as Part[]) : quick ? QUICK : PARTS;
    return { ...values, quick, seed, parts, soakMs: soakFor.value };
  } catch (error) {
    fail(error instanceof Error ? error.message : String(error));
  }
}

const options = readArguments();

const { only } = options;
const planned = options.parts.flatMap((part) => tasksOf(part, options));
const tasks = only === undefined ? planned : planned.filter(({ name }) => name === only);
if (tasks.length === 0) fail(`run "${only}" is unknown. Runs: ${planned.map(({ name }) => name).join('; ')}`);
const minutes = Math.ceil(tasks.reduce((sum, task) => sum + task.minutes, 0));
console.log(`prove: ${tasks.length} runs, about ${minutes} min on a quiet machine`);
const results: Kept[] = [];
let wrong = 0;
for (const task of tasks) {
  const label = `${task.part}, ${task.name}`;
  console.log(`${label}: about ${task.minutes} min`);
  const began = performance.now();
  const say = (what: string) => console.log(`  ${what}`);
  const found = await task.run(say).catch((error: unknown) => ({
    report: undefined,
    wrong: [`failed to finish: ${error instanceof Error ? error.message : String(error)}`],
  }));
  results.push({
    part: task.part,
    name: task.name,
    at: new Date().toISOString(),
    tookMs: Math.round(performance.now() - began),
    load: Math.round((loadavg()[0]! / MACHINE.cores) * 10) / 10,
    machine: MACHINE,
    ...found,
  } as Kept);
  console.log(`${label}: ${found.wrong.length === 0 ? 'passed' : `FAILED: ${found.wrong.join('; ')}`}`);
  if (found.wrong.length > 0) wrong++;
}
if (options.report !== undefined) writeReport(resolve(options.report));
console.log(
  wrong === 0 ? 'prove: no acknowledged value was lost' : `prove: FAILED in ${wrong} of ${tasks.length} runs`,
);
process.exit(wrong === 0 ? 0 : 1);

/** Adds the results to the page's data and updates the page. */
function writeReport(page: string): void {
  const folder = page.replace(/\.md$/, '');
  showResults(folder, results);
  const text = readFileSync(existsSync(page) ? page : PAGE, 'utf8');
  writeFileSync(page, reportText(text, readShown(folder), folder));
}
