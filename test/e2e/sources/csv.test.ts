import {
  appendFileSync,
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { HungShare } from '../harness/hung-share.ts';
import { Platform } from '../harness/platform.ts';
import { runVerb } from '../harness/verb.ts';

const ROWS = 60_000;
const START_S = 1_700_000_000;
const NOBODY = 65_534;
/** Only root can create folders of other users and mount shares. */
const IS_ROOT = process.getuid!() === 0;
const HUNG = ['hung0', 'hung1', 'hung2', 'hung3'];
const FOREIGN = ['link', 'foreign', 'locked', 'sticky', 'mixed', 'growing'];
const ROW = 'time,n\n2026-11-21T00:00:00Z,';

let platform: Platform;
let agent: AgentProcess;
/** Agent with folders of other users and unresponsive shares. */
let exposed: AgentProcess;
let share: HungShare | undefined;

const folder = (...names: string[]) => join(agent.folder, ...names);
const exposedFolder = (...names: string[]) => join(exposed.folder, ...names);
const below = (...names: string[]) => (existsSync(folder(...names)) ? readdirSync(folder(...names)).sort() : []);
const stored = (key: string) => platform.stored(881, key);
const numbers = (key: string) => stored(key).map(({ value }) => value);

beforeAll(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url);
  exposed = new AgentProcess(platform.url);
  for (const name of ['large', 'night', 'night/done', 'log', 'scanned', 'field', 'archive']) mkdirSync(folder(name));
  // Setgid and sticky bits.
  chmodSync(folder('large'), 0o3770);
  // Files that were read long ago, and whose retention period is over.
  for (const name of ['old.csv', 'old.csv.report.txt']) {
    writeFileSync(folder('night/done', name), '');
    utimesSync(folder('night/done', name), START_S, START_S);
  }
  writeFileSync(
    folder('scanned/a.csv'),
    'Datum;Zeit;Flow [m³/h]\n;;m³/h\n01.02.2026;12:00:01,250;1.234,5\n01.02.2026;12:00:02,250;1.234\n',
  );
  writeTags();
  await Promise.all([agent.start(), IS_ROOT ? startExposed() : undefined]);
});
afterAll(async () => {
  await share?.unmount();
  await exposed?.dispose();
  await agent?.dispose();
  await platform?.stop();
});

/** `scanned`: members of the source `scanned`; `tag`: lines with its values. */
function writeTags(scanned = '', tag = ''): void {
  agent.write(platform.url, {
    tags: `sources:
  large: { csv: "${folder('large')}", separator: ";", decimal: ",", encoding: windows-1252, settle: 100ms }
  night: { csv: "${folder('night')}", decimal: ",", zone: Europe/Berlin, time_column: [Datum, Zeit], settle: 50ms, skip_lines: 1, keep: 1d }
  same: { csv: "${folder('log')}", pattern: none.csv }
  log: { csv: "${folder('log')}", pattern: values.csv, tail: true, header: false, time_column: 1, time_format: unix }
  scanned: { csv: "${folder('scanned')}"${scanned} }
  field: { csv: "${folder('field')}", zone: Europe/Berlin, time_column: time, settle: 1s }
  archive: { csv: "${folder('archive')}", decimal: ",", time_column: TimeString, name_column: VarName, value_column: VarValue, quality_column: Validity, quality_map: { 1: good }, settle: 50ms }
tags:
  T:
    asset: 881
    values:
      row: { from: large, column: Zähler, scale: 4 }
      flow: { from: night, column: Fluss }
      level: { from: night }
      line: { from: log, column: 2 }
      field: { from: field, column: v }
      tank: { from: archive, name: Tank1_Level, scale: 10, no_value: -9999, range: [0, 1000] }
  S:
    asset: 882
${tag}`,
    env: { COMMIT_INTERVAL: '100ms', POST_MAX_VALUES: '10000', POST_INTERVAL: '100ms' },
  });
}

async function startExposed(): Promise<void> {
  for (const name of [...FOREIGN, ...HUNG]) mkdirSync(exposedFolder(name));
  const members = (name: string) => (name === 'growing' ? 'tail: true' : 'settle: 50ms');
  const sources = [...FOREIGN, ...HUNG].map(
    (name) => `  ${name}: { csv: "${exposedFolder(name)}", time_column: time, ${members(name)} }\n`,
  );
  const values = [...FOREIGN, ...HUNG].map((name) => `${name}: { from: ${name}, column: n }`);
  exposed.write(platform.url, {
    tags: `sources:\n${sources.join('')}tags: { T-1: { asset: 883, values: { ${values.join(', ')} } } }\n`,
  });
  // Without these capabilities, root has the same permissions as other users.
  exposed.surroundings = ['setpriv', '--bounding-set=-dac_override,-dac_read_search,-fowner', '--'];
  mkdirSync(exposedFolder('elsewhere'));
  symlinkSync(exposedFolder('elsewhere'), exposedFolder('link/done'));
  for (const [name, mode] of [
    ['foreign', 0o777],
    ['locked', 0o700],
  ] as const) {
    mkdirSync(exposedFolder(name, 'done'));
    chmodSync(exposedFolder(name, 'done'), mode);
    chownSync(exposedFolder(name, 'done'), NOBODY, NOBODY);
  }
  for (const name of FOREIGN) writeFileSync(exposedFolder(name, 'x.csv'), `${ROW}1\n`);
  chmodSync(exposedFolder('sticky'), 0o1777);
  for (const name of ['sticky', 'sticky/x.csv']) chownSync(exposedFolder(name), NOBODY, NOBODY);
  for (const name of ['mixed', 'growing']) chmodSync(exposedFolder(name, 'x.csv'), 0);
  for (const name of ['mixed', 'growing']) writeFileSync(exposedFolder(name, 'y.csv'), `${ROW}2\n`);
  share = await HungShare.mount(HUNG.map((name) => exposedFolder(name)));
  await exposed.start();
}

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
    const modeOf = (path: string) => statSync(folder(path)).mode & 0o7777;
    expect([modeOf('large/done'), modeOf('large/done/export.csv.report.txt')]).toEqual([0o3770, 0o644]);
  });

  it('stores valid rows, reports invalid ones next to the file, and moves and deletes finished files', async () => {
    const night = ['25.10.2026;02:00;1,5;7', '25.10.2026;02:30;2,5;', '25.10.2026;02:00;3,5;8', '25.10.2026;02:30;x;9'];
    const text = ['Logger 7', 'Datum;Zeit;Fluss;level', ...night, 'gestern;;1;1', '01.01.1980;00:00;1;1', ''].join(
      '\n',
    );
    writeFileSync(folder('night/night.csv'), text);
    writeFileSync(folder('night/other.csv'), 'Logger 7\nThis;is\nsomething;else\n');
    writeFileSync(folder('night/empty.csv'), '');
    writeFileSync(folder('night/.hidden.csv'), 'Logger 7\nDatum;Zeit;Fluss\n25.10.2026;03:00;99\n');
    await agent.until(() => below('night/failed').length === 4, 'the unusable files are moved to failed/');
    await agent.until(() => below('night/done').includes('night.csv.report.txt'), 'the file is moved');
    await agent.until(() => numbers('flow').length >= 3 && numbers('level').length >= 3, 'the valid values arrive');
    expect(stored('flow').map(({ value, timestampMs }) => [value, new Date(timestampMs).toISOString()])).toEqual([
      [1.5, '2026-10-25T00:00:00.000Z'],
      [2.5, '2026-10-25T00:30:00.000Z'],
      [3.5, '2026-10-25T01:00:00.000Z'],
    ]);
    const report = readFileSync(folder('night/done/night.csv.report.txt'), 'utf8');
    for (const line of [
      'Lines 3 to 6: an hour that occurred twice in Europe/Berlin',
      'line 6',
      'line 7',
      'line 8: timestamp 1979-12-31T23:00:00.000Z is before 2000-01-01',
    ])
      expect(report).toContain(line);
    expect(readFileSync(folder('night/failed/empty.csv.report.txt'), 'utf8')).toContain('the file is empty');
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

  it('delivers the valid rows of realistic logger files, and reports invalid rows', async () => {
    const first = ['time,v', '2026-10-25T02:30,1', 'v,w,time', '2,,2026-10-25T02:40', '3,5,2026-10-25T02:50,0', ''];
    writeFileSync(folder('field/1.csv'), first.join('\r'));
    await agent.until(() => below('field/done').includes('1.csv'), 'the first file is moved');
    const rows = ['time,v', '2026-10-25T02:30,4'];
    writeFileSync(folder('field/2.csv'), `${rows.join('\n')}\n2026-10-25T03:00,133`);
    await agent.until(() => below('field/done').includes('2.csv'), 'the second file is moved');
    appendFileSync(folder('field/done/2.csv'), '4.25\n');
    await agent.until(() => numbers('field').length >= 4, 'the values arrive');
    expect(stored('field').map(({ value, timestampMs }) => [value, new Date(timestampMs).toISOString()])).toEqual([
      [1, '2026-10-25T00:30:00.000Z'],
      [2, '2026-10-25T00:40:00.000Z'],
      [4, '2026-10-25T01:30:00.000Z'],
      [1334.25, '2026-10-25T02:00:00.000Z'],
    ]);
    expect(readFileSync(folder('field/done/1.csv.report.txt'), 'utf8')).toContain('line 5: has 4 cells');
    expect(readFileSync(folder('field/done/2.csv.report.txt'), 'utf8')).toContain('line 3: has no line ending');
    expect(agent.logged('csv.grown')).toMatchObject([{ file: 'done/2.csv', rows: 1, values: 1 }]);
  });

  it('delivers named values with their quality, and rejects codes for "no value" and values out of range', async () => {
    const rows = ['Tank1_Level;12;1', 'Tank1_Level;-9999;1', 'Tank1_Level;100,5;1', 'Pump;7;1', 'Tank1_Level;13,5;0'];
    const lines = rows.map((row, at) => row.replace(';', `;01.02.2026 12:00:0${at};`));
    const text = ['VarName;TimeString;VarValue;Validity', ...lines, 'Tank1_Level;01.02.2026 12:00:09;1;9999', ''];
    writeFileSync(folder('archive/.part'), text.join('\r\n'));
    renameSync(folder('archive/.part'), folder('archive/a.csv'));
    await agent.until(() => stored('tank').length >= 2, 'both values arrive');
    expect(stored('tank').map(({ value, status, timestampMs }) => [value, status, timestampMs])).toEqual([
      [120, 'good', Date.UTC(2026, 1, 1, 12, 0, 0)],
      [135, 'bad', Date.UTC(2026, 1, 1, 12, 0, 4)],
    ]);
    await agent.until(() => below('archive/done').length === 2, 'the file is moved with its report');
    const report = readFileSync(folder('archive/done/a.csv.report.txt'), 'utf8');
    expect(report).toContain('6 rows read, 2 values stored, 3 rejected');
    for (const part of [
      'line 3: T tank: -9999 means "no value"',
      'line 4: T tank: 1005 is outside range',
      'line 7: T tank: unknown quality "9999"',
      '"Pump"',
    ])
      expect(report).toContain(part);
    const { sources } = (await agent.status()) as { sources: Record<string, unknown>[] };
    expect(sources.find(({ name }) => name === 'archive')).toMatchObject({ errors: 3, rejected: { count: 3 } });
  });

  it('is reported by check if its folder does not exist', async () => {
    const config = folder('checked');
    mkdirSync(config, { mode: 0o700 });
    copyFileSync(join(agent.config, 'agent.env'), join(config, 'agent.env'));
    const members = (name: string) => `{ csv: "${folder(name)}", time_column: time }`;
    const values = 'a: { from: present, column: n }, b: { from: absent, column: n }';
    writeFileSync(
      join(config, 'tags.yaml'),
      `sources: { present: ${members('field')}, absent: ${members('absent')} }\ntags: { T: { asset: 881, values: { ${values} } } }\n`,
    );
    const { status, stdout } = await runVerb({ config }, 'check');
    const warnings = stdout.match(/warning: source .*/g);
    const warning = `warning: source "absent": folder ${folder('absent')} does not exist, run \`install`;
    expect([status, warnings]).toEqual([0, [expect.stringContaining(warning)]]);
  });

  it('reads values with the members and lines that a scan prints', async () => {
    const scanned = await runVerb(agent, 'sources', 'scan', 'scanned', '--yes');
    const [head = '', zone, ...lines] = scanned.stdout.split('\n');
    expect(head).toBe(
      '# add to scanned under sources: units_row: 1, decimal: ",", thousands: ".", time_column: [Datum, Zeit]',
    );
    expect(zone).toMatch(
      /^# the times in column "Datum" and column "Zeit" have no UTC offset and are read as UTC; .*set zone/,
    );
    expect(lines[1]).toMatch(/flow_m_h: \{ from: scanned, column: "Flow \[m³\/h\]" \} +# 1\.234,5 m³\/h$/);
    writeTags(`, ${head.slice('# add to scanned under sources: '.length)}, settle: 50ms`, lines.join('\n'));
    agent.signal('SIGHUP');
    await agent.until(() => platform.stored(882, 'flow_m_h').length === 2, 'both values arrive');
    expect(platform.stored(882, 'flow_m_h').map(({ value, timestampMs }) => [value, timestampMs])).toEqual([
      [1234.5, Date.UTC(2026, 1, 1, 12, 0, 1, 250)],
      [1234, Date.UTC(2026, 1, 1, 12, 0, 2, 250)],
    ]);
  });
});

describe.skipIf(!IS_ROOT)('CSV folder', () => {
  const arrived = (key: string) => platform.stored(883, key).map(({ value }) => value);
  async function source(name: string) {
    const { sources } = (await exposed.status()) as { sources: Record<string, unknown>[] };
    return sources.find((one) => one.name === name)!;
  }

  it('of other users is read although files cannot be moved to their folders', async () => {
    for (const [name, hint] of [
      ['link', 'Links are not followed'],
      ['foreign', 'Rename or remove'],
      ['locked', 'Rename or remove'],
      ['sticky', `chmod -t ${exposedFolder('sticky')}`],
    ] as const) {
      await exposed.until(() => arrived(name).length === 1, `the value in ${name} arrives`);
      await exposed.until(async () => String((await source(name)).hint).includes(hint), `${name} is reported`);
      expect(readdirSync(exposedFolder(name))).toContain('x.csv');
    }
    expect(readdirSync(exposedFolder('elsewhere'))).toEqual([]);
    // While the agent tries to move the file again, there may be a report.
    for (const path of ['foreign/done', 'locked/done', 'sticky/done']) {
      await exposed.until(() => readdirSync(exposedFolder(path)).length === 0, `${path} is empty`);
    }
  });

  it('with an unreadable file is read, and the unreadable file once its permissions are fixed', async () => {
    for (const name of ['mixed', 'growing']) {
      await exposed.until(() => arrived(name).includes(2), `the readable file in ${name} is read`);
      const isReported = async () => String((await source(name)).problem).includes('x.csv: permission denied');
      await exposed.until(isReported, `the unreadable file in ${name} is reported`);
      chmodSync(exposedFolder(name, 'x.csv'), 0o644);
      await exposed.until(() => arrived(name).includes(1), `the other file in ${name} is read`);
    }
    expect(exposed.logged('csv.unreadable').length).toBe(2);
  });

  it('on an unresponsive share delays nothing else, and is read when the share responds again', async () => {
    const reported = () => new Set(exposed.logged('csv.folder').map(({ source: name }) => name));
    await exposed.until(() => reported().size === HUNG.length, 'all folders are reported');
    expect((await source('hung0')).problem).toContain('does not respond');
    expect(await exposed.end('SIGTERM')).toBe(0);
    await exposed.start();
    await share?.unmount();
    writeFileSync(exposedFolder('hung0/x.csv'), `${ROW}7\n`);
    await exposed.until(() => arrived('hung0').includes(7), 'a file is read');
  });
});
