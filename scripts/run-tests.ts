/**
 * `run-tests.ts [LAYER]... [FILE]...` runs layers of tests (static, unit, e2e, host, old, prove; `old/ROOM` for a room)
 * or single files, and prints the result of all of them in its last line. `static` and `unit` run at the same time. A
 * file of e2e or host that fails is run once more, alone; if it passes, it is listed as retried. TEST_LEFT_OUT contains
 * what `scripts/test` could not install, one line each.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { delimiter, join, relative } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const BIN = join(ROOT, 'node_modules/.bin');
const CACHE = join(ROOT, 'node_modules/.cache');
const CHECKS = [
  ['tsc', '--noEmit', '-p', 'tsconfig.json'],
  ['tsc', '--noEmit', '-p', 'src/page/tsconfig.json'],
  ['biome', 'check', '.'],
  ['knip', '--no-progress', '--no-config-hints'],
  ['knip', '--no-progress', '--no-config-hints', '--production'],
];
/** Tests that start processes may fail on a machine under load. */
const RETRIED = /^test\/(?:e2e|host)\//;

interface Failure {
  /** Failed tests of the file. */
  count: number;
  /** Name and message of its first failed test. */
  text: string;
}

interface Result {
  passed: number;
  /** By file, or by command. */
  failures: Map<string, Failure>;
}

interface Report {
  testResults: {
    name: string;
    status: string;
    message: string;
    assertionResults: { status: string; fullName: string; failureMessages: string[] }[];
  }[];
}

const environment = {
  ...process.env,
  // Brokers are in the system folders, which the PATH of a user does not contain.
  PATH: [BIN, process.env.PATH, '/usr/sbin', '/sbin'].join(delimiter),
  NODE_COMPILE_CACHE: join(CACHE, 'compiled'),
};

/** Runs a program and resolves with its status. With `isQuiet`, its output is printed only if it fails. */
function run([program, ...args]: readonly string[], isQuiet = false): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(join(BIN, program!), args, {
      cwd: ROOT,
      env: environment,
      stdio: ['ignore', isQuiet ? 'pipe' : 'inherit', isQuiet ? 'pipe' : 'inherit'],
    });
    const output: Buffer[] = [];
    child.stdout?.on('data', (chunk: Buffer) => output.push(chunk));
    child.stderr?.on('data', (chunk: Buffer) => output.push(chunk));
    child.once('error', reject);
    child.once('close', (code) => {
      if (code !== 0) process.stdout.write(Buffer.concat(output));
      resolve(code ?? 1);
    });
  });
}

async function check(): Promise<Result> {
  const result: Result = { passed: 0, failures: new Map() };
  for (const command of CHECKS) {
    const began = performance.now();
    const isOk = (await run(command, true)) === 0;
    console.log(`${isOk ? 'passed' : 'FAILED'}: ${command.join(' ')} (${seconds(began)})`);
    if (isOk) result.passed++;
    else result.failures.set(command.join(' '), { count: 1, text: 'see its output above' });
  }
  return result;
}

/** Runs vitest. A run without any test counts as a failure. */
async function vitest(args: readonly string[]): Promise<Result> {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, 'report-'));
  try {
    const file = join(folder, 'report.json');
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${file}`];
    const status = await run(['vitest', 'run', ...reporters, ...args]);
    const result: Result = { passed: 0, failures: new Map() };
    for (const { name, message, assertionResults, status: state } of readReport(file)?.testResults ?? []) {
      const path = relative(ROOT, name);
      const failed = assertionResults.filter((one) => one.status === 'failed');
      result.passed += assertionResults.filter((one) => one.status === 'passed').length;
      const [first] = failed;
      if (first) {
        result.failures.set(path, {
          count: failed.length,
          text: `${first.fullName}: ${first.failureMessages[0] ?? ''}`,
        });
      } else if (state === 'failed') result.failures.set(path, { count: 1, text: message });
    }
    // A worker that crashed is not in the report.
    if ((status !== 0 || result.passed === 0) && result.failures.size === 0) {
      const text = `vitest exited with ${status}, ${result.passed} tests passed and none failed`;
      result.failures.set(`vitest ${args.join(' ')}`, { count: 1, text });
    }
    return result;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function readReport(file: string): Report | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Report;
  } catch {
    return undefined;
  }
}

const seconds = (began: number) => `${Math.round((performance.now() - began) / 1000)} s`;
const firstLines = (text: string) => text.split('\n').slice(0, 6).join('\n    ');

const words = process.argv.slice(2);
const layers = words.filter((word) => !word.startsWith('test/'));
const files = words.filter((word) => word.startsWith('test/'));
const failures = new Map<string, Failure>();
const retried = new Map<string, Failure>();
const durations: string[] = [];
let passed = 0;

/** Adds the result of a run, after repeating files that may fail on a machine under load. */
async function add(name: string, running: Promise<Result>): Promise<void> {
  const began = performance.now();
  const result = await running;
  passed += result.passed;
  for (const [file, failure] of result.failures) {
    const again = RETRIED.test(file) ? await vitest([file, '--maxWorkers=1']) : undefined;
    if (again?.failures.size === 0) {
      retried.set(file, failure);
      passed += failure.count;
    } else failures.set(file, failure);
  }
  durations.push(`${name} ${seconds(began)}`);
}

const isStatic = layers.includes('static');
const projects = [...(isStatic ? ['house'] : []), ...(layers.includes('unit') ? ['unit/*'] : [])];
await Promise.all([
  isStatic ? add('static', check()) : undefined,
  projects.length > 0 ? add(projects.at(-1)!, vitest(projects.map((project) => `--project=${project}`))) : undefined,
]);
for (const layer of layers.filter((one) => one !== 'static' && one !== 'unit')) {
  const [project, room] = layer.split('/');
  await add(layer, vitest([`--project=${project}`, ...(room ? [`test/${layer}/`] : [])]));
}
const byLayer = Map.groupBy(files, (file) => file.split('/')[1]!);
for (const [layer, ofLayer] of byLayer) await add(layer, vitest(ofLayer));

console.log(`\nDurations: ${durations.join(', ')}`);
const leftOut = (process.env.TEST_LEFT_OUT ?? '').split('\n').filter(Boolean);
if (leftOut.length > 0) console.log(`Left out:\n${leftOut.map((line) => `  ${line}`).join('\n')}`);
for (const [file, { text }] of retried) console.log(`Retried: ${file} passed alone after:\n    ${firstLines(text)}`);
for (const [file, { text }] of failures) console.log(`Failed: ${file}\n    ${firstLines(text)}`);
const failed = [...failures.values()].reduce((sum, { count }) => sum + count, 0);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
