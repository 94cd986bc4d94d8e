import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { listenTo } from '../../../../src/sources/source-test.ts';
import { CsvBench } from './csv-bench.ts';

/** Archive of a Siemens WinCC panel. */
const WINCC = [
  '"VarName";"TimeString";"VarValue";"Validity";"Time_ms"',
  '"Tank1_Level";"26.11.2026 15:07:53";66,5;1;46352630475,694446',
  '"Tank1_Temp";"26.11.2026 15:07:53";21,25;1;46352630475,694446',
  '"Tank1_Level";"26.11.2026 15:08:53";67,5;0;46352631170,138891',
  '"Pump_Hours";"26.11.2026 15:08:53";120;1;46352631170,138891',
  '"$RT_OFF$";"26.11.2026 15:09:00";0;2;46352631251,157406',
  '',
].join('\r\n');
const MEMBERS = 'settle: 50ms, decimal: ",", zone: Europe/Berlin, name_column: VarName, value_column: VarValue';
const QUALITY = 'quality_column: Validity, quality_map: { 1: good, 0: bad }';
const VALUES = 'level: { from: drop, name: Tank1_Level }, temp: { from: drop, name: Tank1_Temp }';
const STATUSES = ['', 'good', 'uncertain', 'bad'];

const storedIn = (bench: CsvBench) =>
  bench.sink.stored.map(({ address, value, timeMs, status }) => [
    address.split('/')[2],
    value,
    new Date(timeMs).toISOString().slice(11, 23),
    STATUSES[status],
  ]);

describe('CSV file with one value per row', () => {
  it('is read with the milliseconds of the column Time_ms', async () => {
    const bench = new CsvBench(`${MEMBERS}, time_column: Time_ms, time_format: wincc`, VALUES);
    bench.write('a.csv', WINCC);
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect(storedIn(bench)[0]).toEqual(['level', 66.5, '14:07:53.100', '']);
  });

  it('is set aside if tags.yaml contains none of its names', async () => {
    const bench = new CsvBench(`${MEMBERS}, time_column: TimeString`, 'level: { from: drop, name: Tank2_Level }');
    bench.write('a.csv', WINCC);
    await bench.open();
    await bench.until(() => bench.below('failed').length === 2);
    const problem =
      'tags.yaml contains no value of this source with the name "Tank1_Level", "Tank1_Temp", "Pump_Hours"';
    expect(bench.read('failed/a.csv.report.txt')).toBe(
      `a.csv: 5 rows read, 0 values stored, 0 rejected, 5 rows ignored.\nRows ignored: ${problem}, "$RT_OFF$"\n`,
    );
    expect(bench.status.report(0).rejected).toMatchObject({ problem: expect.stringContaining(problem) });
  });

  it('supplies several values from one name, and is read while it grows', async () => {
    const bench = new CsvBench(
      'tail: true, header: false, time_column: 1, name_column: 2, value_column: 3',
      'raw: { from: drop, name: P }, scaled: { from: drop, name: P, scale: 2 }',
    );
    bench.write('a.csv', '2026-01-01T00:00:00Z,P,1\n');
    await bench.open();
    await bench.until(() => bench.values().length === 2);
    appendFileSync(join(bench.folder, 'a.csv'), '2026-01-01T00:00:01Z,P,2\n');
    await bench.until(() => bench.values().length === 4);
    expect([bench.values('raw'), bench.values('scaled')]).toEqual([
      [1, 2],
      [2, 4],
    ]);
  });

  it('shows the quality, and the names if a value is missing, in a test', async () => {
    const bench = new CsvBench(
      `${MEMBERS}, time_column: TimeString, ${QUALITY}`,
      `${VALUES}, pump: { from: drop, name: Pump }`,
    );
    bench.write('a.csv', WINCC);
    await bench.open(true);
    const tested = listenTo(bench.status, bench.points, bench.clock, 1_000, new AbortController().signal);
    await bench.clock.advance(2_000);
    expect(await tested).toMatchObject([
      { raw: 66.5, quality: 'good' },
      { raw: 21.25, quality: 'good' },
      { problem: expect.stringContaining('with the name "Pump_Hours"') },
    ]);
  });
});

describe('CSV quality column', () => {
  it.each([
    ['Good', 'good'],
    ['GOOD', 'good'],
    ['Good, non-specific', 'good'],
    ['UncertainLastUsableValue', 'uncertain'],
    ['Bad [Not Connected]', 'bad'],
    ['192', 'good'],
    ['216', 'good'],
    ['255', 'good'],
    ['64', 'uncertain'],
    ['127', 'uncertain'],
    ['0', 'bad'],
    ['24', 'bad'],
    ['63', 'bad'],
    ['OK', 'good'],
    ['192.0', 'good'],
  ])('reads %s as %s', async (text, status) => {
    const bench = new CsvBench(
      'settle: 50ms, separator: ";", time_column: t, quality_column: q, quality_map: { OK: good }',
      'n: { from: drop }',
    );
    bench.write('a.csv', `t;n;q\n2026-01-01T00:00:00Z;1;${text}\n`);
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect(storedIn(bench)).toEqual([['n', 1, '00:00:00.000', status]]);
  });

  it.each(['1', '128', '256', '-1', '', 'ok', 'not good', '0x80'])(
    'rejects the cell with quality %j, and reports it',
    async (text) => {
      const bench = new CsvBench('settle: 50ms, time_column: t, quality_column: q', 'n: { from: drop }');
      bench.write('a.csv', `t,n,q\n2026-01-01T00:00:00Z,1,${text}\n2026-01-01T00:00:01Z,2,Good\n`);
      await bench.open();
      await bench.until(() => bench.below('done').length === 2);
      expect(bench.values()).toEqual([2]);
      const shown = JSON.stringify(text);
      const problem = `line 2: T n: unknown quality ${shown}; set quality_map: { ${shown}: <good, uncertain or bad> }`;
      expect(bench.read('done/a.csv.report.txt')).toContain(problem);
      expect(bench.status.report(0).rejected).toMatchObject({ count: 1 });
      expect(bench.status.errors).toBe(1);
    },
  );

  it('can differ between values, and marks an empty value as bad', async () => {
    const bench = new CsvBench(
      'settle: 50ms, time_column: t, quality_column: q',
      'a: { from: drop, quality_column: a_q }, b: { from: drop, on_failure: bad }',
    );
    const rows = ['00Z,1,Good,10,192', '01Z,2,Bad,11,64', '02Z,,Good,,0', '03Z,3,Uncertain,,Good'];
    bench.write('x.csv', `t,a,a_q,b,q\n${rows.map((row) => `2026-01-01T00:00:${row}\n`).join('')}`);
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect(storedIn(bench)).toEqual([
      ['a', 1, '00:00:00.000', 'good'],
      ['b', 10, '00:00:00.000', 'good'],
      ['a', 2, '00:00:01.000', 'bad'],
      ['b', 11, '00:00:01.000', 'uncertain'],
      ['b', 11, '00:00:02.000', 'bad'],
      ['a', 3, '00:00:03.000', 'uncertain'],
    ]);
    expect(bench.read('done/x.csv.report.txt')).toContain('line 4: T b: no value, quality "0"');
  });

  it('is required in the header', async () => {
    const bench = new CsvBench('settle: 50ms, time_column: t, quality_column: q', 'n: { from: drop }');
    bench.write('a.csv', 't,n\n2026-01-01T00:00:00Z,1\n');
    await bench.open();
    await bench.until(() => bench.below('failed').length === 2);
    expect(bench.read('failed/a.csv.report.txt')).toContain('the header has no column "q" (quality_column)');
  });
});

describe('CSV cell with other separators', () => {
  it.each([
    ['21,5', '.', 'set decimal: ","'],
    ['1.234,5', '.', 'set decimal: ",", thousands: "."'],
    ['1,234', '.', 'set decimal: "," or thousands: ","'],
    ['1.234', ',', 'set thousands: "."'],
    ["1'234.5", '.', 'set thousands: "\'"'],
    ['21.5 kg', '.', ''],
  ])('is rejected with a suggestion: %s with decimal %j', async (text, decimal, suggestion) => {
    const bench = new CsvBench(`settle: 50ms, separator: ";", decimal: "${decimal}"`, 'n: { from: drop }');
    bench.write('a.csv', `m;n\n1;${text}\n`);
    await bench.open();
    await bench.until(() => bench.below('failed').length === 2);
    const advice = suggestion === '' ? '' : `; ${suggestion}`;
    expect(bench.read('failed/a.csv.report.txt')).toContain(`"${text}" is not a number${advice}\n`);
  });
});
