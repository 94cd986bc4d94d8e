import fs, {
  appendFileSync,
  closeSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { OpenedFile } from '../../../../src/sources/csv/folder.ts';
import { listenTo } from '../../../../src/sources/source-test.ts';
import { CsvBench, LocalProgram } from './csv-bench.ts';

const ONE = 'n: { from: drop }';
const TIMED = 'settle: 50ms, time_column: time';
const row = (n: number) => `time,n\n2026-11-21T00:00:${String(n % 60).padStart(2, '0')}Z,${n}\n`;

describe('time zone of CSV times', () => {
  const MINUTE = 60_000;
  const localText = (ms: number) => new Date(ms).toISOString().slice(0, 19).replace('T', ' ');

  /** Reads a file whose latest row is `aheadMs` ahead of the time at which the file was written. */
  async function problemsOf(aheadMs: number, members = '', suffix = '', writtenMs = Date.UTC(2026, 10, 20, 22, 7)) {
    const bench = new CsvBench(`settle: 50ms, time_column: time${members}`, ONE);
    const times = [writtenMs + aheadMs - 20 * MINUTE, writtenMs + aheadMs].map(localText);
    bench.write('a.csv', `time,n\n${times.map((text, n) => `${text}${suffix},${n}\n`).join('')}`);
    utimesSync(join(bench.folder, 'a.csv'), writtenMs / 1_000, writtenMs / 1_000);
    await bench.open();
    await bench.until(() => bench.values().length === 2);
    await bench.clock.advance(1_000);
    return bench.logged('source.zone_missing').map(({ error }) => error);
  }

  it.each([
    [60 * MINUTE - 5_000, '1 h ahead of'],
    [120 * MINUTE - 9 * MINUTE, '1.9 h ahead of'],
    [-300 * MINUTE - 5_000, '5 h behind'],
  ])('is reported as missing if a row is %i ms ahead of the file', async (aheadMs, difference) => {
    const text = localText(Date.UTC(2026, 10, 20, 22, 7) + aheadMs);
    for (const members of ['', ', tail: true']) {
      expect(await problemsOf(aheadMs, members)).toEqual([
        `timestamp "${text}" has no UTC offset and is ${difference} the time of the file: ` +
          'set zone, for example zone: Europe/Berlin, or zone: UTC if the time is correct',
      ]);
    }
  });

  it.each(['settle: 50ms', 'tail: true'])(
    'is reported as wrong if a time does not exist in it (%s)',
    async (members) => {
      const bench = new CsvBench(`${members}, zone: Europe/Berlin, time_column: time`, ONE);
      bench.write('a.csv', 'time,n\n2026-03-29 01:30:00,1\n2026-03-29 02:30:00,2\n2026-03-29 02:45:00,3\n');
      await bench.open();
      await bench.until(() => bench.values().length === 3);
      await bench.clock.advance(1_000);
      expect(bench.logged('source.zone_wrong').map(({ error }) => error)).toEqual([
        'timestamp "2026-03-29 02:45:00" does not exist in Europe/Berlin: if the sender does not change to daylight ' +
          'saving time, set zone: "+01:00"',
      ]);
    },
  );

  it('is not reported as missing if the rows may be UTC', async () => {
    const hourMs = 60 * MINUTE;
    expect(await problemsOf(-5_000)).toEqual([]);
    expect(await problemsOf(-17 * MINUTE)).toEqual([]);
    expect(await problemsOf(2 * MINUTE)).toEqual([]);
    expect(await problemsOf(hourMs, ', zone: UTC')).toEqual([]);
    expect(await problemsOf(hourMs, '', 'Z')).toEqual([]);
    // A mean value of the previous hour.
    expect(await problemsOf(-hourMs, '', '', Date.UTC(2026, 10, 20, 22))).toEqual([]);
  });

  it.each([
    ['', [expect.stringContaining('"2026-11-20 12:00:00" has no UTC offset and is read as UTC: set zone')]],
    [', zone: UTC', [undefined]],
  ])('is proposed by a test if it is missing (time_column: time%s)', async (zone, warnings) => {
    const bench = new CsvBench(`time_column: time${zone}`, ONE);
    bench.write('a.csv', 'time,n\n2026-11-20 12:00:00,1\n');
    await bench.open(true);
    const tested = await listenTo(bench.status, bench.points, bench.clock, 1_000, new AbortController().signal);
    expect(tested.map(({ warning }) => warning)).toEqual(warnings);
  });
});

describe('source of complete CSV files', () => {
  it('reports unusable rows and files once with an example, counts them, and shows them in its status', async () => {
    const bench = new CsvBench(TIMED, ONE);
    await bench.open();
    for (let n = 0; n < 40; n++) bench.write(`${n}.csv`, `time,n\n${'yesterday,1\n'.repeat(25)}`);
    await bench.until(() => bench.below('failed').length === 80);
    await bench.clock.advance(60_000);
    expect(bench.status.report(0).rejected).toMatchObject({
      count: 1_000,
      problem: expect.stringMatching(/^\d+\.csv: line 26: "yesterday" does not match the time format$/),
    });
    const [first, others] = bench.logged('csv.failed');
    expect(first).toMatchObject({ source: 'drop', refused: 25, error: expect.stringContaining('line 2') });
    expect(others).toMatchObject({ objects: 39, refused: 975 });
    for (let n = 0; n < 20; n++) {
      bench.write('next.csv', 'time,m\n');
      await bench.clock.advance(20_000);
    }
    expect(bench.below('failed').length).toBe(120);
    expect(bench.logged('csv.failed')[2]).toMatchObject({
      file: 'next.csv',
      moved_to: expect.stringMatching(/^failed.next/),
    });
    expect(bench.logged('csv.failed').length).toBeLessThan(8);
  });

  it('reads quotes in the header and in rows by the separator in use', async () => {
    const bench = new CsvBench('settle: 50ms', 'n: { from: drop }, m: { from: drop, column: "m;\\n2" }');
    bench.write('a.csv', 'text;n;"m;\n2"\n1,"pipe;1;2\n"a ""b""\nc";3;4\n"a"b;5;6\n;7;8\n');
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect([bench.values('n'), bench.values('m')]).toEqual([
      [1, 3, 7],
      [2, 4, 8],
    ]);
    expect(bench.read('done/a.csv.report.txt')).toContain('line 6: unexpected text after a closing quote');
  });

  it('reads the repeated hour from one file per hour, even after a crash', async () => {
    const bench = new CsvBench('settle: 50ms, zone: Europe/Berlin, time_column: t', ONE);
    const hour = (n: number, local: string) => `t,n\n25.10.2026 ${local}:00,${n}\n25.10.2026 ${local}:30,${n + 1}\n`;
    bench.write('a.csv', hour(1, '02'));
    await bench.open();
    await bench.until(() => bench.below('done').includes('a.csv'));
    await bench.crash();
    bench.write('b.csv', hour(3, '02'));
    await bench.open();
    await bench.until(() => bench.below('done').includes('b.csv'));
    bench.write('c.csv', hour(5, '03'));
    await bench.until(() => bench.below('done').includes('c.csv'));
    const times = bench.sink.stored.map(({ value, timeMs }) => [value, new Date(timeMs).toISOString().slice(11, 16)]);
    expect(times).toEqual([
      [1, '00:00'],
      [2, '00:30'],
      [3, '01:00'],
      [4, '01:30'],
      [5, '02:00'],
      [6, '02:30'],
    ]);
    await bench.clock.advance(1_000);
    expect([...bench.sink.notes.keys()]).toEqual(['source/drop/carried']);
  });

  it('assigns the same timestamps if a file in the repeated hour is read again', async () => {
    const bench = new CsvBench('settle: 10s, zone: Europe/Berlin, time_column: t', ONE);
    const text = 't,n\n25.10.2026 02:00,1\n25.10.2026 02:30,2\n';
    bench.write('done', 'in place of the folder');
    bench.write('a.csv', text);
    await bench.open();
    await bench.until(() => bench.values().length === 2);
    bench.write('a.csv', `${text}25.10.2026 02:59,3\n`);
    await bench.until(() => bench.values().includes(3));
    expect(new Set(bench.sink.stored.map(({ timeMs }) => timeMs)).size).toBe(3);
  });

  it('rejects rows with more cells than the header, or that end before the first value column', async () => {
    const bench = new CsvBench(TIMED, 'n: { from: drop }, m: { from: drop }');
    const at = '2026-11-21T00:00:0';
    bench.write('a.csv', `time,n,m\n${at}1Z,21,5,3,25\n${at}2Z,1,2,, \n${at}3Z\n${at}4Z,3\n`);
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.values()).toEqual([1, 2, 3]);
    const report = bench.read('done/a.csv.report.txt');
    expect(report).toMatch(/line 2: has 5 cells, but the header has 3; .* set decimal: ","/);
    expect(report).toContain('line 4: has 1 cell, but the first value is in column 2');
  });

  it('rejects rows with more cells than the first valid row of a file without a header', async () => {
    const members = 'settle: 50ms, header: false, time_column: 1';
    const bench = new CsvBench(members, 'n: { from: drop, column: 2 }, m: { from: drop, column: 3 }');
    const at = '2026-11-21T00:00:0';
    bench.write('a.csv', `Logger 7\n${at}1Z,1,2\n${at}2Z,21,5,3,5\n${at}3Z,,4\n`);
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.values()).toEqual([1, 2, 4]);
    expect(bench.read('done/a.csv.report.txt')).toMatch(/line 3: has 5 cells, but the first row has 3; /);
  });

  it('distinguishes a line feed in a column name from two columns', async () => {
    const bench = new CsvBench(TIMED, 'n: { from: drop }, m: { from: drop }');
    bench.write('a.csv', 'time,n,m\n2026-11-21T00:00:00Z,1,2\n');
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    bench.write('b.csv', 'time,"n\nm"\n2026-11-21T00:00:01Z,3\n');
    await bench.until(() => bench.below('failed').length === 2);
    expect(bench.values()).toEqual([1, 2]);
  });

  it('rejects values whose column name occurs twice in the header', async () => {
    const bench = new CsvBench(TIMED, 'a: { from: drop }, b: { from: drop, column: 3 }, n: { from: drop }');
    bench.write('x.csv', 'time,a,a,n\n2026-11-21T00:00:00Z,1,2,3\n');
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.values()).toEqual([2, 3]);
    const problem = 'line 1: T a: the header has 2 columns "a", specify a column number';
    expect(bench.read('done/x.csv.report.txt')).toContain(problem);
  });

  it.each([
    ['with times', TIMED, 'time,n', '2026-11-21T00:00:00Z,1', 'x,n,time', '9,2,2026-11-21T00:00:01Z,'],
    ['without times', 'settle: 50ms', 'a,n', '9,1', 'n,a', '2,9'],
    ['and a units row', 'settle: 50ms, units_row: 1', 'a,n\n7,7', '9,1', 'n,a\n7,7', '2,9'],
  ])(
    'reads the columns again from a header in the middle of a file %s, even after a crash',
    async (_, more, ...text) => {
      const bench = new CsvBench(more, ONE);
      const [header, row1, second, row2] = text;
      bench.write('a.csv', `${header}\n${row1}\n${second}\n${`${row2}\n`.repeat(30_000)}`);
      bench.sink.holds = true;
      await bench.open();
      await bench.until(() => bench.sink.waiting > 0);
      bench.sink.commit();
      await bench.until(() => bench.sink.waiting > 0);
      await bench.crash();
      await bench.open();
      await bench.until(() => bench.below('done').length === 2);
      expect(bench.values()).toEqual([1, ...Array.from({ length: 30_000 }, () => 2)]);
      expect(bench.read('done/a.csv.report.txt')).toContain('30,001 rows read, 30,001 values stored, 0 rejected');
    },
  );

  it('reads a last line without a line ending only if the writer completes the line after the file was moved', async () => {
    const bench = new CsvBench('settle: 10s, time_column: time', ONE);
    const at = '2026-11-21T00:00:0';
    bench.write('a.csv', `time,n\n${at}0Z,1\n${at}1Z,133`);
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.read('done/a.csv.report.txt')).toContain('line 3: has no line ending and may be incomplete');
    await bench.crash();
    await bench.open();
    appendFileSync(join(bench.folder, 'done/a.csv'), `4.25\n${at}2Z,3\n`);
    await bench.until(() => bench.values().length === 3);
    expect(bench.values()).toEqual([1, 1334.25, 3]);
    expect(bench.logged('csv.grown')).toMatchObject([{ file: 'done/a.csv', line: 3, rows: 2, values: 2 }]);
    expect(bench.read('done/a.csv.report.txt')).toContain('2 rows, 2 values stored');
    await bench.clock.advance(60_000);
    expect([...bench.sink.notes.keys()]).toEqual(['source/drop/carried']);
  });

  it('reads rows that are added to a file that was rewritten before it was moved', async () => {
    const bench = new CsvBench('settle: 10s', ONE);
    // The file cannot be moved.
    bench.write('done', '');
    bench.write('a.csv', 'm,n\n1,1\n');
    await bench.open();
    await bench.until(() => bench.logged('csv.not_moved').length === 1);
    bench.write('a.csv', 'm,n\n1,2\n1,3\n');
    unlinkSync(join(bench.folder, 'done'));
    await bench.until(() => bench.below('done').length === 2);
    appendFileSync(join(bench.folder, 'done/a.csv'), '1,4\n');
    await bench.clock.advance(60_000);
    expect(bench.values()).toEqual([1, 2, 3, 4]);
    expect(bench.logged('csv.grown')).toMatchObject([{ file: 'done/a.csv', line: 4, rows: 1, values: 1 }]);
    expect(bench.sink.notes.size).toBe(0);
  });

  it('reports rows that are added to a finished file after its final check, once per change', async () => {
    const bench = new CsvBench('settle: 10s, time_column: time', ONE);
    bench.write('a.csv', row(1));
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    await bench.clock.advance(60_000);
    const reportPath = join(bench.folder, 'done/a.csv.report.txt');
    for (let n = 2; n <= 3; n++) {
      appendFileSync(join(bench.folder, 'done/a.csv'), '2026-11-21T00:01:00Z,2\n');
      const laterS = statSync(reportPath).mtimeMs / 1_000 + 1;
      utimesSync(join(bench.folder, 'done/a.csv'), laterS, laterS);
      await bench.clock.advance(2 * 3_600_000);
      expect(bench.logged('csv.missed').length).toBe(n - 1);
    }
    expect(bench.logged('csv.missed')[0]).toMatchObject({ file: 'done/a.csv' });
    expect(bench.read('done/a.csv.report.txt')).toContain('Rows were added after the final check. They were not read.');
    expect(bench.values()).toEqual([1]);
  });

  it('does not read an edited file again after it was finished', async () => {
    const bench = new CsvBench('settle: 10s, time_column: time', ONE);
    bench.write('a.csv', row(1));
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    bench.write('done/a.csv', `${row(2)}${row(3)}`);
    await bench.clock.advance(60_000);
    expect([bench.values(), [...bench.sink.notes.keys()]]).toEqual([[1], ['source/drop/carried']]);
  });

  it('does not keep the long header of a finished file', async () => {
    const bench = new CsvBench('settle: 10s, time_column: time', ONE);
    const header = `time,n,${'x'.repeat(50_000)}`;
    bench.write('a.csv', `${header}\n2026-11-21T00:00:00Z,1\n`);
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    const [note] = [...bench.sink.notes].filter(([name]) => name.includes('/file/'));
    expect(note![1].length).toBeLessThan(header.length);
    appendFileSync(join(bench.folder, 'done/a.csv'), '2026-11-21T00:00:01Z,2\n');
    await bench.clock.advance(60_000);
    expect([bench.values(), [...bench.sink.notes.keys()]]).toEqual([[1], ['source/drop/carried']]);
  });

  it('shortens the header of a file that is not CSV in its report and log line', async () => {
    const bench = new CsvBench(TIMED, ONE);
    bench.write('a.csv', `${'x'.repeat(50_000)}\n`);
    await bench.open();
    await bench.until(() => bench.below('failed').length === 2);
    expect(bench.read('failed/a.csv.report.txt').length).toBeLessThan(1_000);
    expect(JSON.stringify(bench.logged('csv.failed')).length).toBeLessThan(1_000);
  });

  it('leaves no incomplete report behind if the disk is full', async () => {
    const bench = new CsvBench(TIMED, ONE);
    bench.write('a.csv', row(1));
    const full = vi.spyOn(fs, 'writeFileSync').mockImplementation(() => {
      throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
    });
    const restore = () => {
      full.mockRestore();
      syncBuiltinESMExports();
    };
    onTestFinished(restore);
    syncBuiltinESMExports();
    await bench.open();
    await bench.until(() => bench.logged('csv.not_moved').length === 1);
    await bench.clock.advance(5_000);
    expect([bench.below('done'), bench.below()]).toEqual([[], ['a.csv', 'done']]);
    restore();
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.below('done')).toEqual(['a.csv', 'a.csv.report.txt']);
  });

  it('reads a last line without a line ending with last_line: take', async () => {
    const bench = new CsvBench('settle: 50ms, last_line: take', ONE);
    bench.write('a.csv', 'n\n1\n2');
    await bench.open();
    await bench.until(() => bench.values().length === 2);
  });

  it.each([
    ['a row', 'settle: 50ms, header: false', 'n: { from: drop, column: 1 }', '133'],
    ['a header', 'settle: 50ms', ONE, 'm,n'],
  ])('rejects a file whose only line is %s without a line ending', async (_what, members, values, text) => {
    const bench = new CsvBench(members, values);
    bench.write('a.csv', text);
    await bench.open();
    await bench.until(() => bench.below('failed').length === 2);
    expect(bench.values()).toEqual([]);
    expect(bench.read('failed/a.csv.report.txt')).toContain('line 1: has no line ending and may be incomplete');
  });

  it('stores many small files in one commit', async () => {
    const bench = new CsvBench(TIMED, ONE);
    for (let n = 0; n < 200; n++) bench.write(`${n}.csv`, row(n));
    bench.sink.holds = true;
    await bench.open();
    await bench.until(() => bench.sink.waiting >= 200);
    await bench.clock.advance(1_000);
    expect(bench.below('done')).toEqual([]);
    bench.sink.commit();
    await bench.until(() => bench.below('done').length === 400);
    expect([bench.values().length, bench.sink.commits]).toEqual([200, 1]);
    await bench.clock.advance(30_000);
    expect(bench.logged('csv.taken')).toMatchObject([{ values: 1 }, { objects: 199, rows: 199, values: 199 }]);
  });

  it('reads a file once if it cannot be moved, even after a restart', async () => {
    const bench = new CsvBench('form: long, time_column: time, settle: 50ms', 'ph: { from: drop }');
    bench.write('done', 'in place of the folder');
    bench.write('a.csv', 'time,tag,key,value\n2026-11-21T00:00:00Z,T,ph,7.1\n2026-11-21T00:00:00Z,T,pH,1\n');
    for (let start = 1; start <= 2; start++) {
      await bench.open();
      await bench.until(() => bench.logged('csv.not_moved').length === start);
      expect(bench.status.hint).toContain('Links are not followed');
      if (start === 1) await bench.stop();
    }
    renameSync(join(bench.folder, 'done'), join(bench.folder, 'elsewhere'));
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.values()).toEqual([7.1]);
    expect(bench.read('done/a.csv.report.txt')).toContain('did you mean "T ph"?');
  });

  it('waits until a file has not changed for the settle time, and keeps files of the same name apart', async () => {
    const bench = new CsvBench('settle: 10s, time_column: time', ONE);
    await bench.open();
    bench.write('a.csv', 'time,n\n');
    await bench.clock.advance(8_000);
    appendFileSync(join(bench.folder, 'a.csv'), '2026-11-21T00:00:00Z,1\n');
    await bench.clock.advance(8_000);
    expect(bench.below()).toEqual(['a.csv']);
    await bench.until(() => bench.below('done').includes('a.csv'));
    bench.write('a.csv', row(2));
    await bench.until(() => bench.below('done').includes('a.csv.2'));
    expect(bench.values()).toEqual([1, 2]);
  });

  it('leaves files where they are while no value uses the source', async () => {
    const bench = new CsvBench('settle: 50ms', 'n: {}');
    bench.write('a.csv', row(1));
    await bench.open();
    await bench.clock.advance(5_000);
    expect([bench.below(), bench.status.connected]).toEqual([['a.csv'], true]);
  });

  it('follows no links, overwrites no files, and supports names that are not UTF-8', async () => {
    const bench = new CsvBench(`${TIMED}, pattern: "*"`, ONE);
    mkdirSync(join(bench.folder, 'done'));
    const victim = join(bench.folder, '.victim');
    writeFileSync(victim, 'acknowledged values');
    symlinkSync(victim, join(bench.folder, 'done/x.csv.report.txt'));
    symlinkSync(victim, join(bench.folder, 'link.csv'));
    bench.write('x.csv', row(1));
    bench.write('y.csv.report.txt', row(2));
    const name = Buffer.concat([Buffer.from(`${bench.folder}/`), Buffer.from('Z\xe4hler.csv', 'latin1')]);
    writeFileSync(name, row(3));
    await bench.open();
    await bench.until(() => bench.values().length === 2 && bench.below().length === 4);
    expect(bench.read('.victim')).toBe('acknowledged values');
    expect(bench.below()).toEqual(['.victim', 'done', 'link.csv', 'y.csv.report.txt']);
    await bench.clock.advance(30_000);
    expect(JSON.stringify(bench.logged('csv.taken'))).toContain('Z\\\\xe4hler.csv');
  });

  it.each(['utf-16le', 'utf-16be', 'windows-1252', 'utf-8'])('reads %s', async (encoding) => {
    const bench = new CsvBench(`settle: 50ms, encoding: ${encoding}`, 'n: { from: drop, column: Öl }');
    const text = 'Öl;m³\n1;2\n';
    const marked = encoding === 'windows-1252' ? text : `\ufeff${text}`;
    const label = { 'windows-1252': 'latin1', 'utf-8': 'utf8' }[encoding] ?? 'utf16le';
    const bytes = Buffer.from(marked, label as BufferEncoding);
    bench.write('a.csv', encoding === 'utf-16be' ? bytes.swap16() : bytes);
    await bench.open();
    await bench.until(() => bench.values().length === 1);
    bench.write('b.csv', Buffer.from([0x4f, 0x0a, 0xff, 0xfe, 0x00, 0xd8]));
    await bench.until(() => bench.below('failed').length === 2);
  });
});

describe('source of growing CSV files', () => {
  const MEMBERS = 'pattern: values.csv, tail: true, header: false, time_column: 1, time_format: unix';
  const COLUMN = 'n: { from: drop, column: 2 }';

  class Logger {
    written = 0;
    readonly path: string;

    constructor(bench: CsvBench) {
      this.path = join(bench.folder, 'values.csv');
    }

    write(rows: number, path = this.path): void {
      for (let n = 0; n < rows; n++) appendFileSync(path, `${1_700_000_000 + this.written},${this.written++}\n`);
    }

    get all(): number[] {
      return Array.from({ length: this.written }, (_, n) => n);
    }
  }

  it('reads each line once across rotations, incomplete lines and crashes', async () => {
    const bench = new CsvBench(MEMBERS, COLUMN);
    const logger = new Logger(bench);
    const { path } = logger;
    const arrived = () => bench.until(() => bench.values().length >= logger.written);
    logger.write(100);
    await bench.open();
    await arrived();
    appendFileSync(path, '1700000100,1');
    await bench.clock.advance(5_000);
    expect(bench.values()).toEqual(logger.all);
    appendFileSync(path, '00\n');
    logger.written++;
    renameSync(path, `${path}.1`);
    logger.write(1, `${path}.1`);
    logger.write(10);
    await arrived();
    await bench.crash();
    // Two rotations while the agent is stopped.
    logger.write(5);
    renameSync(`${path}.1`, `${path}.3`);
    renameSync(path, `${path}.2`);
    logger.write(5, `${path}.1`);
    utimesSync(`${path}.1`, new Date(), new Date(Date.now() + 5_000));
    logger.write(5);
    await bench.open();
    await arrived();
    await bench.clock.advance(15_000);
    expect(bench.values().toSorted((a, b) => a - b)).toEqual(logger.all);
    expect(bench.sink.notes.size).toBe(1);
    expect(bench.below('done')).toEqual([]);
    expect(bench.logged('csv.rotated_away')).toEqual([]);
  });

  it.each([
    ['is listed', 'list', 'values.csv'],
    ['is read', 'read', undefined],
  ])(
    'reads each line once if the file is rotated just before it %s and the agent is killed',
    async (_, call, pattern) => {
      const bench = new CsvBench(MEMBERS, COLUMN);
      const logger = new Logger(bench);
      const { path } = logger;
      logger.write(10);
      await bench.open();
      await bench.until(() => bench.values().length === 10);
      await bench.stop();
      logger.write(5);
      renameSync(path, `${path}.1`);
      logger.write(5);
      const { ino } = statSync(path);
      let rotations = 0;
      LocalProgram.isHung = ({ operation, args }) => {
        const isCall = operation === call && (args[2] === pattern || (args[1] as OpenedFile).identity === String(ino));
        if (!isCall || rotations++ > 0) return false;
        renameSync(path, `${path}.2`);
        logger.write(5);
        return false;
      };
      await bench.open();
      await bench.until(() => rotations > 0);
      await bench.crash();
      logger.write(5);
      renameSync(path, `${path}.3`);
      logger.write(5);
      await bench.open();
      await bench.until(() => bench.values().length >= logger.written);
      await bench.clock.advance(30_000);
      expect(bench.values().toSorted((a, b) => a - b)).toEqual(logger.all);
    },
  );

  it('reads lines that are written to a renamed file after the next file was created', async () => {
    const bench = new CsvBench(MEMBERS, COLUMN);
    const logger = new Logger(bench);
    const rotated = `${logger.path}.1`;
    logger.write(10);
    await bench.open();
    await bench.until(() => bench.values().length === 10);
    renameSync(logger.path, rotated);
    writeFileSync(logger.path, '');
    await bench.clock.advance(5_000);
    logger.write(5, rotated);
    await bench.until(() => bench.values().length === 15);
    await bench.crash();
    logger.write(5, rotated);
    await bench.open();
    await bench.until(() => bench.values().length === 20);
    logger.write(5);
    await bench.clock.advance(30_000);
    expect(bench.values()).toEqual(logger.all);
    expect(bench.sink.notes.size).toBe(1);
  });

  it('reports the first missing line if a file was removed while the agent was stopped', async () => {
    const bench = new CsvBench(MEMBERS, COLUMN);
    const logger = new Logger(bench);
    logger.write(10);
    await bench.open();
    await bench.until(() => bench.values().length === 10);
    await bench.stop();
    bench.shared.get<unknown>('csv', () => undefined);
    unlinkSync(logger.path);
    writeFileSync(join(bench.folder, '.keeps-the-inode'), '');
    logger.write(5);
    await bench.open();
    await bench.until(() => bench.values().length === 15);
    expect(bench.logged('csv.rotated_away')).toMatchObject([{ file: 'values.csv', line: 11 }]);
  });

  it.each([
    ['values.csv.1', true],
    ['values.csv.old', true],
    ['values.csv-20261128', true],
    ['values.csv.2026-11-28_12-00-00', true],
    ['values-20261128.csv', true],
    ['values.1.csv', true],
    ['values0.csv', false],
    ['values_daily.csv', false],
    ['values.csv.part', false],
    ['values.txt', false],
    ['values.csv.1.gz', false],
  ])('distinguishes rotated files from files of other sources by their name: %s', async (name, isRotated) => {
    const bench = new CsvBench(MEMBERS, COLUMN);
    const logger = new Logger(bench);
    logger.write(1);
    await bench.open();
    await bench.until(() => bench.values().length === 1);
    await bench.crash();
    renameSync(logger.path, `${logger.path}.2`);
    const other = join(bench.folder, name);
    writeFileSync(other, '1700000500,500\n');
    utimesSync(other, new Date(), new Date(Date.now() + 5_000));
    logger.write(1);
    await bench.open();
    await bench.until(() => bench.values().includes(1));
    await bench.clock.advance(30_000);
    expect(bench.values().includes(500)).toBe(isRotated);
  });

  it('continues to read a file whose rotated name matches the pattern', async () => {
    const bench = new CsvBench(MEMBERS.replace('values.csv', '"values*"'), COLUMN);
    const logger = new Logger(bench);
    logger.write(10);
    await bench.open();
    await bench.until(() => bench.values().length === 10);
    const rotated = join(bench.folder, 'values-1.csv');
    renameSync(logger.path, rotated);
    logger.write(5);
    logger.write(5, rotated);
    await bench.until(() => bench.values().length >= 20);
    await bench.clock.advance(5_000);
    expect(bench.values().toSorted((a, b) => a - b)).toEqual(logger.all);
  });

  it('reads a truncated or rewritten file from its beginning', async () => {
    const bench = new CsvBench(MEMBERS, COLUMN);
    const logger = new Logger(bench);
    logger.write(10);
    await bench.open();
    await bench.until(() => bench.values().length === 10);
    truncateSync(logger.path);
    writeFileSync(logger.path, '1700001000,7777\n');
    await bench.until(() => bench.values().includes(7777));
    writeFileSync(logger.path, '1700002000,8888\n1700002001,9999\n');
    await bench.until(() => bench.values().includes(9999));
    expect(bench.logged('csv.cut')).toMatchObject([{ line: 11 }, { line: 2 }]);
  });

  it('reads each row of a short file that was rewritten once, even after it was rotated during a restart', async () => {
    const bench = new CsvBench('pattern: values.csv, tail: true', ONE);
    const path = join(bench.folder, 'values.csv');
    const arrived = (count: number) => bench.until(() => bench.values().length >= count);
    bench.write('values.csv', 'm,n\n1,1\n1,2\n1,3\n');
    await bench.open();
    await arrived(3);
    bench.write('values.csv', 'm,n\n1,4\n');
    await arrived(4);
    appendFileSync(path, '1,5\n');
    await arrived(5);
    await bench.stop();
    appendFileSync(path, '1,6\n');
    renameSync(path, `${path}.1`);
    bench.write('values.csv', 'm,n\n1,7\n');
    await bench.open();
    await arrived(7);
    await bench.clock.advance(30_000);
    expect(bench.values()).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(bench.logged('csv.cut')).toMatchObject([{ line: 5 }]);
    expect(bench.sink.notes.size).toBe(1);
  });

  it('counts the rejected rows of a rewritten file', async () => {
    const bench = new CsvBench('tail: true', ONE);
    bench.write('a.csv', 'm,n\n1,x\n1,y\n1,1\n');
    await bench.open();
    await bench.until(() => bench.values().includes(1));
    bench.write('a.csv', 'm,n\n1,z\n1,2\n');
    await bench.until(() => bench.values().includes(2));
    expect(bench.status.errors).toBe(3);
    await bench.clock.advance(20_000);
    expect(bench.logged('csv.refused')).toMatchObject([{ refused: 2 }, { refused: 1 }]);
  });

  it.each(['time,n\n', ''])('reads a file that was copied and truncated, with the header %j', async (header) => {
    const bench = new CsvBench('tail: true, time_column: time', ONE);
    const at = '2026-11-21T00:00:0';
    bench.write('a.csv', `time,n\n${at}0Z,1\n`);
    await bench.open();
    await bench.until(() => bench.values().length === 1);
    // A writer without O_APPEND continues at its previous position.
    bench.write('a.csv', `${'\0'.repeat(100_000)}${header}${at}1Z,2\n`);
    await bench.until(() => bench.values().length === 2);
    await bench.crash();
    appendFileSync(join(bench.folder, 'a.csv'), `${at}2Z,3\n`);
    await bench.open();
    await bench.until(() => bench.values().length === 3);
    expect(bench.values()).toEqual([1, 2, 3]);
    expect(bench.logged('csv.cut').length).toBe(1);
  });

  it.each(['utf-8', 'windows-1252', 'utf-16le'])(
    'recognizes a header behind a byte order mark, as in joined files (%s)',
    async (encoding) => {
      const bench = new CsvBench(`tail: true, time_column: time, encoding: ${encoding}`, 'a: { from: drop }');
      const at = '"2026-11-21T00:00:0';
      const text = `\ufeff"time","a","b"\n${at}0Z","1","2"\n\ufeff"time","b","a"\n${at}1Z","20","10"\n`;
      writeFileSync(join(bench.folder, 'a.csv'), text, encoding === 'utf-16le' ? 'utf16le' : 'utf8');
      await bench.open();
      await bench.until(() => bench.values().length === 2);
      expect(bench.values()).toEqual([1, 10]);
      expect(bench.status.errors).toBe(0);
    },
  );

  it('rejects the rows below a header without value columns until the next header, even after a restart', async () => {
    const bench = new CsvBench('tail: true, units_row: 1, time_column: time', ONE);
    const at = '2026-11-21T00:00:0';
    const add = (text: string) => appendFileSync(join(bench.folder, 'a.csv'), text);
    bench.write('a.csv', `time,n\n,m\n${at}0Z,1\ntime,m\n`);
    await bench.open();
    await bench.until(() => bench.values().length === 1);
    await bench.crash();
    await bench.open();
    add(`,s\n${at}1Z,2\n`);
    await bench.until(() => bench.logged('csv.refused').length === 1);
    add('time,x,n\n');
    await bench.clock.advance(5_000);
    await bench.crash();
    await bench.open();
    add(`${at}2Z,7,7\n${at}3Z,8,3\n`);
    await bench.until(() => bench.values().length === 2);
    expect(bench.values()).toEqual([1, 3]);
    const error = expect.stringContaining('line 6: line 4: the header has no column');
    expect(bench.logged('csv.refused')).toMatchObject([{ refused: 1, error }]);
    expect(bench.logged('csv.unreadable')).toEqual([]);
  });

  it('rejects the rows below a header whose names differ in case', async () => {
    const bench = new CsvBench('tail: true, time_column: time', 'a: { from: drop }');
    const at = '2026-11-21T00:00:0';
    bench.write('a.csv', `time,a,b\n${at}0Z,1,2\nTime,b,a\n${at}1Z,20,10\ntime,b,a\n${at}2Z,30,15\n`);
    await bench.open();
    await bench.until(() => bench.values().length === 2);
    expect(bench.values()).toEqual([1, 15]);
    const error = 'line 4: line 3: the header has no column "time" (time_column); columns: Time, b, a';
    expect(bench.logged('csv.refused')).toMatchObject([{ refused: 1, error }]);
  });

  it('reads a file from its beginning after a change of its format', async () => {
    const bench = new CsvBench('tail: true, time_column: time', ONE);
    const at = '2026-11-21T00:00:0';
    bench.write('a.csv', `time,n\n${at}0Z,1\n${at}1Z,2\n`);
    await bench.open();
    await bench.until(() => bench.values().length === 2);
    await bench.stop();
    bench.spec.unitsRow = 1;
    await bench.open();
    await bench.until(() => bench.values().length === 3);
    expect([bench.values(), bench.logged('csv.cut').length]).toEqual([[1, 2, 2], 1]);
  });

  it('does not read a truncated file without a header by the columns of an unusable one', async () => {
    const bench = new CsvBench('tail: true, time_column: time', ONE);
    const at = '2026-11-21T00:00:0';
    bench.write('a.csv', `time,n\n${at}0Z,1\ntime,m\n${at}1Z,2\n`);
    await bench.open();
    await bench.until(() => bench.logged('csv.refused').length === 1);
    bench.write('a.csv', `${at}2Z,3\n`);
    await bench.until(() => bench.logged('csv.unreadable').length === 1);
    expect(bench.values()).toEqual([1]);
  });

  it.each([
    ['a byte that is not UTF-8', Buffer.from('\xff,2\n', 'latin1'), 'not valid utf-8'],
    ['a quote that is not closed', Buffer.from(`"x,2\n${'1,3\n'.repeat(20_000)}`), 'unterminated quote'],
    ['a line that is too long', Buffer.from(`${'x'.repeat(200_000)}\n`), 'longer than 64 KiB'],
  ])('rejects one row for %s, and reads the next ones', async (_what, bytes, problem) => {
    const bench = new CsvBench('tail: true', ONE);
    bench.write('a.csv', Buffer.concat([Buffer.from('m,n\n1,1\n'), bytes, Buffer.from('1,4\n')]));
    await bench.open();
    await bench.until(() => bench.values().includes(4));
    appendFileSync(join(bench.folder, 'a.csv'), '1,5\n');
    await bench.until(() => bench.values().includes(5));
    expect(bench.values().filter((value) => value !== 3)).toEqual([1, 4, 5]);
    expect(bench.values().length).toBe(problem === 'unterminated quote' ? 20_003 : 3);
    const error = expect.stringMatching(new RegExp(`^line 3: ${problem}`));
    expect(bench.logged('csv.refused')).toMatchObject([{ file: 'a.csv', refused: 1, error }]);
    expect(bench.logged('csv.unreadable')).toEqual([]);
  });

  it('rejects a line that is too long once, even if it is still being written after a restart', async () => {
    const bench = new CsvBench('tail: true', ONE);
    const path = join(bench.folder, 'a.csv');
    bench.write('a.csv', `m,n\n${'x'.repeat(100_000)}`);
    await bench.open();
    await bench.until(() => bench.logged('csv.refused').length === 1);
    await bench.stop();
    appendFileSync(path, `${'1,9'.repeat(100_000)}`);
    await bench.open();
    await bench.clock.advance(5_000);
    appendFileSync(path, ',9\n1,2\n');
    await bench.until(() => bench.values().length > 0);
    expect(bench.values()).toEqual([2]);
    expect(bench.logged('csv.refused')).toMatchObject([{ refused: 1 }]);
  });

  it.each([4_096, 300_000])('reads each row of a file preallocated with %d NUL bytes once', async (size) => {
    const bench = new CsvBench('tail: true', ONE);
    const path = join(bench.folder, 'a.csv');
    bench.write('a.csv', Buffer.alloc(size));
    let end = 0;
    const add = (text: string) => {
      const file = openSync(path, 'r+');
      end += writeSync(file, text, end);
      closeSync(file);
      utimesSync(path, new Date(), new Date(Date.now() + end * 1_000));
    };
    add('m,n\n1,131\n');
    await bench.open();
    for (let n = 2; n <= 6; n++) {
      await bench.until(() => bench.values().length === n - 1);
      if (n === 4) {
        await bench.crash();
        await bench.open();
      }
      add('1,13');
      await bench.clock.advance(5_000);
      add(`${n}\n`);
    }
    await bench.until(() => bench.values().length === 6);
    await bench.clock.advance(5_000);
    expect(bench.values()).toEqual([131, 132, 133, 134, 135, 136]);
    expect([bench.status.errors, bench.logged('csv.cut')]).toEqual([0, []]);
  });

  it('sends a bad value with the timestamp of the row', async () => {
    const bench = new CsvBench('tail: true, time_column: t', 'n: { from: drop, no_value: -1, on_failure: bad }');
    bench.write('a.csv', 't,n\n2026-01-01T00:00:00Z,1\n2026-01-01T00:01:00Z,-1\n2026-01-01T00:02:00Z,2\n');
    await bench.open();
    await bench.until(() => bench.values().length === 3);
    expect(bench.sink.stored.map(({ timeMs }) => new Date(timeMs).getUTCMinutes())).toEqual([0, 1, 2]);
    expect(bench.values()).toEqual([1, 1, 2]);
  });

  it.each([
    ['between digits', '1,2\0\x003\n'],
    ['before the line ending', `1,13${'\0'.repeat(4_000)}\r\n`],
    ['after another cell', '1\0\0,13\n'],
    ['before a number', '1,\0\x004.25\n'],
    ['after an incomplete row', `1,13${'\0'.repeat(100)}1,2\n`],
    ['in a block of more than 64 KiB after an incomplete row', `1,13${'\0'.repeat(300_000)}1,2\n`],
  ])('rejects a row with NUL bytes %s', async (_where, text) => {
    const bench = new CsvBench('tail: true', ONE);
    bench.write('a.csv', `m,n\n1,1\n${text}1,4\n`);
    await bench.open();
    await bench.until(() => bench.values().length === 2);
    appendFileSync(join(bench.folder, 'a.csv'), '1,5\n');
    await bench.until(() => bench.values().length === 3);
    expect(bench.values()).toEqual([1, 4, 5]);
    const error = 'line 3: contains null characters and may be incomplete';
    expect(bench.logged('csv.refused')).toMatchObject([{ refused: 1, error }]);
    expect(bench.logged('csv.cut')).toEqual([]);
  });

  it.each(['header of more than 256 bytes', 'first rows'])(
    'reads a larger file with the same %s from its beginning',
    async (beginning) => {
      const bench = new CsvBench('tail: true', 'n: { from: drop, column: 1 }');
      const header = beginning === 'first rows' ? `n\n${'1\n'.repeat(200)}` : `n,${'x'.repeat(300)}\n`;
      bench.write('a.csv', `${header}11\n12\n`);
      await bench.open();
      await bench.until(() => bench.values().includes(12));
      await bench.stop();
      bench.write('a.csv', `${header}21\n22\n23\n`);
      await bench.open();
      await bench.until(() => bench.values().includes(23));
      expect(bench.values().filter((value) => value > 1)).toEqual([11, 12, 21, 22, 23]);
      expect(bench.logged('csv.cut').length).toBe(1);
    },
  );
});

describe('folder of a CSV source', () => {
  it('is reported if it is missing, and read when it is restored', async () => {
    const bench = new CsvBench(TIMED, ONE);
    const moved = `${bench.folder}-moved`;
    bench.write('a.csv', row(1));
    renameSync(bench.folder, moved);
    await bench.open();
    await bench.until(() => bench.logged('csv.folder').length === 1);
    expect(bench.status.report(0)).toMatchObject({
      connected: false,
      problem: expect.stringContaining('does not exist'),
    });
    renameSync(moved, bench.folder);
    await bench.until(() => bench.values().length === 1);
    expect(bench.logged('csv.folder_over').length).toBe(1);
  });

  it.each(['settle: 50ms', 'tail: true'])('keeps its positions while its share is not mounted (%s)', async (mode) => {
    const bench = new CsvBench(`${mode}, time_column: time`, ONE);
    const share = `${bench.folder}-share`;
    renameSync(bench.folder, share);
    mkdirSync(bench.folder);
    // Files in this share cannot be moved.
    writeFileSync(join(share, 'done'), '');
    writeFileSync(join(share, 'a.csv'), row(1));
    const swap = () => {
      renameSync(bench.folder, `${share}-2`);
      renameSync(share, bench.folder);
      renameSync(`${share}-2`, share);
    };
    swap();
    await bench.open();
    await bench.until(() => bench.values().length === 1);
    await bench.clock.advance(5_000);
    swap();
    await bench.clock.advance(60_000);
    await bench.stop();
    await bench.open();
    await bench.clock.advance(60_000);
    swap();
    writeFileSync(join(bench.folder, 'b.csv'), row(2));
    await bench.until(() => bench.values().includes(2));
    await bench.clock.advance(60_000);
    expect(bench.values()).toEqual([1, 2]);
    rmSync(share, { recursive: true });
  });

  it('is disconnected after a deadline if it does not respond, and later read from the position on disk', async () => {
    const bench = new CsvBench('settle: 50ms', ONE);
    bench.write('a.csv', `n\n${Array.from({ length: 30_000 }, (_, n) => `${n}\n`).join('')}`);
    let reads = 0;
    LocalProgram.isHung = ({ operation }) => operation === 'read' && ++reads > 2;
    await bench.open();
    await bench.until(() => bench.logged('csv.folder').length === 1);
    expect(bench.status.hint).toContain('network share');
    LocalProgram.isHung = () => false;
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.values()).toEqual(Array.from({ length: 30_000 }, (_, n) => n));
  });

  it('does not block a stop while it is unresponsive', async () => {
    const bench = new CsvBench(TIMED, ONE);
    LocalProgram.isHung = () => true;
    await bench.open();
    await bench.clock.advance(1_000);
    await bench.stop();
    expect(bench.logged('csv.folder')).toEqual([]);
  });
});

describe('test of a CSV source', () => {
  it.each(['', 'done'])('reads the newest file in /%s and changes nothing', async (where) => {
    const bench = new CsvBench(TIMED, `${ONE}, m: { from: drop }`);
    if (where !== '') mkdirSync(join(bench.folder, where));
    bench.write(join(where, 'old.csv'), row(1));
    utimesSync(join(bench.folder, where, 'old.csv'), 1, 1);
    bench.write(join(where, 'new.csv'), row(2));
    bench.sink.holds = true;
    await bench.open(true);
    const tested = listenTo(bench.status, bench.points, bench.clock, 1_000, new AbortController().signal);
    await bench.clock.advance(2_000);
    expect(await tested).toMatchObject([
      { raw: 2, timeMs: Date.UTC(2026, 10, 21, 0, 0, 2) },
      { problem: expect.stringContaining('T m: the header has no column "m"') },
    ]);
    expect(bench.below(where)).toEqual(['new.csv', 'old.csv']);
  });

  it('reports a missing folder and a folder without files', async () => {
    const bench = new CsvBench(TIMED, ONE);
    await bench.open(true);
    await bench.clock.advance(1_000);
    expect(bench.status.problem).toContain('no file in');
  });
});
