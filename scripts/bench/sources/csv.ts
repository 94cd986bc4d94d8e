/**
 * CSV benchmark: a file of 300,000 rows with ten columns and a local time. Python's csv module parses rows, times and
 * numbers but stores nothing. The agent stores the values and moves the file. `node scripts/bench/sources/csv.ts
 * [--rows N] [--rounds N]`. The agent's time is measured from its first value.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { machine, race, table, thousands } from '../measure.ts';
import { agentWith, awayPlatform, onDisk, until } from '../on-disk.ts';

const { values: options } = parseArgs({
  options: { rows: { type: 'string', default: '300000' }, rounds: { type: 'string', default: '5' } },
});
const ROWS = Number(options.rows);
const ROUNDS = Number(options.rounds);
const COLUMNS = Array.from({ length: 10 }, (_, at) => `c${at}`);
const START_MS = 1_795_219_200_000;

const PYTHON = `
import csv, sys, time
from datetime import datetime
from zoneinfo import ZoneInfo
zone = ZoneInfo('Europe/Berlin')
start = time.perf_counter()
total = 0.0
with open(sys.argv[1], newline='', encoding='utf-8') as file:
    rows = csv.reader(file, delimiter=';')
    next(rows)
    for row in rows:
        at = datetime.strptime(row[0], '%d.%m.%Y %H:%M:%S').replace(tzinfo=zone).timestamp()
        for cell in row[1:]:
            total += float(cell.replace(',', '.')) + at
print(time.perf_counter() - start)
`;

const folder = mkdtempSync(join(tmpdir(), 'tagferry-bench-csv-'));
const inbox = join(folder, 'in');
mkdirSync(inbox);

function writeRows(file: string): void {
  const lines = [['time', ...COLUMNS].join(';')];
  for (let row = 0; row < ROWS; row++) {
    const at = new Date(START_MS + row * 1_000).toISOString();
    const time = `${at.slice(8, 10)}.${at.slice(5, 7)}.${at.slice(0, 4)} ${at.slice(11, 19)}`;
    lines.push([time, ...COLUMNS.map((_, column) => ((row * 7 + column) / 8).toFixed(3).replace('.', ','))].join(';'));
  }
  writeFileSync(file, `${lines.join('\n')}\n`);
}

const source = join(folder, 'rows.csv');
writeRows(source);
const sandbox = await awayPlatform();
const python = async () =>
  (ROWS * COLUMNS.length) / Number(execFileSync('python3', ['-c', PYTHON, source], { encoding: 'utf8' }));

async function own(): Promise<number> {
  const values = COLUMNS.map((name) => `      ${name}: { from: drop, column: ${name} }\n`).join('');
  const agent = agentWith(
    sandbox,
    `sources: { drop: { csv: ${inbox}, settle: 1s, separator: ";", decimal: ",", zone: Europe/Berlin, time_column: time } }\n` +
      `tags:\n  T:\n    asset: 881\n    values:\n${values}`,
  );
  await agent.start();
  writeRows(join(folder, 'next.csv'));
  renameSync(join(folder, 'next.csv'), join(inbox, 'rows.csv'));
  await until(async () => (await onDisk(agent)) > 0, 2);
  const [startMs, before] = [performance.now(), await onDisk(agent)];
  await until(() => agent.logged('csv.taken').length > 0, 2);
  const rate = (ROWS * COLUMNS.length - before) / ((performance.now() - startMs) / 1_000);
  await agent.dispose();
  rmSync(join(inbox, 'done'), { recursive: true });
  return rate;
}

const contenders = [
  { name: "Python's csv module, nothing stored", measure: python },
  { name: 'tagferry, on disk', measure: own },
];
const rows = await race(contenders, ROUNDS, thousands);
await sandbox.stop();
rmSync(folder, { recursive: true });
console.log(
  `${machine()}\nCSV, ${ROWS.toLocaleString('en')} rows of ten columns, local times; medians of ${ROUNDS} rounds\n`,
);
console.log(table(['', 'thousand values/s', 'ratio'], rows));
