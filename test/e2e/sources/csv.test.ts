import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { Platform } from '../harness/platform.ts';
import { runVerb } from '../harness/verb.ts';

const ROWS = 60_000;
const START_S = 1_700_000_000;

let platform: Platform;
let agent: AgentProcess;

const folder = (...names: string[]) => join(agent.folder, ...names);
const below = (...names: string[]) => (existsSync(folder(...names)) ? readdirSync(folder(...names)).sort() : []);
const stored = (key: string) => platform.stored(881, key);
const numbers = (key: string) => stored(key).map(({ value }) => value);

beforeAll(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url);
  for (const name of ['large', 'night', 'night/done', 'log']) mkdirSync(folder(name));
  // Files that were read long ago, and whose retention period is over.
  for (const name of ['old.csv', 'old.csv.report.txt']) {
    writeFileSync(folder('night/done', name), '');
    utimesSync(folder('night/done', name), START_S, START_S);
  }
  agent.write(platform.url, {
    tags: `sources:
  large: { csv: "${folder('large')}", separator: ";", decimal: ",", encoding: windows-1252, settle: 100ms }
  night: { csv: "${folder('night')}", decimal: ",", zone: Europe/Berlin, time_column: [Datum, Zeit], settle: 50ms, skip_lines: 1, keep: 1d }
  same: { csv: "${folder('log')}", pattern: none.csv }
  log: { csv: "${folder('log')}", pattern: values.csv, tail: true, header: false, time_column: 1, time_format: unix }
tags:
  T:
    asset: 881
    values:
      row: { from: large, column: Zähler, scale: 4 }
      flow: { from: night, column: Fluss }
      level: { from: night }
      line: { from: log, column: 2 }
`,
    env: { COMMIT_INTERVAL: '100ms', POST_MAX_VALUES: '10000', POST_INTERVAL: '100ms' },
  });
  await agent.start();
});
afterAll(async () => {
  await agent?.dispose();
  await platform?.stop();
});

describe('CSV source', () => {
  it('delivers each row of a large file exactly once even if the agent is killed while reading it', async () => {
    const first = numbers('row').length;
    const rows = Array.from({ length: ROWS }, (_, at) => {
      const n = first + at;
      return `${n};${String(n / 4).replace('.', ',')};${at % 97 === 0 ? '"says ""yes""; and\nmore"' : ''}\r\n`;
    });
    // The first rows have no time: rows that are read again would become further values.
    writeFileSync(folder('large/.part'), `Nr;Zähler;Bemerkung\r\n${rows.join('')}`, 'latin1');
    renameSync(folder('large/.part'), folder('large/export.csv'));
    const finished = below('large/done').length;
    const read = async () =>
      numbers('row').length - first + (await agent.metric('tagferry_buffer_values').catch(() => 0));
    let killedWhileReading = 0;
    for (const share of [0.02, 0.5]) {
      await agent.until(async () => (await read()) >= share * ROWS, 'part of the file is read');
      await agent.end('SIGKILL');
      if (below('large/done').length === finished) killedWhileReading++;
      await agent.start();
    }
    expect(killedWhileReading).toBeGreaterThan(0);
    await agent.until(() => below('large/done').length === finished + 2, 'the file is moved with its report');
    await agent.until(() => numbers('row').length >= first + ROWS, 'all values are delivered');
    const found = numbers('row').slice(first);
    expect(found.length).toBe(ROWS);
    expect(found.toSorted((a, b) => a - b).every((n, at) => n === first + at)).toBe(true);
    expect(below('large')).toEqual(['done']);
  });

  it('stores valid rows, reports invalid ones next to the file, and moves and deletes finished files', async () => {
    const night = ['25.10.2026;02:00;1,5;7', '25.10.2026;02:30;2,5;', '25.10.2026;02:00;3,5;8', '25.10.2026;02:30;x;9'];
    const text = ['Logger 7', 'Datum;Zeit;Fluss;level', ...night, 'gestern;;1;1', ''].join('\n');
    writeFileSync(folder('night/night.csv'), text);
    writeFileSync(folder('night/other.csv'), 'Logger 7\nThis;is\nsomething;else\n');
    writeFileSync(folder('night/.hidden.csv'), 'Logger 7\nDatum;Zeit;Fluss\n25.10.2026;03:00;99\n');
    await agent.until(() => below('night/failed').includes('other.csv.report.txt'), 'the unusable file is set aside');
    await agent.until(() => below('night/done').includes('night.csv.report.txt'), 'the file is moved');
    await agent.until(() => numbers('flow').length >= 3 && numbers('level').length >= 3, 'the valid values arrive');
    expect(stored('flow').map(({ value, timestampMs }) => [value, new Date(timestampMs).toISOString()])).toEqual([
      [1.5, '2026-10-25T00:00:00.000Z'],
      [2.5, '2026-10-25T00:30:00.000Z'],
      [3.5, '2026-10-25T01:00:00.000Z'],
    ]);
    const report = readFileSync(folder('night/done/night.csv.report.txt'), 'utf8');
    for (const line of ['line 6', 'line 7']) expect(report).toContain(line);
    await agent.until(() => agent.logged('csv.failed').length > 0, 'the unusable file is reported');
    expect(below('night')).toEqual(['.hidden.csv', 'done', 'failed']);
    await agent.until(() => !below('night/done').includes('old.csv'), 'the expired file is deleted');
    // A later file with the same name is another file.
    writeFileSync(folder('night/night.csv'), 'Logger 7\nDatum;Zeit;Fluss;level\n26.10.2026;02:00;4,5;1\n');
    await agent.until(() => numbers('flow').includes(4.5), 'the value of the second file arrives');
    await agent.until(() => below('night/done').length >= 4, 'the second file does not replace the first one');
  });

  it('delivers each line of a growing file exactly once across rotations and kill -9', async () => {
    const path = folder('log/values.csv');
    let written = numbers('line').length;
    const write = (to = path) => appendFileSync(to, `${START_S + written},${written++}\n`);
    const writeMany = (count: number) => {
      for (let n = 0; n < count; n++) write();
    };
    const arrived = (what: string) => agent.until(() => numbers('line').length >= written, what);
    writeMany(100);
    await arrived('the first lines arrive');
    for (let kill = 0; kill < 2; kill++) {
      // The agent reads complete lines only.
      appendFileSync(path, `${START_S + written},`);
      await agent.end('SIGKILL');
      appendFileSync(path, `${written++}\n`);
      writeMany(5);
      const rotated = `${path}.${written}`;
      renameSync(path, rotated);
      write(rotated);
      writeMany(5);
      await agent.start();
      await arrived('the lines of both files arrive');
      renameSync(path, `${path}.${written}`);
      writeMany(5);
      await arrived('the lines after the rotation arrive');
    }
    // A test beside the running source does not close the file that it keeps open.
    const { stdout } = await runVerb(agent, 'sources', 'test', '--json', 'log');
    expect(JSON.parse(stdout)).toMatchObject([{ key: 'line', problem: null }]);
    writeMany(2);
    rmSync(path);
    writeMany(2);
    await arrived('the lines of the removed file arrive');
    expect(agent.logged('csv.folder')).toEqual([]);
    expect(numbers('line').sort((a, b) => a - b)).toEqual(Array.from({ length: written }, (_, n) => n));
    expect(stored('line').every(({ timestampMs, value }) => timestampMs === (START_S + value) * 1_000)).toBe(true);
    expect(below('log')).not.toContain('done');
  });
});
