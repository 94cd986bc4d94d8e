/**
 * Races the agent, optionally a second build of it, syslog-ng and rsyslog: the same values arrive while the destination
 * is unavailable and are delivered when it becomes available. `scripts/bench/peers [--base COMMIT] [--json FILE]
 * [--values N] [--rounds N]`.
 *
 * The contenders take turns, and the order rotates every round. The agent acknowledges synced values. The peers
 * acknowledge nothing and never sync: a value counts as accepted when it is in the disk buffer or queue. The destination
 * counts distinct values; a missing value fails the run.
 */
import { fork } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { freePort } from '../../src/base/port-claim.ts';
import { BenchAgent, buildAgents, CACHE } from './bench-agent.ts';
import { bytesBelow, machine, median, table, treeUsage } from './measure.ts';
import { type Contender, type Running, rsyslog, syslogNg, tagferry } from './peers-contenders.ts';
import type { Arrived } from './peers-sink.ts';

const { values: options } = parseArgs({
  options: {
    base: { type: 'string' },
    json: { type: 'string' },
    /** Values per measurement with 1 and with 8 connections. Half as many warm up the contender. */
    values: { type: 'string', default: '1200000' },
    rounds: { type: 'string', default: '3' },
  },
});
const VALUES = Math.min(Number(options.values), 2_000_000);
const ROUNDS = Math.min(Number(options.rounds), 25);
/** A turn that takes longer fails the run. */
const TURN_MS = 300_000;
const FOLDER = join(CACHE, `run-${process.pid}`);

const SERIES = 500;
const START_MS = Date.UTC(2026, 10, 21);

/** 500 interleaved series of slowly varying decimals, each value as one JSON object, the same in every turn. */
class Plant {
  /** Number of generated values. */
  count = 0;
  readonly #level = new Int32Array(SERIES).fill(2000);
  #state = 1;

  /** xorshift32. */
  #random(): number {
    this.#state ^= this.#state << 13;
    this.#state ^= this.#state >>> 17;
    this.#state ^= this.#state << 5;
    return (this.#state >>> 0) / 2 ** 32;
  }

  next(count: number): string[] {
    return Array.from({ length: count }, () => {
      const series = this.count % SERIES;
      const timestamp = new Date(START_MS + Math.floor(this.count / SERIES) * 1000).toISOString();
      this.count++;
      this.#level[series]! += Math.round((this.#random() - 0.5) * 20);
      const [asset, key] = [1 + Math.floor(series / 10), `k${series % 10}`];
      return JSON.stringify({ asset, key, unit: 12, value: this.#level[series]! / 100, timestamp });
    });
  }
}

/** Waits until the contender has written nothing for `restMs`. */
async function rest({ program, restMs }: Running): Promise<void> {
  let written = -1;
  let sinceMs = 0;
  const isAtRest = () => {
    const { writtenBytes } = treeUsage(program.pid);
    if (writtenBytes !== written) sinceMs = performance.now();
    written = writtenBytes;
    return performance.now() - sinceMs >= restMs;
  };
  await program.until('writes end', isAtRest, 200);
}

/** Makes the destination available and waits for all values. Returns the time from the first to the last, in seconds. */
async function drain(kind: Contender['destination'], port: number, { program }: Running, expected: number) {
  const sink = fork(join(import.meta.dirname, 'peers-sink.ts'), [kind, String(port)]);
  let arrived: Arrived | undefined;
  sink.on('message', (message: Arrived) => {
    arrived = message;
  });
  try {
    await program.until('the destination listens', () => arrived !== undefined);
    // The agent retries immediately after a reload; the peers retry every second.
    if (program instanceof BenchAgent) program.child.kill('SIGHUP');
    await program.until(`${expected} values arrive`, () => arrived!.values >= expected);
    const { seconds } = arrived!;
    // Duplicates would hide missing values.
    const isComplete = () => {
      sink.send('distinct');
      return arrived!.distinct === expected;
    };
    await program.until(`${expected} distinct values arrive`, isComplete, 1_000);
    return seconds;
  } finally {
    sink.kill('SIGKILL');
  }
}

const MEASURES = [
  ['in1', 'ingest, values/s, 1 connection', 0],
  ['in8', 'ingest, values/s, 8 connections', 0],
  ['out', 'drain, values/s', 0],
  ['cpuPerMillion', 'ingest, CPU s per million', 2],
  ['stored', 'B stored per value', 2],
  ['writtenIn', 'ingest, B written per value', 2],
  ['peakMB', 'peak resident MB', 0],
] as const;
type Measure = (typeof MEASURES)[number][0];
type Figures = Record<Measure, number>;

async function rateOf(work: () => Promise<void>): Promise<number> {
  const startMs = performance.now();
  await work();
  return VALUES / ((performance.now() - startMs) / 1000);
}

/** Runs a contender with an empty buffer. */
async function turn({ name, destination, start }: Contender): Promise<Figures> {
  const watchdog = setTimeout(() => {
    console.error(`${name}: a turn takes longer than ${TURN_MS / 1000} s`);
    process.exit(1);
  }, TURN_MS);
  const folder = join(FOLDER, name);
  mkdirSync(folder, { recursive: true });
  const destinationPort = await freePort();
  const running = await start(folder, destinationPort);
  const { program, buffer, feed } = running;
  const plant = new Plant();
  const emptyBytes = bytesBelow(buffer);
  await feed(plant.next(Math.ceil(VALUES / 2)), 8)();
  await rest(running);
  const before = treeUsage(program.pid);
  const in1 = await rateOf(feed(plant.next(VALUES), 1));
  const in8 = await rateOf(feed(plant.next(VALUES), 8));
  await rest(running);
  const after = treeUsage(program.pid);
  const stored = (bytesBelow(buffer) - emptyBytes) / plant.count;
  const out = plant.count / (await drain(destination, destinationPort, running, plant.count));
  const { peakMB } = treeUsage(program.pid);
  await program.end();
  rmSync(folder, { recursive: true, force: true });
  clearTimeout(watchdog);
  const cpuPerMillion = ((after.cpuSeconds - before.cpuSeconds) * 1e6) / (2 * VALUES);
  const writtenIn = (after.writtenBytes - before.writtenBytes) / (2 * VALUES);
  return { in1, in8, out, cpuPerMillion, stored, writtenIn, peakMB };
}

type Results = Map<string, Figures[]>;

/** Returns the median ratio of rounds, so that a temporary slowdown of the machine affects both sides. */
function ratio(figures: readonly Figures[], other: readonly Figures[] | undefined, measure: Measure): string {
  if (other === undefined) return '';
  return median(figures.map((round, i) => round[measure] / other[i]![measure])).toFixed(2);
}

function report(results: Results): string {
  const rows = MEASURES.flatMap(([measure, label, digits]) =>
    [...results].map(([name, figures]) => {
      const all = figures.map((round) => round[measure]);
      const shown = [median(all), Math.min(...all), Math.max(...all)].map((figure) =>
        figure.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits }),
      );
      const ratios = ['syslog-ng', 'base'].map((other) => ratio(figures, results.get(other), measure));
      return [label, name, ...shown, ...ratios];
    }),
  );
  return table(['', '', 'median', 'min', 'max', '× syslog-ng', '× base'], rows);
}

/** Returns the medians. */
function json(results: Results): string {
  const contenders = [...results].map(([name, figures]) => {
    const medians = MEASURES.map(([measure]) => [measure, median(figures.map((round) => round[measure]))] as const);
    const { in1, in8, ...others } = Object.fromEntries(medians) as Figures;
    return { name, in: { 1: in1, 8: in8 }, ...others };
  });
  return `${JSON.stringify({ contenders }, null, 2)}\n`;
}

process.once('exit', () => rmSync(FOLDER, { recursive: true, force: true }));
const contenders = [...buildAgents(options.base).map(tagferry), syslogNg, rsyslog];
const results: Results = new Map(contenders.map(({ name }) => [name, []]));
console.log(`${VALUES.toLocaleString('en')} values per measurement, destination unavailable, then available`);
console.log(`rounds: ${ROUNDS}; ${machine()}; load ${loadavg()[0]!.toFixed(1)}\n`);
for (let round = 0; round < ROUNDS; round++) {
  for (const i of contenders.keys()) {
    const contender = contenders[(round + i) % contenders.length]!;
    results.get(contender.name)!.push(await turn(contender));
  }
}
console.log(report(results));
if (options.json !== undefined) writeFileSync(options.json, json(results));
