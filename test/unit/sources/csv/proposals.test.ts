import { describe, expect, it } from 'vitest';
import { proposedLine } from '../../../../src/commands/sources/report-text.ts';
import { scanCsv } from '../../../../src/sources/csv/scan.ts';
import { CsvBench, localFolders } from './csv-bench.ts';

/** Returns members of a source, and values, that a scan of a file proposes. */
async function scan(text: string): Promise<{ members: string; values: string }> {
  const bench = new CsvBench('', 'none: { from: drop }');
  bench.write('a.csv', text);
  const { signal } = new AbortController();
  const steps = await Array.fromAsync(scanCsv(bench.spec, bench.clock, signal, localFolders(bench.clock)));
  const source = steps.find((step) => 'source' in step)?.source ?? {};
  const values = steps.flatMap((step) =>
    'found' in step ? [`${step.found.key}: ${JSON.stringify({ from: 'drop', ...step.found.members })}`] : [],
  );
  return { members: proposedLine('drop', source).replace(/^.*sources: |\n$/g, ''), values: values.join(', ') };
}

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
      'VarName;TimeString;VarValue;Validity;Time_ms\n"A/1";05.03.2026 12:00:00;1,5;1;46086500000,0\n"B";05.03.2026 12:00:00;2;0;46086500000,0\n',
      ['a_1 1.5 2026-03-05T12:00:00.000Z good', 'b 2 2026-03-05T12:00:00.000Z bad'],
    ],
  ])('read a file with %s', async (_what, text, expected) => {
    const { members, values } = await scan(text);
    const bench = new CsvBench(`${members}, settle: 50ms`, values);
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
