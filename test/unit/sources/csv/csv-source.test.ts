import {
  appendFileSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { listenTo } from '../../../../src/sources/source-test.ts';
import { CsvBench, LocalProgram } from './csv-bench.ts';

const ONE = 'n: { from: drop }';
const TIMED = 'settle: 50ms, time_column: time';
const row = (n: number) => `time,n\n2026-11-21T00:00:${String(n % 60).padStart(2, '0')}Z,${n}\n`;

describe('source of complete CSV files', () => {
  it('stores valid rows, reports invalid ones next to the file, and sets unusable files aside', async () => {
    const bench = new CsvBench(
      'decimal: ",", zone: Europe/Berlin, time_column: [Datum, Zeit], settle: 50ms, skip_lines: 1',
      'flow: { from: drop, column: Fluss }, level: { from: drop }',
    );
    const rows = ['25.10.2026;02:00;1,5;7', '25.10.2026;02:30;2,5;', '25.10.2026;02:00;3,5;8', '25.10.2026;02:30;x;9'];
    bench.write('night.csv', ['Logger "7', 'Datum;Zeit;Fluss;level', ...rows, 'gestern;;1;1', ''].join('\n'));
    bench.write('other.csv', 'Logger 7\nThis;is\nsomething;else\n');
    bench.write('empty.csv', '');
    bench.write('.hidden.csv', 'Logger 7\nDatum;Zeit;Fluss\n25.10.2026;03:00;99\n');
    await bench.open();
    await bench.until(() => bench.below('done').length === 2 && bench.below('failed').length === 4);
    const flow = bench.sink.stored.filter(({ address }) => address.includes('/flow/'));
    expect(flow.map(({ value, timeMs }) => [value, new Date(timeMs).toISOString()])).toEqual([
      [1.5, '2026-10-25T00:00:00.000Z'],
      [2.5, '2026-10-25T00:30:00.000Z'],
      [3.5, '2026-10-25T01:00:00.000Z'],
    ]);
    const report = bench.read('done/night.csv.report.txt');
    expect(report).toContain('6 values of 5 rows were stored, 2 rejected');
    expect(report).toContain('Lines 3 to 6: an hour that occurred twice in Europe/Berlin');
    expect(report).toContain('line 6: T flow: "x" is not a number');
    expect(report).toContain('line 7: "gestern" ');
    expect(bench.read('failed/other.csv.report.txt')).toContain('has no column "Datum"');
    expect(bench.read('failed/empty.csv.report.txt')).toContain('the file is empty');
    expect(bench.status.errors).toBe(4);
    expect(bench.below()).toEqual(['.hidden.csv', 'done', 'failed']);
    expect(bench.sink.notes.size).toBe(0);
  });

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
    bench.write('a.csv', 'text;n;"m;\n2"\n1,"pipe;1;2\n"a ""b""\nc";3;4\n"a"b;5;6\n;7;8');
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect([bench.values('n'), bench.values('m')]).toEqual([
      [1, 3, 7],
      [2, 4, 8],
    ]);
    expect(bench.read('done/a.csv.report.txt')).toContain('line 6: unexpected text after a closing quote');
  });

  it('moves a file only when its values are on disk, and stores each row once across crashes', async () => {
    const bench = new CsvBench('settle: 50ms', ONE);
    const rows = 100_000;
    bench.write('large.csv', `n\n${Array.from({ length: rows }, (_, n) => `${n}\n`).join('')}`);
    bench.sink.holds = true;
    await bench.open();
    for (let crash = 0; crash < 3; crash++) {
      await bench.until(() => bench.sink.waiting > 0);
      await bench.crash();
      expect(bench.below()).toEqual(['large.csv']);
      bench.sink.holds = true;
      await bench.open();
      await bench.until(() => bench.sink.waiting > 0);
      bench.sink.commit();
      await bench.clock.advance(0);
    }
    bench.sink.holds = false;
    bench.sink.commit();
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.values()).toEqual(Array.from({ length: rows }, (_, n) => n));
    expect(bench.read('done/large.csv.report.txt')).toBe(
      'large.csv: 100,000 values of 100,000 rows were stored, 0 rejected.\n',
    );
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

  it('deletes finished files when their retention period is over', async () => {
    const bench = new CsvBench('keep: 1h, settle: 50ms', ONE);
    mkdirSync(join(bench.folder, 'done'));
    const nowS = bench.clock.wallMs() / 1_000;
    for (const [name, ageS] of [
      ['old.csv', 4_000],
      ['new.csv', 3_000],
    ] as const) {
      for (const file of [name, `${name}.report.txt`]) {
        bench.write(`done/${file}`, '');
        utimesSync(join(bench.folder, 'done', file), nowS - ageS, nowS - ageS);
      }
    }
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.below('done')).toEqual(['new.csv', 'new.csv.report.txt']);
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
    await bench.clock.advance(5_000);
    expect(bench.values().toSorted((a, b) => a - b)).toEqual(logger.all);
    expect(bench.sink.notes.size).toBe(1);
    expect(bench.below('done')).toEqual([]);
    expect(bench.logged('csv.rotated_away')).toEqual([]);
  });

  it('reads the rest of a file that was compressed and removed after its rotation', async () => {
    const bench = new CsvBench(MEMBERS, COLUMN);
    const logger = new Logger(bench);
    logger.write(10);
    await bench.open();
    await bench.until(() => bench.values().length === 10);
    logger.write(5);
    unlinkSync(logger.path);
    logger.write(5);
    await bench.until(() => bench.values().length >= 20);
    expect(bench.values()).toEqual(logger.all);
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

  it('reads the header again after a restart, and reports rejected lines', async () => {
    const bench = new CsvBench('tail: true, units_row: 1', ONE);
    bench.write('a.csv', 'm,n\n');
    await bench.open();
    await bench.clock.advance(5_000);
    appendFileSync(join(bench.folder, 'a.csv'), ',m³\n1,2\n');
    await bench.until(() => bench.values().length === 1);
    await bench.crash();
    await bench.open();
    appendFileSync(join(bench.folder, 'a.csv'), '1,x\n1,3\n');
    await bench.until(() => bench.values().length === 2);
    expect(bench.values()).toEqual([2, 3]);
    expect(bench.logged('csv.refused')).toMatchObject([{ refused: 1, error: expect.stringContaining('line 4') }]);
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

  it('skips NUL bytes', async () => {
    const bench = new CsvBench('tail: true', ONE);
    bench.write('a.csv', `m,n\n1,1\n${'\0'.repeat(100_000)}1,2\n1,\0\x003\0\n\0\n`);
    await bench.open();
    await bench.until(() => bench.values().length === 3);
    expect(bench.values()).toEqual([1, 2, 3]);
    expect(bench.status.errors).toBe(0);
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
      { problem: expect.stringContaining('no column for T m') },
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
