import { describe, expect, it } from 'vitest';
import { CsvReader, type CsvRecord, readCsv } from '../../../../src/sources/csv/csv.ts';
import { importRecords } from '../../../../src/sources/csv/csv-import.ts';
import { makeIntakeBench, seeded, storeFault } from '../sink-double.ts';

async function* pieces(content: string | Buffer, length = content.length): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(content as string);
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

async function recordsOf(content: string | Buffer, length?: number): Promise<string[][]> {
  return (await collect(readCsv(pieces(content, length)))).map(({ fields }) => fields);
}

async function collect<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const HEADER = 'tag,key,value,timestamp,status\n';
const AT_MS = Date.UTC(2026, 10, 21);

async function* allRecords(chunks: AsyncIterable<Uint8Array>, reader: CsvReader): AsyncGenerator<CsvRecord> {
  for await (const records of reader.batches(chunks)) yield* records;
}

const rawOf = (bytes: Buffer, options?: ConstructorParameters<typeof CsvReader>[0]) =>
  collect(allRecords(pieces(bytes, 4_096), new CsvReader(options)));

describe('CSV parser', () => {
  it('parses random records split into chunks of any size', async () => {
    const random = seeded(11);
    const letters = ['a', 'é', '"', ',', '\n', '\r\n', ' ', ';', '5', '€'];
    const letter = () => letters[Math.floor(random() * letters.length)];
    const field = () => Array.from({ length: Math.floor(random() * 5) }, letter).join('');
    for (let round = 0; round < 300; round++) {
      const records = Array.from({ length: 1 + Math.floor(random() * 5) }, () => [`x${field()}`, field(), field()]);
      const lines = records.map((fields) => fields.map((text) => `"${text.replaceAll('"', '""')}"`).join(','));
      const text = `a,b,c\n${lines.join(random() < 0.5 ? '\n' : '\r\n')}`;
      expect(await recordsOf(text, 1 + Math.floor(random() * 7))).toEqual([['a', 'b', 'c'], ...records]);
    }
  });

  it.each(['utf-8', 'utf-16le'])(
    'parses random %s text with NUL bytes split into chunks of any size',
    async (encoding) => {
      const random = seeded(12);
      const letters = ['1', '2', ',', '\n', '\r\n', '\r', '\0', '\0\0\0'];
      const rowsOf = async (bytes: Buffer, size: number) => {
        const all = await collect(allRecords(pieces(bytes, size), new CsvReader({ encoding, separator: ',' })));
        return all.map(({ line, fields, problem }) => [line, fields, problem]);
      };
      for (let round = 0; round < 2_000; round++) {
        const length = 1 + Math.floor(random() * 30);
        const text = Array.from({ length }, () => letters[Math.floor(random() * letters.length)]).join('');
        const bytes = Buffer.from(text, encoding === 'utf-8' ? 'utf8' : 'utf16le');
        const size = (1 + Math.floor(random() * 9)) * (encoding === 'utf-8' ? 1 : 2);
        expect([text, await rowsOf(bytes, size)]).toEqual([text, await rowsOf(bytes, bytes.length)]);
      }
    },
  );

  it('detects the separator, skips empty lines, and counts lines like a text editor', async () => {
    const text = '\ufeffa;b\n\n"x\ny";1,5\r\n\r\nz;\n';
    expect(await collect(readCsv(pieces(text)))).toEqual([
      { line: 1, fields: ['a', 'b'] },
      { line: 3, fields: ['x\ny', '1,5'] },
      { line: 6, fields: ['z', ''] },
    ]);
    expect(await recordsOf('a\tb\n1\t2')).toEqual([
      ['a', 'b'],
      ['1', '2'],
    ]);
  });

  it.each([1, 3, 1_000])(
    'accepts any line ending, including mixed line endings, in chunks of %d bytes',
    async (length) => {
      const text = 'a;b\r1;2\r\n\r"x\ry";3\n"un"closed;4\r5;6\r\r\n7;8\r';
      const all = await collect(allRecords(pieces(Buffer.from(text), length), new CsvReader()));
      expect(all.map(({ line, fields }) => [line, ...fields])).toEqual([
        [1, 'a', 'b'],
        [2, '1', '2'],
        [4, 'x\ry', '3'],
        [6],
        [7, '5', '6'],
        [9, '7', '8'],
      ]);
    },
  );

  it.each([1, 9, 1_000])('reads the lines between two stray quotes, in chunks of %d bytes', async (length) => {
    const text = 'a,b\n1,"2\n3,4\r\n5,6\n7,"8\n9,10\n';
    const all = await collect(allRecords(pieces(Buffer.from(text), length), new CsvReader()));
    expect(all.map(({ line, fields, problem }) => [line, ...(problem === undefined ? fields : ['rejected'])])).toEqual([
      [1, 'a', 'b'],
      [2, 'rejected'],
      [3, '3', '4'],
      [4, '5', '6'],
      [5, 'rejected'],
      [6, '9', '10'],
    ]);
  });

  it.each([
    ['an unterminated quote', 'a,b\n"x,1'],
    ['text after a quote', 'a,b\n"x"y,1\n'],
    ['a record longer than 64 KiB', `a,b\n"${'x'.repeat(100_000)}`],
    ['bytes that are not UTF-8', Buffer.from('a;b\n\xd6l;1\n', 'latin1')],
  ])('rejects %s with the line number', async (_what, text) => {
    await expect(recordsOf(text, 4096)).rejects.toMatchObject({
      code: 'intake.unreadable',
      message: expect.stringMatching(/^line 2:/),
    });
  });

  it.each([1, 2, 7, 30])('can resume after each chunk of %d bytes', async (length) => {
    const bytes = Buffer.from('\ufeffa;b\r\n"quoted; with\nline feed and ""quotes""";2\n\npipe 5";3\r\nlast;4');
    const all = await rawOf(bytes);
    expect(all.map(({ line }) => line)).toEqual([1, 2, 5, 6]);
    const reader = new CsvReader();
    let count = 0;
    for await (const records of reader.batches(pieces(bytes, length))) {
      count += records.length;
      const { position, line, separator } = reader;
      expect(await rawOf(bytes.subarray(position), { position, line, separator })).toEqual(all.slice(count));
    }
    expect(count).toBe(4);
  });

  it.each([
    ['windows-1252', Buffer.from('\xd6l;1\n', 'latin1'), 'utf-8', '; set encoding, for example windows-1252'],
    ['utf-16le', Buffer.from('\ufeffa;b\n', 'utf16le'), 'utf-8', '; set encoding, for example utf-16le'],
    ['windows-1252', Buffer.from('\xd6l;1\n', 'latin1'), undefined, ''],
  ])('suggests an encoding for %s text if one can be configured', async (_what, bytes, encoding, instead) => {
    const [record] = await rawOf(bytes, encoding === undefined ? {} : { encoding });
    expect(record).toMatchObject({ fields: [], problem: `not valid utf-8${instead}` });
  });
});

async function importText(text: string, bench = makeIntakeBench(), checkOnly = false) {
  const [header, ...records] = await collect(readCsv(pieces(text, 10)));
  return await importRecords(header!.fields, records, bench.intake, checkOnly);
}

describe('CSV import', () => {
  it('stores values by tag and by asset, with units by ID and by code', async () => {
    const bench = makeIntakeBench();
    const text =
      'tag,asset,unit,group,key,value,timestamp,status\nFT-101,,,,FLOW,12.5,2026-11-21T00:00:00Z,good\n,77,12,process,level,-1e3,1795219200000,bad\nname,77,percent,,level,3,2026-11-21,\n';
    expect(await importText(text, bench)).toEqual({ values: 3, problems: [], problemCount: 0 });
    expect(bench.sink.stored.map(({ address, value, timeMs, status }) => [address, value, timeMs, status])).toEqual([
      ['881/process/flow/#12', 12.5, AT_MS, 1],
      ['77/process/level/#12', -1000, AT_MS, 3],
      ['77//level/percent', 3, AT_MS, 0],
    ]);
    expect(bench.counted.get('csv')).toBe(3);
  });

  it('reports every problem with its line number and stores nothing', async () => {
    const bench = makeIntakeBench();
    const text = `${HEADER}GW-01,load,1,,\nGW-01,load,2,,\nGW-01,lod,3,,\n"GW-01",load,"3,5",,\nGW-01,load,4,tomorrow,\nGW-01,load,4,,toString\nGW-01,load\nGW-01,load,5,,\n`;
    const { values, problems, problemCount } = await importText(text, bench);
    expect(problems.map(({ line, field }) => `${line} ${field}`)).toEqual([
      '4 key',
      '5 value',
      '6 timestamp',
      '7 status',
      '8 ',
    ]);
    expect([values, problemCount, bench.sink.stored.length]).toEqual([0, 5, 0]);
  });

  it('stores nothing in a dry run', async () => {
    const bench = makeIntakeBench();
    const { values } = await importText(`${HEADER}GW-01,load,1,,\nGW-01,load,2,,\n`, bench, true);
    expect([values, bench.sink.appends, bench.catalogue.size]).toEqual([2, 0, 0]);
  });

  it('fails if the store rejects values', async () => {
    const bench = makeIntakeBench();
    bench.sink.fault = storeFault('buffer.full');
    await expect(importText(`${HEADER}GW-01,load,1,,\n`, bench)).rejects.toMatchObject({ code: 'buffer.full' });
  });

  it.each([
    ['a header without a value column', 'tag,key\n', 'requires'],
    ['an unknown column', 'tag,key,value,timestmap\n', 'timestmap'],
    ['two columns with the same name', 'tag,key,value,value\n', 'same name'],
  ])('rejects %s', async (_what, text, words) => {
    await expect(importText(text)).rejects.toThrow(words);
  });
});
