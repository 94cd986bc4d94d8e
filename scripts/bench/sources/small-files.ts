/**
 * Many small files: 200 files with one row, as loggers write them in a minute. Measures the time until all of them are
 * stored and moved, and the processor time of the agent and its folder process, with an empty and a large `done/`.
 * `node scripts/bench/sources/small-files.ts [--files N] [--rounds N] [--done N]`.
 */
import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { cpuSeconds, family, machine, median, table } from '../measure.ts';
import { agentWith, awayPlatform, until } from '../on-disk.ts';

const { values: options } = parseArgs({
  options: {
    files: { type: 'string', default: '200' },
    rounds: { type: 'string', default: '5' },
    done: { type: 'string', default: '50000' },
  },
});
const FILES = Number(options.files);
const ROUNDS = Number(options.rounds);
const START_MS = 1_795_219_200_000;

async function measure(doneFiles: number): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-bench-files-'));
  const inbox = join(folder, 'in');
  mkdirSync(join(inbox, 'done'), { recursive: true });
  for (let n = 0; n < doneFiles; n++) {
    writeFileSync(join(inbox, 'done', `old-${n}.csv`), 'time,v\n');
    writeFileSync(join(inbox, 'done', `old-${n}.csv.report.txt`), '');
  }
  const sandbox = await awayPlatform();
  const agent = agentWith(
    sandbox,
    `sources: { drop: { csv: ${inbox}, settle: 1s, time_column: time } }\n` +
      'tags: { T: { asset: 881, values: { v: { from: drop } } } }\n',
  );
  await agent.start();
  const seconds: number[] = [];
  const cpu: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const pids = family(agent.pid);
    const before = cpuSeconds(pids);
    const startMs = performance.now();
    for (let n = 0; n < FILES; n++) {
      const name = `${round}-${n}.csv`;
      writeFileSync(join(folder, name), `time,v\n${new Date(START_MS + round * 60_000 + n).toISOString()},${n}\n`);
      renameSync(join(folder, name), join(inbox, name));
    }
    await until(() => readdirSync(inbox).length === 1);
    seconds.push((performance.now() - startMs) / 1_000);
    cpu.push(cpuSeconds(pids) - before);
  }
  const lines = agent.logged('csv.taken').length;
  await agent.dispose();
  await sandbox.stop();
  rmSync(folder, { recursive: true });
  return [String(doneFiles), median(seconds).toFixed(2), median(cpu).toFixed(2), String(lines)];
}

const rows = [await measure(0), await measure(Number(options.done))];
console.log(`${machine()}\n${FILES} files of one row; medians of ${ROUNDS} rounds, settle 1s\n`);
console.log(table(['files in done/', 'seconds until moved', 'CPU seconds', 'log lines'], rows));
