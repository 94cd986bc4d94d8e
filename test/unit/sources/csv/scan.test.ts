import { describe, expect, it } from 'vitest';
import { proposedLine } from '../../../../src/commands/sources/report-text.ts';
import { scanCsv } from '../../../../src/sources/csv/scan.ts';
import type { ScanStep } from '../../../../src/sources/source-kind.ts';
import { CsvBench, localFolders } from './csv-bench.ts';

/** Scans a folder with one file. `members`: members of the source in tags.yaml. */
async function stepsOf(text: string | Buffer, members: string): Promise<ScanStep[]> {
  const bench = new CsvBench(members, 'none: { from: drop }');
  bench.write('a.csv', text);
  const { signal } = new AbortController();
  return await Array.fromAsync(scanCsv(bench.spec, bench.clock, signal, localFolders(bench.clock)));
}

/** Returns the values that a scan finds. */
async function scan(text: string, members = '') {
  return (await stepsOf(text, members)).flatMap((step) => ('found' in step ? [step.found] : []));
}

/** Returns the members that a scan proposes for the source. */
async function proposed(text: string, members = '') {
  return (await stepsOf(text, members)).find((step) => 'source' in step)?.source;
}

describe('CSV folder scan', () => {
  it('lists every column except the timestamp column under a unique key', async () => {
    const text = 'time;Flow [m³/h];Flow (m³/h);%\n2026-01-01T00:00:00Z;1,5;2;3\n';
    expect(await scan(text, 'time_column: time')).toEqual([
      { key: 'flow_m_h', members: { column: 'Flow [m³/h]' }, sample: '1,5' },
      { key: 'flow_m_h_2', members: { column: 'Flow (m³/h)' }, sample: '2' },
      { key: 'column_4', members: { column: '%' }, sample: '3' },
    ]);
  });

  it('fails with a hint if the header is not valid in the encoding', async () => {
    const steps = stepsOf(Buffer.from('time;H\xf6he\n2026-01-01;1\n', 'latin1'), '');
    await expect(steps).rejects.toThrow('not valid utf-8; set encoding, for example windows-1252');
  });

  it('skips unit rows and shows the units with the values', async () => {
    const text = 'Zeit;Flow;State\n;m³/h;\n2026-01-01T00:00:00Z;1;RUN\n';
    const flow = { key: 'flow', members: { column: 'Flow' }, sample: '1 m³/h' };
    const state = { key: 'state', members: { column: 'State' }, sample: 'RUN' };
    expect(await scan(text, 'time_column: Zeit, units_row: 1')).toEqual([flow, state]);
    expect(await scan(text)).toEqual([flow, state]);
  });

  it.each([
    ['commas as thousands separators', 'time;Flow\n2026-01-01;1,234.5\n', { thousands: ',', time_column: 'time' }],
    [
      'spaces as thousands separators',
      'time;Flow\n2026-01-01;1 234,5\n',
      { decimal: ',', thousands: ' ', time_column: 'time' },
    ],
    [
      'apostrophes as thousands separators',
      "time;Flow\n2026-01-01;12'345.5\n",
      { thousands: "'", time_column: 'time' },
    ],
    ['dates whose order is unknown', 'when;Flow\n01/02/2026 12:00;1\n', { time_column: 'when' }],
    ['only numbers', 'a;b\n1;2.5\n', undefined],
  ])('proposes members for a file with %s', async (_what, text, members) => {
    expect(await proposed(text)).toEqual(members);
  });

  it('comments on times without an offset unless zone is set', async () => {
    const text = 'Datum;Zeit;P\n05.03.2026;12:00;1\n';
    const comments = async (members: string) =>
      (await stepsOf(text, members)).flatMap((step) => ('comment' in step ? [step.comment] : []));
    expect(await comments('')).toEqual([
      'the times in column "Datum" and column "Zeit" have no UTC offset and are read as UTC; ' +
        'for local time, set zone, for example zone: Europe/Berlin',
    ]);
    expect(await comments('zone: UTC')).toEqual([]);
  });

  it('proposes only members that are missing from tags.yaml', async () => {
    const text = 'Datum;Zeit;Flow\n;;m³/h\n01.02.2026;12:00:01,250;1.234,5\n';
    const members = 'decimal: ",", thousands: ".", units_row: 1, time_column: [Datum, Zeit]';
    expect(await proposed(text)).toEqual({
      units_row: 1,
      decimal: ',',
      thousands: '.',
      time_column: ['Datum', 'Zeit'],
    });
    expect(await proposed(text, members)).toBeUndefined();
  });

  it('does not propose a state of 0 and 1 as a quality', async () => {
    const text = 'time,status\n2026-01-01,1\n2026-01-02,0\n';
    expect(await proposed(text)).toEqual({ time_column: 'time' });
    expect(await scan(text)).toEqual([{ key: 'status', members: { column: 'status' }, sample: '1' }]);
  });

  it('lists tags and keys if the rows contain them', async () => {
    const text = 'time,tag,key,value\nx,S-4,ph,7.1\nx,S-5,ph,7.2\nx,S-4,ph,7.3\nx,S-4,ec,2\n';
    expect(await scan(text, 'form: long, time_column: time')).toEqual([
      { tag: 'S-4', key: 'ph', members: {}, sample: '7.1' },
      { tag: 'S-5', key: 'ph', members: {}, sample: '7.2' },
      { tag: 'S-4', key: 'ec', members: {}, sample: '2' },
    ]);
  });
});

const STATUSES = ['', ' good', ' uncertain', ' bad'];

describe('members and values that a scan proposes', () => {
  it.each([
    ['a units row', 'time;Flow\n;m³/h\n2026-03-05 12:00:00;1.5\n', ['flow 1.5 2026-03-05T12:00:00.000Z']],
    [
      'several rows below the header, as in TOA5 files',
      'TIMESTAMP,P\nTS,bar\n,Avg\n"2026-03-05 12:00:00",1.5\n',
      ['p 1.5 2026-03-05T12:00:00.000Z'],
    ],
    ['decimal commas', 'time;P\n05.03.2026 12:00;-1,5\n', ['p -1.5 2026-03-05T12:00:00.000Z']],
    ['thousands separators', 'time;P\n05.03.2026 12:00;1.234,5\n', ['p 1234.5 2026-03-05T12:00:00.000Z']],
    ['fractions of a second after a comma', 'time;P\n05.03.2026 12:00:01,250;1\n', ['p 1 2026-03-05T12:00:01.250Z']],
    ['date and time in two columns', 'Datum;Zeit;P\n05.03.2026;12:00:01;1\n', ['p 1 2026-03-05T12:00:01.000Z']],
    ['names of months', 'time;P\n05-Mär-2026 12:00:01;1\n', ['p 1 2026-03-05T12:00:01.000Z']],
    ['American times', 'time,P\n3/25/2026 1:00:01 PM,1\n', ['p 1 2026-03-25T13:00:01.000Z']],
    [
      'milliseconds in a column',
      'Date,Time,Millisecond,P\n2026/03/25,13:00:01,5,1\n',
      ['p 1 2026-03-25T13:00:01.005Z'],
    ],
    [
      'a quality in words',
      'time,P,State\n2026-03-05,1,Good\n2026-03-06,2,Bad\n',
      ['p 1 2026-03-05T00:00:00.000Z good', 'p 2 2026-03-06T00:00:00.000Z bad'],
    ],
    ['a quality as an OPC code', 'time,P,P Quality\n2026-03-05,1,192\n', ['p 1 2026-03-05T00:00:00.000Z good']],
    [
      'columns with the same names',
      'time,P,State,P,State\n2026-03-05,1,Good,2,Bad\n2026-03-06,3,Good,4,Good\n',
      [
        'p 1 2026-03-05T00:00:00.000Z good',
        'p_2 2 2026-03-05T00:00:00.000Z bad',
        'p 3 2026-03-06T00:00:00.000Z good',
        'p_2 4 2026-03-06T00:00:00.000Z good',
      ],
    ],
    [
      'one value per row with its name in a column',
      'VarName;TimeString;VarValue;Validity;Time_ms\n"A/1";05.03.2026 12:00:00;1,5;1;46086500000,0\n"$RT_OFF$";05.03.2026 12:00:00;0;0;46086500000,0\n"B";05.03.2026 12:00:00;2;0;46086500000,0\n',
      ['a_1 1.5 2026-03-05T12:00:00.000Z good', 'b 2 2026-03-05T12:00:00.000Z bad'],
    ],
  ])('read a file with %s', async (_what, text, expected) => {
    const members = proposedLine('drop', (await proposed(text))!).replace(/^.*sources: |\n$/g, '');
    const values = (await scan(text)).map(
      (found) => `${found.key}: ${JSON.stringify({ from: 'drop', ...found.members })}`,
    );
    const bench = new CsvBench(`${members}, settle: 50ms`, values.join(', '));
    bench.write('a.csv', text);
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    const stored = bench.sink.stored.map(({ address, value, timeMs, status }) => {
      return `${address.split('/')[2]} ${value} ${new Date(timeMs).toISOString()}${STATUSES[status]}`;
    });
    expect(stored).toEqual(expected);
    expect(bench.status.errors).toBe(0);
  });
});
