import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { CsvSpec } from '../../../../src/sources/csv/columns.ts';
import { scanCsv } from '../../../../src/sources/csv/scan.ts';
import type { ScanStep } from '../../../../src/sources/source-kind.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';
import { localFolders } from './csv-bench.ts';

const folder = mkdtempSync(join(tmpdir(), 'tagferry-csv-scan-'));
afterAll(() => rmSync(folder, { recursive: true }));

const SPEC = {
  folder,
  pattern: '*.csv',
  encoding: 'utf-8',
  hasHeader: true,
  skipLines: 0,
  unitsRow: 0,
  form: 'wide',
  decimal: '.',
  timeColumns: [],
  time: { zone: 'UTC' },
};

async function stepsOf(text: string, more: Partial<CsvSpec>): Promise<ScanStep[]> {
  writeFileSync(join(folder, 'a.csv'), text);
  const clock = new ManualClock();
  const { signal } = new AbortController();
  return await Array.fromAsync(scanCsv({ ...SPEC, ...more } as CsvSpec, clock, signal, localFolders(clock)));
}

async function scan(text: string, more: Partial<CsvSpec>): Promise<unknown[]> {
  return (await stepsOf(text, more)).flatMap((step) => ('found' in step ? [step.found] : []));
}

/** Returns the members that the scan proposes for the source. */
async function proposed(text: string, more: Partial<CsvSpec> = {}): Promise<unknown> {
  return (await stepsOf(text, more)).find((step) => 'source' in step)?.source;
}

describe('CSV folder scan', () => {
  it('lists every column except the timestamp column under a unique key', async () => {
    const text = 'time;Flow [m³/h];Flow (m³/h);%\n2026-01-01T00:00:00Z;1,5;2;3\n';
    expect(await scan(text, { timeColumns: ['time'] })).toEqual([
      { key: 'flow_m_h', members: { column: 'Flow [m³/h]' }, sample: '1,5' },
      { key: 'flow_m_h_2', members: { column: 'Flow (m³/h)' }, sample: '2' },
      { key: 'column_4', members: { column: '%' }, sample: '3' },
    ]);
  });

  it('fails with a hint if the header is not valid in the encoding', async () => {
    writeFileSync(join(folder, 'a.csv'), Buffer.from('time;H\xf6he\n2026-01-01;1\n', 'latin1'));
    const clock = new ManualClock();
    const steps = scanCsv(SPEC as unknown as CsvSpec, clock, new AbortController().signal, localFolders(clock));
    await expect(Array.fromAsync(steps)).rejects.toThrow('not valid utf-8; set encoding, for example windows-1252');
  });

  it('skips unit rows and shows the units with the values', async () => {
    const text = 'Zeit;Flow;State\n;m³/h;\n2026-01-01T00:00:00Z;1;RUN\n';
    const flow = { key: 'flow', members: { column: 'Flow' }, sample: '1 m³/h' };
    const state = { key: 'state', members: { column: 'State' }, sample: 'RUN' };
    expect(await scan(text, { timeColumns: ['Zeit'], unitsRow: 1 })).toEqual([flow, state]);
    expect(await scan(text, {})).toEqual([flow, state]);
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
    const comments = async (more: Partial<CsvSpec>) =>
      (await stepsOf(text, more)).flatMap((step) => ('comment' in step ? [step.comment] : []));
    expect(await comments({ time: {} })).toEqual([
      'the times in column "Datum" and column "Zeit" have no UTC offset and are read as UTC; ' +
        'for local time, set zone, for example zone: Europe/Berlin',
    ]);
    expect(await comments({ time: { zone: 'UTC' } })).toEqual([]);
  });

  it('proposes only members that are missing from tags.yaml', async () => {
    const text = 'Datum;Zeit;Flow\n;;m³/h\n01.02.2026;12:00:01,250;1.234,5\n';
    const members = { decimal: ',', thousands: '.', unitsRow: 1, timeColumns: ['Datum', 'Zeit'] } as const;
    expect(await proposed(text)).toEqual({
      units_row: 1,
      decimal: ',',
      thousands: '.',
      time_column: ['Datum', 'Zeit'],
    });
    expect(await proposed(text, members)).toBeUndefined();
  });

  it.each([
    [
      'names in a column, as in archives of WinCC panels',
      'VarName;TimeString;VarValue;Validity;Time_ms\nTank 1;26.11.2026 15:07:53;66,5;1;46352630475,7\n$RT_OFF$;26.11.2026 15:07:54;0;2;46352630475,7\nP;26.11.2026 15:07:54;5;0;46352630475,7\n',
      {
        decimal: ',',
        time_column: 'TimeString',
        name_column: 'VarName',
        value_column: 'VarValue',
        quality_column: 'Validity',
        quality_map: { 0: 'bad', 1: 'good' },
      },
      [
        { key: 'tank_1', members: { name: 'Tank 1' }, sample: '66,5' },
        { key: 'p', members: { name: 'P' }, sample: '5' },
      ],
    ],
    [
      'a state of 0 and 1',
      'time,status\n2026-01-01,1\n2026-01-02,0\n',
      { time_column: 'time' },
      [{ key: 'status', members: { column: 'status' }, sample: '1' }],
    ],
  ])('proposes members and values for a file with %s', async (_what, text, members, values) => {
    expect(await proposed(text)).toEqual(members);
    expect(await scan(text, {})).toEqual(values);
  });

  it('lists tags and keys if the rows contain them', async () => {
    const text = 'time,tag,key,value\nx,S-4,ph,7.1\nx,S-5,ph,7.2\nx,S-4,ph,7.3\nx,S-4,ec,2\n';
    expect(await scan(text, { form: 'long', timeColumns: ['time'] })).toEqual([
      { tag: 'S-4', key: 'ph', members: {}, sample: '7.1' },
      { tag: 'S-5', key: 'ph', members: {}, sample: '7.2' },
      { tag: 'S-4', key: 'ec', members: {}, sample: '2' },
    ]);
  });
});
