/**
 * Benchmark for a program that prints two million values as JSON or line protocol. Bare Node parses each line with
 * `JSON.parse` or influx-line-protocol-parser. The agent also stores the values. `node scripts/bench/sources/exec.ts
 * [--lines N] [--rounds N]`. The agent's time is measured from its first value.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
// @ts-expect-error: the package has no type declarations.
import parseLine from 'influx-line-protocol-parser';
import { machine, race, table, thousands } from '../measure.ts';
import { agentWith, awayPlatform, onDisk, until } from '../on-disk.ts';

const { values: options } = parseArgs({
  options: { lines: { type: 'string', default: '2000000' }, rounds: { type: 'string', default: '5' } },
});
const LINES = Number(options.lines);
const ROUNDS = Number(options.rounds);
const folder = mkdtempSync(join(tmpdir(), 'tagferry-bench-exec-'));
const [json, lines, program] = ['values.ndjson', 'values.lines', 'print'].map((name) => join(folder, name)) as [
  string,
  string,
  string,
];
const numbers = Array.from({ length: LINES }, (_, at) => at);
const START_MS = 1_795_219_200_000;
const ndjson = (at: number) => `{"tag":"T","key":"k${at % 10}","value":${at / 8},"timestamp":${START_MS + at}}\n`;
writeFileSync(json, numbers.map(ndjson).join(''));
writeFileSync(lines, numbers.map((at) => `T k${at % 10}=${at / 8} ${START_MS + at}000000\n`).join(''));
writeFileSync(program, '#!/bin/sh\ncat "$1"\nexec sleep 3600\n', { mode: 0o755 });

/** Returns the lines per second of Node's line reader and a parser that returns a number. */
async function bare(file: string, parse: (line: string) => number): Promise<number> {
  const startMs = performance.now();
  const child = spawn('cat', [file], { stdio: ['ignore', 'pipe', 'inherit'] });
  let sum = 0;
  for await (const line of createInterface({ input: child.stdout })) sum += parse(line);
  if (!Number.isFinite(sum)) throw new Error('no line contains a number');
  if (child.exitCode === null) await once(child, 'exit');
  return LINES / ((performance.now() - startMs) / 1_000);
}

async function own(file: string, format: 'ndjson' | 'lines'): Promise<number> {
  const values = Array.from({ length: 10 }, (_, at) => `      k${at}: {}\n`).join('');
  const agent = agentWith(
    sandbox,
    `sources: { probe: { exec: [${program}, ${file}], format: ${format} } }\ntags:\n  T:\n    asset: 881\n    values:\n${values}`,
  );
  await agent.start();
  await until(async () => (await onDisk(agent)) > 0, 2);
  const [startMs, before] = [performance.now(), await onDisk(agent)];
  await until(async () => (await onDisk(agent)) >= LINES, 100);
  const rate = (LINES - before) / ((performance.now() - startMs) / 1_000);
  await agent.dispose();
  return rate;
}

const sandbox = await awayPlatform();
const parseNdjson = (line: string) => (JSON.parse(line) as { value: number }).value;
const parseLineProtocol = (line: string) => (parseLine as (line: string) => { timestamp: number })(line).timestamp;
const pairs = [
  [
    { name: 'ndjson: bare Node, JSON.parse', measure: () => bare(json, parseNdjson) },
    { name: 'ndjson: tagferry, on disk', measure: () => own(json, 'ndjson') },
  ],
  [
    { name: 'lines: bare Node, influx-line-protocol-parser', measure: () => bare(lines, parseLineProtocol) },
    { name: 'lines: tagferry, on disk', measure: () => own(lines, 'lines') },
  ],
];
const rows: string[][] = [];
for (const pair of pairs) rows.push(...(await race(pair, ROUNDS, thousands)));
await sandbox.stop();
rmSync(folder, { recursive: true });
console.log(`${machine()}\nA program that prints ${LINES.toLocaleString('en')} values; medians of ${ROUNDS} rounds\n`);
console.log(table(['', 'thousand values/s', 'ratio'], rows));
