/**
 * The search of one target, in a thread of its own: what the main thread kills when an input hangs. An input that goes through
 * a branch that no other did, or more often than any, is kept and changed further, as AFL and libFuzzer have it.
 */
import { parentPort, workerData } from 'node:worker_threads';
import type { FuzzTarget } from '../../test/fuzz/target.ts';
import { COUNTERS } from './instrumented.ts';
import { inflated, type Material, mutated, shortened } from './mutations.ts';
import { Random } from './random.ts';

export interface SearchOrder {
  /** The instrumented bundle of all targets. */
  bundle: string;
  target: string;
  counters: number;
  words: readonly string[];
  /** Inputs of earlier searches, as latin1. */
  corpus: readonly string[];
  seed: number;
  untilMs: number;
  /** What is run now, for whoever has to end this thread: a length, then bytes. */
  current: SharedArrayBuffer;
  /** Counts runs. */
  progress: SharedArrayBuffer;
}

export interface Finding {
  what: string;
  input: Uint8Array;
}

export interface SearchReport {
  runs: number;
  covered: number;
  /** The fewest inputs that together go wherever the search went, as latin1, the shortest first. */
  corpus: string[];
  finding?: Finding;
}

/** Inputs are small: what needs more is found by blowing them up. */
const MAX_BYTES = 2_048;
const INFLATED_BYTES = 128 * 1024;
/** Of the thread's own time, for so many bytes; a parser takes some milliseconds. */
const MAX_INFLATED_MS = 4_000;
const MAX_GROWTH_BYTES = 300 * 1024 * 1024;
const SHORTENINGS = 3_000;

const order = workerData as SearchOrder;
const counters = new Uint8Array(order.counters + 8);
(globalThis as Record<string, unknown>)[COUNTERS] = counters;
const words32 = new Uint32Array(counters.buffer, 0, Math.ceil(order.counters / 4));
/** For each counter, the classes of counts that were met. */
const met = new Uint8Array(order.counters + 8);

const current = new Uint8Array(order.current);
const progress = new Int32Array(order.progress);
const random = new Random(order.seed);

interface Kept {
  bytes: Buffer;
  /** What it was the first to do. */
  marks: number[];
}

const { TARGETS } = (await import(order.bundle)) as { TARGETS: readonly FuzzTarget[] };
const target = TARGETS.find(({ name }) => name === order.target)!;
const kept: Kept[] = [];
let runs = 0;
const begunMs = performance.now();
/** What blown-up inputs have taken so far. */
let inflatedMs = 0;

/** What is wrong with an input; `undefined` where it is fine. */
async function fault(bytes: Buffer): Promise<string | undefined> {
  tell(bytes);
  counters.fill(0);
  runs++;
  try {
    const done = target.run(bytes);
    if (done) await done;
    return undefined;
  } catch (error) {
    return error instanceof Error
      ? `${error.name}: ${error.message}\n${error.stack?.split('\n').slice(1, 6).join('\n')}`
      : String(error);
  }
}

function tell(bytes: Buffer): void {
  const length = Math.min(bytes.length, current.length - 4);
  new DataView(order.current).setUint32(0, length);
  current.set(bytes.subarray(0, length), 4);
  Atomics.add(progress, 0, 1);
}

/** Counter and class of everything that no input did before. */
function newMarks(): number[] {
  const marks: number[] = [];
  for (let word = 0; word < words32.length; word++) {
    if (words32[word] === 0) continue;
    for (let at = word * 4; at < word * 4 + 4; at++) {
      const count = counters[at]!;
      if (count === 0) continue;
      const bit =
        count < 4 ? 1 << (count - 1) : count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128;
      if ((met[at]! & bit) !== 0) continue;
      met[at]! |= bit;
      marks.push(at * 256 + bit);
    }
  }
  return marks;
}

async function take(bytes: Buffer): Promise<Finding | undefined> {
  const what = await fault(bytes);
  if (what !== undefined) return shortest(bytes, what);
  const marks = newMarks();
  if (marks.length === 0) return undefined;
  kept.push({ bytes, marks });
  return inflate(bytes);
}

async function inflate(bytes: Buffer): Promise<Finding | undefined> {
  // A parser that is slow by nature would do nothing else.
  if (bytes.length === 0 || inflatedMs * 3 > performance.now() - begunMs) return undefined;
  const large = inflated(bytes, random, INFLATED_BYTES);
  const before = process.memoryUsage();
  const begun = process.threadCpuUsage();
  const what = await fault(large);
  const { user, system } = process.threadCpuUsage(begun);
  const tookMs = (user + system) / 1_000;
  inflatedMs += tookMs;
  const after = process.memoryUsage();
  const grown = after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers;
  if (what !== undefined) return { what, input: large };
  if (tookMs > MAX_INFLATED_MS) return { what: `${large.length} bytes take ${Math.round(tookMs)} ms`, input: large };
  if (grown > MAX_GROWTH_BYTES)
    return { what: `${large.length} bytes take ${Math.round(grown / 1e6)} MB`, input: large };
  return undefined;
}

/** The shortest input with the same first line of a fault. */
async function shortest(bytes: Buffer, what: string): Promise<Finding> {
  const kind = (text: string) => text.replaceAll(/[^\n]*\n/g, '').slice(0, 80) + text.slice(0, 20);
  let found = { what, input: bytes };
  for (let tries = 0; tries < SHORTENINGS && found.input.length > 0; tries++) {
    const shorter = shortened(found.input, random);
    const same = await fault(shorter);
    if (same !== undefined && kind(same) === kind(what)) found = { what: same, input: shorter };
  }
  return found;
}

/** Each of the marks once more, by the shortest inputs that have it. */
function smallCorpus(): string[] {
  const done = new Set<number>();
  return kept
    .toSorted((one, other) => one.bytes.length - other.bytes.length)
    .filter(({ marks }) => {
      const isNew = marks.some((mark) => !done.has(mark));
      for (const mark of marks) done.add(mark);
      return isNew;
    })
    .map(({ bytes }) => bytes.toString('latin1'));
}

async function search(): Promise<Finding | undefined> {
  const words = [...new Set([...order.words, ...wordsOf(target.seeds)])].map((word) => Buffer.from(word));
  const material: Material = { words, other: () => random.pick(kept).bytes, maxBytes: MAX_BYTES };
  for (const input of [
    ...target.seeds.map((seed) => Buffer.from(seed)),
    ...order.corpus.map((text) => Buffer.from(text, 'latin1')),
  ]) {
    const finding = await take(input);
    if (finding) return finding;
  }
  if (kept.length === 0) kept.push({ bytes: Buffer.alloc(0), marks: [] });
  while (Date.now() < order.untilMs) {
    for (let round = 0; round < 64; round++) {
      // The younger half twice as often: what is new leads further.
      const from = random.below(3) === 0 ? 0 : kept.length >> 1;
      const { bytes } = kept[from + random.below(kept.length - from)]!;
      const finding = await take(mutated(bytes, random, material));
      if (finding) return finding;
    }
  }
  return undefined;
}

function wordsOf(seeds: FuzzTarget['seeds']): string[] {
  return seeds.flatMap((seed) => (typeof seed === 'string' ? (seed.match(/[\w.-]+|[^\w\s]+/g) ?? []) : []));
}

const finding = await search();
const covered = met.reduce((count, bits) => count + (bits === 0 ? 0 : 1), 0);
parentPort!.postMessage({
  runs,
  covered,
  corpus: smallCorpus(),
  ...(finding ? { finding } : {}),
} satisfies SearchReport);
