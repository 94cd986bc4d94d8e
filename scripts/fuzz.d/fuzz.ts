/** `scripts/fuzz`: searches for inputs that a parser does not bear, target after target. */

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { rolldown } from 'rolldown';
import { TARGETS } from '../../test/fuzz/targets.ts';
import { instrument } from './instrumented.ts';
import type { Finding, SearchOrder, SearchReport } from './search.ts';

const ROOT = join(import.meta.dirname, '../..');
const CORPUS = join(ROOT, 'test/fuzz/corpus');
/** In a folder of the packages, from where the bundle finds them. */
const BUILD = join(ROOT, 'node_modules/.cache/tagferry-fuzz');
const FOUND = join(ROOT, 'fuzz-findings');
/** No input takes so long by itself, on no machine. */
const HANG_MS = 60_000;
const HEAP_MIB = 512;
/** Of a target in the tree. */
const MAX_CORPUS_INPUTS = 60;
const MAX_CORPUS_BYTES = 12 * 1024;

const HELP = `usage: scripts/fuzz [--minutes N] [--seed N] [--save] [target…]
Searches N minutes (1 unless told) in each target; exit status 1 where something was found (in ${relative(ROOT, FOUND)}/).
--save keeps what the search went through as test/fuzz/corpus/<target>.jsonl, which the tests run.
Targets: ${TARGETS.map(({ name }) => name).join(', ')}`;

interface Bundle {
  path: string;
  counters: number;
  /** By file. */
  words: Map<string, string[]>;
}

async function built(): Promise<Bundle> {
  let counters = 0;
  const words = new Map<string, string[]>();
  const bundle = await rolldown({
    input: join(ROOT, 'test/fuzz/targets.ts'),
    platform: 'node',
    external: /^[^./]/,
    plugins: [
      {
        name: 'counters',
        transform(code: string, id: string) {
          if (!id.startsWith(join(ROOT, 'src/'))) return undefined;
          const found = instrument(code, counters);
          counters = found.counters;
          words.set(id, found.words);
          return { code: found.code, map: null };
        },
      },
    ],
  });
  rmSync(BUILD, { recursive: true, force: true });
  const path = join(BUILD, 'targets.mjs');
  await bundle.write({ file: path, format: 'esm', codeSplitting: false });
  await bundle.close();
  return { path, counters, words };
}

/** A line of the corpus is an input as JSON text, a character a byte. */
function corpusOf(name: string): string[] {
  const path = join(CORPUS, `${name}.jsonl`);
  if (!existsSync(path)) return [];
  return readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as string);
}

function save(name: string, corpus: readonly string[]): void {
  let bytes = 0;
  const lines = corpus.slice(0, MAX_CORPUS_INPUTS).map((input) => JSON.stringify(input));
  const small = lines.filter((line) => {
    bytes += line.length;
    return bytes <= MAX_CORPUS_BYTES;
  });
  writeFileSync(join(CORPUS, `${name}.jsonl`), `${small.join('\n')}\n`);
}

/** Words of all of the code are too many: those of short files about one thing are what inputs are made of. */
function searched(bundle: Bundle, name: string, seed: number, minutes: number): Promise<SearchReport> {
  const current = new SharedArrayBuffer(256 * 1024);
  const progress = new SharedArrayBuffer(4);
  const workerData: SearchOrder = {
    bundle: bundle.path,
    target: name,
    counters: bundle.counters,
    words: [...bundle.words.values()].flat().filter((word) => word.length <= 24 && !word.includes(' ')),
    corpus: corpusOf(name),
    seed,
    untilMs: Date.now() + minutes * 60_000,
    current,
    progress,
  };
  return new Promise((resolve) => {
    const worker = new Worker(new URL('search.ts', import.meta.url), {
      workerData,
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
    });
    let [runs, sinceMs] = [0, Date.now()];
    const end = (report: SearchReport) => {
      clearInterval(watch);
      void worker.terminate();
      resolve(report);
    };
    const failed = (what: string) => end({ runs, covered: 0, corpus: [], finding: { what, input: inputIn(current) } });
    const watch = setInterval(() => {
      const now = Atomics.load(new Int32Array(progress), 0);
      if (now !== runs) [runs, sinceMs] = [now, Date.now()];
      else if (Date.now() - sinceMs > HANG_MS) failed(`hangs: one input takes more than ${HANG_MS / 1_000} s`);
    }, 500);
    worker.on('message', (report: SearchReport) => end(report));
    worker.on('error', (error) => failed(String(error)));
  });
}

function inputIn(current: SharedArrayBuffer): Uint8Array {
  return new Uint8Array(current, 4, new DataView(current).getUint32(0)).slice();
}

function keep(name: string, { what, input }: Finding): string {
  mkdirSync(FOUND, { recursive: true });
  const path = join(FOUND, `${name}-${createHash('sha256').update(input).digest('hex').slice(0, 12)}`);
  writeFileSync(path, input);
  writeFileSync(`${path}.txt`, `${what}\n\n${JSON.stringify(Buffer.from(input).toString('latin1')).slice(0, 4_000)}\n`);
  return relative(process.cwd(), path);
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    minutes: { type: 'string', default: '1' },
    seed: { type: 'string', default: String(Date.now() % 1e6) },
    save: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
const unknown = positionals.filter((name) => !TARGETS.some((target) => target.name === name));
if (values.help || unknown.length > 0) {
  console.error(unknown.length > 0 ? `fuzz: no target ${unknown.join(', ')}\n${HELP}` : HELP);
  process.exit(unknown.length > 0 ? 2 : 0);
}
const bundle = await built();
const names = positionals.length > 0 ? positionals : TARGETS.map(({ name }) => name);
console.log(`fuzz: ${names.length} targets, ${values.minutes} min each, seed ${values.seed}`);
for (const name of names) {
  const report = await searched(bundle, name, Number(values.seed), Number(values.minutes));
  console.log(`${name}: ${report.runs} inputs, ${report.covered} branches, corpus of ${report.corpus.length}`);
  if (report.finding) {
    console.log(`${name}: FOUND ${report.finding.what}\n  kept in ${keep(name, report.finding)}`);
    process.exitCode = 1;
  } else if (values.save) save(name, report.corpus);
}
