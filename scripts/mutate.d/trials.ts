/** The trials of a room: which change each of its test files notices. What was found is kept by file, and found again from there. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type Mutant, ROOT } from './mutants.ts';
import type { Found, Work } from './trying-runner.ts';

/** A process of which nothing more is heard for this long hangs. */
const SILENT_MS = { look: 300_000, try: 75_000, whole: 120_000 };
/** A test longer than this is left out where whole files are run. */
const SLOW_MS = 2_000;
/** A file is run whole for a change where its tests take no longer than this. */
const WHOLE_MS = 4_000;
/** Tests in turns: what a short one has noticed no longer one needs to. */
const TURNS_MS = [30, 300, SLOW_MS, Number.POSITIVE_INFINITY];
/** Of tests that differ by a number alone, a seed mostly, so many are tried, unless they are as short as this. */
const OF_A_KIND = 2;
const SHORT_MS = 100;
/** Of the tests that reach a change the shortest, as many as take so long together: what then is not noticed counts as missed. */
const TIME_EACH_MS = 8_000;

export interface Outcome {
  mutant: Mutant;
  noticedBy: string | undefined;
  /** Whether any test reaches it. */
  isReached: boolean;
}

interface Look {
  file: string;
  tests: Extract<Found, { reached: string[] }>[];
  loading: string[];
}

export class Trials {
  readonly #kept: string;
  readonly #tree: string;
  readonly #files: string[];
  readonly #shared = new Set<string>();
  readonly #noticedBy = new Map<string, string>();
  readonly #log: (line: string) => void;

  /** `kept`: the folder of what was found of these changes. */
  constructor(tree: string, kept: string, tests: readonly string[], log: (line: string) => void) {
    this.#tree = tree;
    this.#kept = kept;
    this.#files = tests.flatMap((pattern) => globSync(pattern, { cwd: ROOT })).toSorted();
    this.#log = log;
    mkdirSync(kept, { recursive: true });
  }

  async run(mutants: readonly Mutant[]): Promise<Outcome[]> {
    const looks: Look[] = [];
    for (const file of this.#files) looks.push(await this.#look(file));
    const length = ({ tests }: Look) => tests.reduce((sum, { ms }) => sum + ms, 0);
    looks.sort((a, b) => length(a) - length(b));
    const reached = new Set(
      looks.flatMap(({ tests, loading }) => [...loading, ...tests.flatMap((one) => [...one.reached, ...one.once])]),
    );
    this.#share(looks, mutants);
    for (const [turn, mostMs] of TURNS_MS.entries()) {
      const leastMs = TURNS_MS[turn - 1] ?? -1;
      for (const look of looks) await this.#try(look, (ms) => ms > leastMs && ms <= mostMs);
    }
    for (const { id } of mutants) await this.#tryWhole(id, looks);
    return mutants.map((mutant) => ({
      mutant,
      noticedBy: this.#noticedBy.get(mutant.id),
      isReached: reached.has(mutant.id),
    }));
  }

  async #look(file: string): Promise<Look> {
    const journal = this.#journal(file, 'look');
    if (!existsSync(journal)) {
      const under = `${journal}.new`;
      writeFileSync(under, '');
      await this.#spawn([file], { journal: under, mode: 'look', queues: {}, leftOut: [] });
      if (!read(under).some((found) => 'done' in found)) throw new Error(`${file} does not run in the changed tree`);
      renameSync(under, journal);
    }
    const found = read(journal);
    const tests = found.filter((one) => 'reached' in one);
    const failing = tests.filter(({ passed }) => !passed);
    this.#log(`${file}: ${tests.length} tests, ${tests.reduce((sum, { ms }) => sum + ms, 0)} ms`);
    for (const { name } of failing) this.#log(`  fails without a change: ${name}`);
    return { file, tests, loading: found.flatMap((one) => ('loading' in one ? one.loading : [])) };
  }

  /** Which tests each change is tried on. */
  #share(looks: readonly Look[], mutants: readonly Mutant[]): void {
    const tests = looks.flatMap((look) => look.tests.filter(({ passed, again }) => passed && again));
    tests.sort((a, b) => a.ms - b.ms);
    const reached = new Map(tests.map((test) => [test, new Set(test.reached)]));
    for (const { id } of mutants) {
      let left = TIME_EACH_MS;
      const kinds = new Map<string, number>();
      for (const test of tests) {
        if (!reached.get(test)!.has(id)) continue;
        const kind = test.name.replaceAll(/\d+/g, '');
        const before = kinds.get(kind) ?? 0;
        if (test.ms > SHORT_MS && before === OF_A_KIND) continue;
        kinds.set(kind, before + 1);
        left -= test.ms;
        if (left < 0) break;
        this.#shared.add(`${test.test} ${id}`);
      }
    }
  }

  async #try({ file, tests }: Look, isTurn: (ms: number) => boolean): Promise<void> {
    const journal = this.#journal(file, 'try');
    for (let stuck = 0; stuck < 2; ) {
      const found = read(journal);
      const tried = new Set(found.flatMap((one) => ('tried' in one ? [`${one.test} ${one.tried}`] : [])));
      for (const one of found)
        if ('tried' in one && one.noticed) this.#noticedBy.set(one.tried, `${file}: ${nameOf(tests, one.test)}`);
      const unsound = new Set(found.flatMap((one) => ('unsound' in one ? [one.unsound] : [])));
      const queues = Object.fromEntries(
        tests
          .filter((test) => test.passed && test.again && isTurn(test.ms) && !unsound.has(test.test))
          .map(({ test, reached }) => [
            test,
            reached.filter((id) => {
              const trial = `${test} ${id}`;
              return this.#shared.has(trial) && !tried.has(trial) && !this.#noticedBy.has(id);
            }),
          ])
          .filter(([, ids]) => ids!.length > 0),
      ) as Record<string, string[]>;
      if (Object.keys(queues).length === 0) return;
      this.#log(`${file}: ${Object.values(queues).reduce((sum, ids) => sum + ids.length, 0)} trials`);
      await this.#spawn([file], { journal, mode: 'try', queues, leftOut: [] });
      const now = read(journal);
      const last = now.findLast((one) => 'begun' in one || 'tried' in one);
      // Ended in the middle of a trial, by the change.
      if (last && 'begun' in last) tell(journal, { tried: last.begun, test: last.test, noticed: true, how: 'died' });
      stuck = now.length > found.length ? 0 : stuck + 1;
    }
  }

  /** What a file reaches while it is loaded or before its first test, each time in a process of its own. */
  async #tryWhole(id: string, looks: readonly Look[]): Promise<void> {
    if (this.#noticedBy.has(id)) return;
    const isShort = ({ tests }: Look) => tests.reduce((sum, { ms }) => sum + (ms > SLOW_MS ? 0 : ms), 0) <= WHOLE_MS;
    const at = looks
      .filter(isShort)
      .filter(
        ({ tests, loading }) =>
          loading.includes(id) ||
          tests.some(({ reached, once, again }) => once.includes(id) || (!again && reached.includes(id))),
      );
    for (const { file, tests } of at) {
      const journal = this.#journal(file, 'whole');
      let kept = read(journal).find((one) => 'tried' in one && one.tried === id);
      if (!kept) {
        const leftOut = tests.filter(({ ms, passed }) => ms > SLOW_MS || !passed).map(({ test }) => test);
        const work: Work = { journal: `${journal}.ends`, mode: 'whole', queues: {}, leftOut };
        const code = await this.#spawn([file, '--bail=1'], work, id);
        kept = { tried: id, test: file, noticed: code !== 0, how: `ended with ${code}` };
        tell(journal, kept);
      }
      if ('noticed' in kept && kept.noticed) {
        this.#noticedBy.set(id, file);
        return;
      }
    }
  }

  /** By what the outcome depends on: the file, and what stands beside it. */
  #journal(file: string, what: string): string {
    const sum = createHash('sha256');
    const beside = globSync('*.ts', { cwd: join(ROOT, dirname(file)) }).filter((name) => !name.endsWith('.test.ts'));
    for (const name of [basename(file), ...beside.toSorted()])
      sum.update(readFileSync(join(ROOT, dirname(file), name)));
    return join(this.#kept, `${file.replaceAll('/', '-')}-${sum.digest('hex').slice(0, 12)}.${what}`);
  }

  #spawn(args: string[], work: Work, active = ''): Promise<number | string> {
    const file = join(this.#kept, 'work.json');
    writeFileSync(file, JSON.stringify(work));
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
    const child = spawn(process.execPath, [vitest, 'run', '--config', 'scripts/mutate.d/vitest.config.ts', ...args], {
      cwd: this.#tree,
      env: { ...process.env, TAGFERRY_MUTATE_WORK: file, TAGFERRY_MUTANT: active },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    const said: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data: Buffer) => said.push(data));
    const begun = Date.now();
    const watch = setInterval(() => {
      const heard = Math.max(begun, existsSync(work.journal) ? statSync(work.journal).mtimeMs : 0);
      if (Date.now() - heard > SILENT_MS[work.mode]) process.kill(-child.pid!, 'SIGKILL');
    }, 1_000);
    return new Promise((resolve) => {
      child.on('close', (code, signal) => {
        clearInterval(watch);
        writeFileSync(join(this.#kept, 'last-output.txt'), Buffer.concat(said));
        resolve(code ?? signal!);
      });
    });
  }
}

const tell = (journal: string, found: Found) => appendFileSync(journal, `${JSON.stringify(found)}\n`);

function read(journal: string): Found[] {
  if (!existsSync(journal)) return [];
  const lines = readFileSync(journal, 'utf8').split('\n');
  // A process that is ended leaves half a line at most.
  return lines.flatMap((line) => (line.endsWith('}') ? [JSON.parse(line) as Found] : []));
}

const nameOf = (tests: Look['tests'], id: string) => tests.find(({ test }) => test === id)?.name ?? id;
