import { execFileSync } from 'node:child_process';
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { countText } from '../../../src/base/amounts.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';

let sandbox: Sandbox;
let agent: AgentProcess;
let drop: string;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
  drop = join(agent.folder, 'drop');
  mkdirSync(drop);
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const stored = (key: string, asset = 881) => sandbox.values.list(asset, key);
const numbers = (key: string, asset = 881) => stored(key, asset).map(({ value }) => value);
const below = (folder: string) => (existsSync(join(drop, folder)) ? readdirSync(join(drop, folder)).sort() : []);
async function report(): Promise<SourceReport> {
  return ((await agent.status()).sources as SourceReport[])[0]!;
}

/** Rows in spreadsheet format from Python's csv writer, with one value per row and no time. */
function foreignFile(path: string, rows: number): void {
  const program = `
import csv, sys
with open(sys.argv[1], "w", newline="", encoding="cp1252") as f:
    w = csv.writer(f, delimiter=";")
    w.writerow(["Nr", "Zähler", "Bemerkung"])
    for n in range(int(sys.argv[2])): w.writerow([n, str(n / 4).replace(".", ","), 'sagt "ja"; und\\nmehr' if n % 97 == 0 else ""])
`;
  execFileSync('python3', ['-c', program, path, String(rows)]);
}

describe('CSV folder', () => {
  it('delivers each row of a large file once even if the agent is killed while reading it', async () => {
    const ROWS = 300_000;
    const source = `{ csv: "${drop}", separator: ";", decimal: ",", encoding: windows-1252, settle: 100ms }`;
    const tags = `sources: { drop: ${source} }\ntags: { T-1: { asset: 881, values: { n: { unit: 1, from: drop, column: Zähler, scale: 4 } } } }\n`;
    agent.write(sandbox.url, { tags, env: { POST_MAX_VALUES: '10000' } });
    foreignFile(join(drop, 'export.csv'), ROWS);
    await agent.start();
    let killedWhileReading = 0;
    for (const share of [0.02, 0.2, 0.4]) {
      // Posts lag behind the file, so the buffered values are counted.
      const read = async () => stored('n').length + (await agent.metric('tagferry_buffer_values'));
      await agent.until(async () => (await read()) >= share * ROWS, 'part of the file is read');
      await agent.end('SIGKILL');
      if (below('done').length === 0) killedWhileReading++;
      await agent.start();
    }
    expect(killedWhileReading).toBeGreaterThan(0);
    await agent.until(() => below('done').length === 2, 'the file is moved');
    await agent.until(() => numbers('n').length >= ROWS, 'all values are delivered');
    // Rows without a time would be stored twice if they were read twice.
    const found = numbers('n');
    expect({ rows: found.length, different: new Set(found).size, sum: found.reduce((sum, n) => sum + n, 0) }).toEqual({
      rows: ROWS,
      different: ROWS,
      sum: (ROWS * (ROWS - 1)) / 2,
    });
    expect(readFileSync(join(drop, 'done/export.csv.report.txt'), 'utf8')).toBe(
      `export.csv: ${countText(ROWS)} values of ${countText(ROWS)} rows were stored, 0 rejected.\n`,
    );
    expect(below('')).toEqual(['done']);
  });

  it('accepts valid rows, reports invalid rows next to the file, and sets files without valid rows aside', async () => {
    const source = `{ csv: "${drop}", decimal: ",", zone: Europe/Berlin, time_column: [Datum, Zeit], settle: 50ms, skip_lines: 1 }`;
    const values = 'flow: { unit: 1, from: drop, column: "Fluss" }, level: { unit: 1, from: drop }';
    agent.write(sandbox.url, {
      tags: `sources: { drop: ${source} }\ntags: { T-1: { asset: 881, values: { ${values} } } }\n`,
    });
    const night = ['25.10.2026;02:00;1,5;7', '25.10.2026;02:30;2,5;', '25.10.2026;02:00;3,5;8', '25.10.2026;02:30;x;9'];
    writeFileSync(
      join(drop, 'night.csv'),
      ['Logger 7', 'Datum;Zeit;Fluss;level', ...night, 'gestern;;1;1', ''].join('\n'),
    );
    writeFileSync(join(drop, 'other.csv'), 'Logger 7\nThis;is\nsomething;else\n');
    writeFileSync(join(drop, '.hidden.csv'), 'Logger 7\nDatum;Zeit;Fluss\n25.10.2026;03:00;99\n');
    const tested = await runVerb(['sources', 'test', '--json', '--config', agent.config]);
    expect((JSON.parse(tested.stdout) as { problem: string | null }[]).length).toBe(2);
    await agent.start();
    await agent.until(() => below('done').length === 2 && below('failed').length === 2, 'both files are moved');
    await agent.until(
      () => numbers('flow').length === 3 && numbers('level').length === 3,
      'the valid values are delivered',
    );
    expect(stored('flow').map(({ value, timestampMs }) => [value, new Date(timestampMs).toISOString()])).toEqual([
      [1.5, '2026-10-25T00:00:00.000Z'],
      [2.5, '2026-10-25T00:30:00.000Z'],
      [3.5, '2026-10-25T01:00:00.000Z'],
    ]);
    const reportFile = readFileSync(join(drop, 'done/night.csv.report.txt'), 'utf8');
    expect(reportFile).toContain('6 values of 5 rows were stored, 2 rejected');
    expect(reportFile).toContain('Lines 3 to 6: an hour that occurred twice in Europe/Berlin');
    expect(reportFile).toContain('line 6: T-1 flow: "x" is not a number');
    expect(reportFile).toContain('line 7: "gestern" ');
    expect(readFileSync(join(drop, 'failed/other.csv.report.txt'), 'utf8')).toContain('has no column "Datum"');
    expect((await report()).errors).toBe(3);
    expect(below('')).toEqual(['.hidden.csv', 'done', 'failed']);
    // A second file with the same name is a different file.
    writeFileSync(join(drop, 'night.csv'), 'Logger 7\nDatum;Zeit;Fluss;level\n26.10.2026;02:00;4,5;1\n');
    await agent.until(() => below('done').includes('night.csv.2'), 'the second file is moved');
    await agent.until(() => numbers('flow').includes(4.5), 'its value is delivered');
    const { stdout } = await runVerb(['sources', 'scan', 'drop', '--yes', '--config', agent.config]);
    expect(stdout).toContain('column: Fluss');
  });

  it('follows a growing file across rotations, even while the agent is stopped', async () => {
    const source = `{ csv: "${drop}", pattern: values.csv, tail: true, header: false, time_column: 1, time_format: unix }`;
    const tags = `sources: { log: ${source} }\ntags: { T-1: { asset: 881, values: { n: { unit: 1, from: log, column: 2 } } } }\n`;
    agent.write(sandbox.url, { tags });
    const path = join(drop, 'values.csv');
    let written = 0;
    const write = (rows: number) => {
      for (let row = 0; row < rows; row++) appendFileSync(path, `${1_700_000_000 + written},${written++}\n`);
    };
    const all = () => Array.from({ length: written }, (_, n) => n);
    const arrived = (what: string) => agent.until(() => numbers('n').length >= written, what);
    write(100);
    await agent.start();
    await arrived('the first rows are delivered');
    // An incomplete line is not read.
    appendFileSync(path, '1700000100,1');
    appendFileSync(path, '');
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    expect(numbers('n')).toEqual(all());
    appendFileSync(path, '00\n');
    written++;
    renameSync(path, `${path}.1`);
    appendFileSync(`${path}.1`, `${1_700_000_000 + written},${written++}\n`);
    write(10);
    await arrived('the rows of both files are delivered');
    await agent.end('SIGKILL');
    write(5);
    renameSync(`${path}.1`, `${path}.2`);
    renameSync(path, `${path}.1`);
    write(5);
    await agent.start();
    await arrived('the rows written meanwhile are delivered');
    expect(numbers('n').sort((a, b) => a - b)).toEqual(all());
    writeFileSync(path, `${1_700_001_000},7777\n`);
    await agent.until(() => numbers('n').includes(7777), 'the truncated file is read from its beginning');
    expect(agent.logged('csv.cut').length).toBe(1);
    expect(below('done')).toEqual([]);
    expect((await report()).stored).toBeGreaterThan(0);
  });

  it('leaves files where they are while no value uses the source', async () => {
    const source = (name: string) => `${name}: { csv: "${join(drop, name)}", separator: ";", settle: 100ms }`;
    const tags = `sources: { ${source('used')}, ${source('unused')} }\ntags: { T-1: { asset: 881, values: { n: { from: used, column: n } } } }\n`;
    agent.write(sandbox.url, { tags });
    for (const name of ['unused', 'used']) {
      mkdirSync(join(drop, name));
      writeFileSync(join(drop, name, 'a.csv'), 'time;n\n2026-11-01T00:00:00Z;1\n');
    }
    await agent.start();
    await agent.until(() => below('used/done').length === 2, 'the file of the used source is read');
    expect(below('unused')).toEqual(['a.csv']);
  });

  it('reads a file only once if it cannot be moved', async () => {
    const source = `{ csv: "${drop}", form: long, time_column: time, settle: 50ms }`;
    agent.write(sandbox.url, {
      tags: `sources: { lab: ${source} }\ntags: { S-4: { asset: 881, values: { ph: { unit: 1, from: lab } } } }\n`,
    });
    // A file replaces the folder to simulate a read-only file system, because root can write everywhere.
    writeFileSync(join(drop, 'done'), '');
    writeFileSync(
      join(drop, 'a.csv'),
      'time,tag,key,value\n2026-11-21T00:00:00Z,S-4,ph,7.1\n2026-11-21T00:00:00Z,S-4,pH,1\n',
    );
    await agent.start();
    await agent.until(() => agent.logged('csv.not_moved').length === 1, 'the failed move is logged');
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    await agent.until(() => agent.logged('csv.not_moved').length === 2, 'the failed move is logged again');
    await agent.until(() => numbers('ph').length === 1, 'its value is delivered');
    expect((await report()).stored).toBe(0);
    renameSync(join(drop, 'done'), join(drop, 'elsewhere'));
    await agent.until(() => below('done').length === 2, 'the file is moved');
    expect(readFileSync(join(drop, 'done/a.csv.report.txt'), 'utf8')).toContain('did you mean "S-4 ph"?');
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});
