/**
 * Runs the tests of a file as vitest does, but each once for every change that it is to notice, in one process: to start one costs a
 * hundred times what a test does. What it finds is written line by line, so that nothing is lost when a change ends the process.
 */
import { appendFileSync, existsSync, readFileSync, rmSync } from 'node:fs';
import { type RunnerTestCase, type RunnerTestFile, TestRunner, type TestTryOptions, vi } from 'vitest';
import { mutants } from './mutant-switch.ts';

export interface Work {
  /** What is found is written there. */
  journal: string;
  /** `look`: what each test reaches. `try`: each test against the changes it is to notice. `whole`: the file as it is, with one change on. */
  mode: 'look' | 'try' | 'whole';
  /** To be tried, by test. */
  queues: Record<string, string[]>;
  /** Tests that are left out of a `whole` file: slow ones. */
  leftOut: string[];
}

export type Found =
  | { test: string; name: string; ms: number; passed: boolean; again: boolean; reached: string[]; once: string[] }
  | { loading: string[] }
  | { begun: string; test: string }
  | { tried: string; test: string; noticed: boolean; how: string }
  | { unsound: string }
  | { dirty: string }
  | { done: true };

// Before a test puts others in their place.
const { setTimeout: later, clearTimeout: notLater, performance } = globalThis;
const nowMs = performance.now.bind(performance);
/** With a change what a test waits for comes soon or never; without one it comes, however slowly processes start beside other work. */
const PATIENCE_MS = 1_500;
const UNCHANGED_PATIENCE_MS = 60_000;
const TOO_LONG_MS = 8_000;

const work = JSON.parse(readFileSync(process.env.TAGFERRY_MUTATE_WORK!, 'utf8')) as Work;
const told = `${work.journal}.reached`;

function tell(found: Found): void {
  appendFileSync(work.journal, `${JSON.stringify(found)}\n`);
}

/** Vitest says of an exit that it was unexpected, and goes on. */
function endProcess(): never {
  process.kill(process.pid, 'SIGKILL');
  throw new Error('unreachable');
}

function reachedByChildren(): string[] {
  const ids = existsSync(told) ? readFileSync(told, 'utf8').split('\n').slice(0, -1) : [];
  rmSync(told, { force: true });
  return ids;
}

let patienceMs = work.mode === 'whole' ? PATIENCE_MS : UNCHANGED_PATIENCE_MS;
for (const method of ['waitFor', 'waitUntil'] as const) {
  const wait = vi[method] as (condition: () => unknown, options?: object) => Promise<unknown>;
  Object.assign(vi, {
    [method]: (condition: () => unknown, options: number | object = {}) =>
      wait(condition, { interval: 10, ...(typeof options === 'object' && options), timeout: patienceMs }),
  });
}

interface Look {
  passed: boolean;
  reached: Set<string>;
}

export default class TryingRunner extends TestRunner {
  #queue: string[] = [];
  /** The change under trial; none: whether the test passes without one. */
  #trial: string | undefined;
  #isSound = false;
  #begunAt = 0;
  #lookedMs = 0;
  #firstMs = 0;
  #looks: Look[] = [];
  readonly #loading = new Set<string>();
  readonly #noticed = new Set<string>();

  override async onBeforeRunTask(test: RunnerTestCase): Promise<void> {
    await super.onBeforeRunTask(test);
    if (work.leftOut.includes(test.id)) test.mode = 'skip';
    if (work.mode === 'whole') return;
    this.#looks = [];
    this.#trial = undefined;
    this.#isSound = false;
    this.#queue = (work.queues[test.id] ?? []).filter((id) => !this.#noticed.has(id));
    if (work.mode === 'try' && this.#queue.length === 0) test.mode = 'skip';
    // After each that was noticed the test is run without a change; what is left over is skipped.
    test.repeats = work.mode === 'look' ? 1 : 2 * this.#queue.length + 2;
  }

  override onBeforeTryTask(test: RunnerTestCase, options: TestTryOptions): void {
    super.onBeforeTryTask(test, options);
    if (work.mode === 'whole') return;
    test.result!.errors = undefined as never;
    test.result!.attempts!.length = 0;
    if (work.mode === 'look') {
      // Not to be tried on anything: that it passes twice need not be known.
      if (this.#looks.length === 1 && this.#firstMs > TOO_LONG_MS) {
        this.#tellLook(test, this.#looks[0]!);
        test.context.skip();
      }
      this.#keepLoading();
      mutants.reached = new Set();
    } else {
      this.#trial = this.#isSound ? this.#queue.shift() : undefined;
      if (this.#isSound && this.#trial === undefined) test.context.skip();
      mutants.asked = 0;
      mutants.endsAtMs = this.#trial === undefined ? Number.POSITIVE_INFINITY : nowMs() + 1_000 + this.#mostMs;
      mutants.active = this.#trial;
      patienceMs = this.#trial === undefined ? UNCHANGED_PATIENCE_MS : Math.max(PATIENCE_MS, 2 * this.#lookedMs);
      process.env.TAGFERRY_MUTANT = this.#trial ?? '';
      if (this.#trial !== undefined) tell({ begun: this.#trial, test: test.id });
    }
    this.#begunAt = nowMs();
  }

  async runTask(test: RunnerTestCase): Promise<void> {
    const run = TestRunner.getTestFn(test);
    if (work.mode !== 'try' || this.#trial === undefined) return await run();
    let timer: NodeJS.Timeout | undefined;
    const tooLong = new Promise<never>(() => {
      timer = later(
        () => {
          tell({ tried: this.#trial!, test: test.id, noticed: true, how: 'timeout' });
          endProcess();
        },
        5_000 + 5 * this.#lookedMs,
      );
    });
    try {
      await Promise.race([run(), tooLong]);
    } finally {
      notLater(timer);
    }
  }

  get #mostMs(): number {
    return 4_000 + 5 * this.#lookedMs;
  }

  override async onAfterRetryTask(test: RunnerTestCase, options: TestTryOptions): Promise<void> {
    await super.onAfterRetryTask(test, options);
    const { state } = test.result!;
    const ms = nowMs() - this.#begunAt;
    if (state === 'skip') return;
    if (work.mode === 'look') this.#looked(test, state === 'pass', ms);
    else if (work.mode === 'try') this.#tried(test, state === 'pass', ms);
  }

  #looked(test: RunnerTestCase, passed: boolean, ms: number): void {
    const reached = new Set([...mutants.reached!, ...reachedByChildren()]);
    mutants.reached = new Set();
    this.#looks.push({ passed, reached });
    const [first, second] = this.#looks;
    if (second) this.#tellLook(test, first!, second, ms);
    else this.#firstMs = ms;
  }

  #tellLook(test: RunnerTestCase, first: Look, second: Look = first, ms = this.#firstMs): void {
    tell({
      test: test.id,
      name: test.name,
      ms: Math.round(ms),
      passed: first.passed,
      again: second.passed,
      reached: [...second.reached],
      once: [...first.reached].filter((id) => !second.reached.has(id)),
    });
  }

  #tried(test: RunnerTestCase, passed: boolean, ms: number): void {
    mutants.active = undefined;
    mutants.endsAtMs = Number.POSITIVE_INFINITY;
    process.env.TAGFERRY_MUTANT = '';
    if (this.#trial !== undefined) {
      const how = passed ? '' : String(test.result?.errors?.[0]?.message ?? '').slice(0, 120);
      tell({ tried: this.#trial, test: test.id, noticed: !passed, how });
      this.#isSound = passed;
      if (!passed) this.#noticed.add(this.#trial);
    } else if (passed) {
      this.#isSound = true;
      this.#lookedMs = Math.max(this.#lookedMs, ms);
    } else {
      // What a change has left behind fails it now; or it never passes twice.
      tell(this.#lookedMs > 0 ? { dirty: test.id } : { unsound: test.id });
      endProcess();
    }
  }

  override onAfterRunTask(test: RunnerTestCase): void {
    super.onAfterRunTask(test);
    this.#lookedMs = 0;
  }

  override onCollectStart(file: RunnerTestFile): void {
    super.onCollectStart(file);
    if (work.mode === 'look') {
      mutants.reached = new Set();
      process.env.TAGFERRY_MUTANTS_REACHED = told;
    }
  }

  override onAfterRunFiles(files: RunnerTestFile[]): void {
    super.onAfterRunFiles(files);
    if (work.mode === 'look') {
      this.#keepLoading();
      tell({ loading: [...this.#loading] });
    }
    tell({ done: true });
  }

  /** What was reached while no test ran. */
  #keepLoading(): void {
    for (const id of [...(mutants.reached ?? []), ...reachedByChildren()]) this.#loading.add(id);
  }
}
