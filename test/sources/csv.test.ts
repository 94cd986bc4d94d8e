import { describe, expect, it } from 'vitest';
import { readCsv } from '../../src/sources/csv/csv.ts';
import { importRecords } from '../../src/sources/csv/csv-import.ts';
import { makeIntakeBench, seeded, storeFault } from './sink-double.ts';

async function* pieces(text: string, length = text.length): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

async function recordsOf(text: string, length?: number): Promise<string[][]> {
  const records: string[][] = [];
  for await (const { fields } of readCsv(pieces(text, length))) records.push(fields);
  return records;
}

const HEADER = 'tag,key,value,timestamp,status\n';
const AT_MS = Date.UTC(2026, 10, 21);

describe('readCsv', () => {
  it('gives back random records, however the bytes are cut', async () => {
    const random = seeded(11);
    const letters = ['a', 'é', '"', ',', '\n', '\r\n', ' ', ';', '5', '€'];
    for (let round = 0; round < 300; round++) {
      const records = Array.from({ length: 1 + Math.floor(random() * 5) }, () =>
        Array.from(
          { length: 3 },
          (_, at) =>
            `${at === 0 ? 'x' : ''}${Array.from({ length: Math.floor(random() * 5) }, () => letters[Math.floor(random() * letters.length)]).join('')}`,
        ),
      );
      const lines = records.map((fields) => fields.map((field) => `"${field.replaceAll('"', '""')}"`).join(','));
      const text = `a,b,c\n${lines.join(random() < 0.5 ? '\n' : '\r\n')}`;
      const read = await recordsOf(text, 1 + Math.floor(random() * 7));
      expect(read).toEqual([['a', 'b', 'c'], ...records]);
    }
  });

  it('takes the separator of the header, leaves empty lines out and names lines as an editor does', async () => {
    const found: [number, string[]][] = [];
    const text = '\ufeffa;b\n\n"x\ny";1,5\r\n\r\nz;\n';
    for await (const { line, fields } of readCsv(pieces(text))) found.push([line, fields]);
    expect(found).toEqual([
      [1, ['a', 'b']],
      [3, ['x\ny', '1,5']],
      [6, ['z', '']],
    ]);
    expect(await recordsOf('a\tb\n1\t2')).toEqual([
      ['a', 'b'],
      ['1', '2'],
    ]);
  });

  it.each([
    ['a quote without an end', 'a,b\n"x,1'],
    ['something behind a quote', 'a,b\n"x"y,1\n'],
    ['a record without bounds', `a,b\n"${'x'.repeat(100_000)}`],
  ])('refuses %s', async (_what, text) => {
    await expect(recordsOf(text, 4096)).rejects.toMatchObject({
      code: 'intake.unreadable',
      message: expect.stringMatching(/^line 2:/),
    });
  });
});

describe('importRecords', () => {
  it('stores tags and assets, with units by number and by code', async () => {
    const bench = makeIntakeBench();
    const text =
      'tag,asset,unit,group,key,value,timestamp,status\nFT-101,,,,FLOW,12.5,2026-11-21T00:00:00Z,good\n,77,12,process,level,-1e3,1795219200000,bad\nname,77,percent,,level,3,2026-11-21,\n';
    const result = await importRecords(readCsv(pieces(text, 10)), bench.intake);
    expect(result).toEqual({ values: 3, problems: [], problemCount: 0 });
    expect(bench.sink.stored.map(({ address, value, timeMs, status }) => [address, value, timeMs, status])).toEqual([
      ['881/process/flow/#12', 12.5, AT_MS, 1],
      ['77/process/level/#12', -1000, AT_MS, 3],
      ['77//level/percent', 3, AT_MS, 0],
    ]);
    expect(bench.counted.get('csv')).toBe(3);
  });

  it('names every problem by its line and stores nothing from the first batch with a problem on', async () => {
    const bench = makeIntakeBench();
    const text = `${HEADER}GW-01,load,1,,\nGW-01,load,2,,\nGW-01,lod,3,,\n"GW-01",load,"3,5",,\nGW-01,load,4,tomorrow,\nGW-01,load,4,,toString\nGW-01,load\nGW-01,load,5,,\n`;
    const result = await importRecords(readCsv(pieces(text)), bench.intake, {
      batchValues: 2,
    });
    expect(result.problems.map(({ line, field }) => `${line} ${field}`)).toEqual([
      '4 key',
      '5 value',
      '6 timestamp',
      '7 status',
      '8 ',
    ]);
    expect([result.values, result.problemCount, bench.sink.stored.length]).toEqual([2, 5, 2]);
  });

  it('only looks where it is told to', async () => {
    const bench = makeIntakeBench();
    const result = await importRecords(readCsv(pieces(`${HEADER}GW-01,load,1,,\nGW-01,load,2,,\n`)), bench.intake, {
      checkOnly: true,
    });
    expect([result.values, bench.sink.appends, bench.catalogue.size]).toEqual([2, 0, 0]);
  });

  it('stops where the store refuses', async () => {
    const bench = makeIntakeBench();
    bench.sink.fault = storeFault('buffer.full');
    await expect(importRecords(readCsv(pieces(`${HEADER}GW-01,load,1,,\n`)), bench.intake)).rejects.toMatchObject({
      code: 'buffer.full',
    });
  });

  it.each([
    ['', 'empty'],
    ['tag,key\n', 'needs'],
    ['tag,key,value,timestmap\n', 'timestmap'],
    ['tag,key,value,value\n', 'same name'],
  ])('refuses the header %j', async (text, words) => {
    await expect(importRecords(readCsv(pieces(text)), makeIntakeBench().intake)).rejects.toThrow(words);
  });
});
