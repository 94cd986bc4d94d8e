import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { scanCsv } from '../../../src/sources/csv/csv-look.ts';
import type { CsvSpec } from '../../../src/sources/csv/csv-spec.ts';

const folder = mkdtempSync(join(tmpdir(), 'tagferry-csv-look-'));
afterAll(() => rmSync(folder, { recursive: true }));

async function scan(text: string, more: Partial<CsvSpec>): Promise<unknown[]> {
  writeFileSync(join(folder, 'a.csv'), text);
  const spec = { folder, pattern: '*.csv', encoding: 'utf-8', hasHeader: true, skipLines: 0, form: 'wide', ...more };
  const found: unknown[] = [];
  for await (const step of scanCsv(spec as CsvSpec, new AbortController().signal))
    if ('found' in step) found.push(step.found);
  return found;
}

describe('a scan of a folder of CSV', () => {
  it('lists each column beside the time, by keys of which each is given once', async () => {
    const text = 'time;Flow [m³/h];Flow (m³/h);%\n2026-01-01T00:00:00Z;1,5;2;3\n';
    expect(await scan(text, { timeColumns: ['time'] })).toEqual([
      { key: 'flow_m_h', members: { column: 'Flow [m³/h]' }, sample: '1,5' },
      { key: 'flow_m_h_2', members: { column: 'Flow (m³/h)' }, sample: '2' },
      { key: 'column_4', members: { column: '%' }, sample: '3' },
    ]);
  });

  it('lists tags and keys where rows name them', async () => {
    const text = 'time,tag,key,value\nx,S-4,ph,7.1\nx,S-5,ph,7.2\nx,S-4,ph,7.3\nx,S-4,ec,2\n';
    expect(await scan(text, { form: 'long', timeColumns: ['time'] })).toEqual([
      { tag: 'S-4', key: 'ph', members: {}, sample: '7.1' },
      { tag: 'S-5', key: 'ph', members: {}, sample: '7.2' },
      { tag: 'S-4', key: 'ec', members: {}, sample: '2' },
    ]);
  });
});
