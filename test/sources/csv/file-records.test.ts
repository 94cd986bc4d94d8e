import { describe, expect, it } from 'vitest';
import { type FileRecord, fileRecords, type Place } from '../../../src/sources/csv/file-records.ts';

async function read(bytes: Buffer | string, options: { from?: Place; encoding?: string; rest?: boolean } = {}) {
  const content = Buffer.from(bytes as string);
  const file = { read: async (position: number, length: number) => content.subarray(position, position + length) };
  const found: FileRecord[] = [];
  const { from = { position: 0, line: 1 }, encoding = 'utf-8', rest = true } = options;
  for await (const one of fileRecords(file, from, content.length, encoding, rest)) found.push(one);
  return found;
}

describe('the records of a file', () => {
  it('go on at every place behind one as if they had never stopped', async () => {
    const text = 'a;b\r\n"quoted; with\nline feed and ""quotes""";2\n\npipe 5";3\nlast;4';
    const all = await read(text);
    expect(all.map(({ text, line }) => [line, text])).toEqual([
      [1, 'a;b'],
      [2, '"quoted; with\nline feed and ""quotes""";2'],
      [4, ''],
      [5, 'pipe 5";3'],
      [6, 'last;4'],
    ]);
    for (const [at, { endsAt, line, text: record }] of all.entries()) {
      const from = { position: endsAt, line: line + record.split('\n').length };
      expect(await read(text, { from })).toEqual(all.slice(at + 1));
    }
    expect((await read(text, { rest: false })).length).toBe(4);
  });

  it('are the same whatever the size of the pieces that come from the disk', async () => {
    const rows = Array.from({ length: 20_000 }, (_, n) => `${n};"a ""word"" of ${'x'.repeat(n % 40)}";${n * 2}`);
    const found = await read(`${rows.join('\r\n')}\r\n`);
    expect(found.map(({ text }) => text)).toEqual(rows);
    expect(found.at(-1)!.line).toBe(20_000);
  });

  it.each(['utf-16le', 'utf-16be', 'windows-1252'])('are read in %s', async (encoding) => {
    const text = 'Öl;m³\n1;2\n';
    const bytes = encoding === 'windows-1252' ? Buffer.from(text, 'latin1') : Buffer.from(text, 'utf16le');
    if (encoding === 'utf-16be') bytes.swap16();
    expect((await read(bytes, { encoding })).map(({ text }) => text)).toEqual(['Öl;m³', '1;2']);
  });

  it('end where the bytes are not of the encoding, or a quote has no end, and say the line', async () => {
    await expect(read(Buffer.from('a;b\n\xd6l;1\n', 'latin1'))).rejects.toThrow('line 2: the file is not utf-8');
    await expect(read(`a;b\n"${'x'.repeat(200_000)}\n`)).rejects.toThrow('line 2: the record has no end');
  });
});
