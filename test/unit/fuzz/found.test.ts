import { describe, expect, it } from 'vitest';
import { Redactor } from '../../../src/base/redactor.ts';
import { ByteWriter } from '../../../src/buffer/format/bytes.ts';
import { readLogRow } from '../../../src/buffer/format/log-row.ts';
import { unpackRanges } from '../../../src/buffer/format/settled-ranges.ts';
import { processTokenAnswer } from '../../../src/platform/response-meanings.ts';
import { readCsv } from '../../../src/sources/csv/csv.ts';
import { RejectedLines, readLineProtocol } from '../../../src/sources/formats/line-protocol.ts';
import { TimeReader } from '../../../src/sources/intake/logger-time.ts';
import { makeIntakeBench } from '../sources/sink-double.ts';

/** Returns bytes with a valid checksum. */
function sealed(write: (writer: ByteWriter) => void): Uint8Array {
  const writer = new ByteWriter();
  writer.reset(4);
  write(writer);
  return writer.seal().slice();
}

describe('inputs found by fuzzing', () => {
  it('with 100,000 invalid lines yield the line count and the first ten line numbers', () => {
    const lines = 100_000;
    const draft = makeIntakeBench().intake.draft({ isPartial: true });
    const rejected = new RejectedLines();
    const options = { msOfUnit: 1, isUnitGuessed: false, tagFrom: undefined };
    readLineProtocol(Buffer.from('a\n'.repeat(lines)), options, draft, rejected);
    expect([rejected.count, draft.problems.count]).toEqual([lines, lines]);
    expect(rejected.listed.map((line) => Number(/\d+/.exec(line)![0]))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });

  it('with a date out of range are rejected as a logger time', () => {
    const reader = new TimeReader({ zone: 'Europe/Berlin', format: 'excel' });
    expect(reader.read('124891890')).toBeUndefined();
    expect(reader.read('-1e300')).toBeUndefined();
    expect(reader.read('46347.5')).toEqual({ timeMs: Date.UTC(2026, 10, 21, 11) });
  });

  it('with an oversized CSV record are rejected, however the record is split', async () => {
    const bytes = Buffer.from(`time,flow\n1,${'2'.repeat(70_000)}\n`);
    for (const pieces of [[bytes], [bytes.subarray(0, 60_000), bytes.subarray(60_000)]]) {
      const lines: number[] = [];
      const reading = (async () => {
        for await (const { line } of readCsv(asyncOf(pieces))) lines.push(line);
      })();
      await expect(reading).rejects.toThrow(/^line 2:/);
      expect(lines).toEqual([1]);
    }
  });

  it('with an impossible number of settled ranges are reported as damaged, without an allocation', () => {
    const bytes = sealed((writer) => writer.varint(2 ** 40));
    expect(() => unpackRanges(bytes)).toThrow(expect.objectContaining({ code: 'store.damaged' }));
  });

  it('with settled ranges beyond 2^53, an odd number of edges, or a wrong order are reported as damaged', () => {
    const edges = (...all: number[]) =>
      sealed((writer) => {
        writer.varint(all.length);
        for (const edge of all) writer.varint(edge);
      });
    const damage = expect.objectContaining({ code: 'store.damaged' });
    expect(unpackRanges(edges(0, 5, 7, 2 ** 53))).toEqual([0, 5, 7, 2 ** 53]);
    for (const row of [edges(0, 2 ** 53 + 2), edges(0, 2 ** 55), edges(0, 5, 7), edges(5, 5), edges(0, 7, 5, 9)]) {
      expect(() => unpackRanges(row)).toThrow(damage);
    }
  });

  it('with unknown digits in a log value are reported as damaged, and yield no invalid number', () => {
    const row = (form: number) =>
      sealed((writer) => {
        for (const each of [1, 0, 0, 0, 1, 0, 0, form, 0, 5]) writer.byte(each);
      });
    expect(readLogRow(row(12)).values.length).toBe(1);
    expect(() => readLogRow(row(13))).toThrow(expect.objectContaining({ code: 'store.damaged' }));
  });

  it('with a wrong token type are logged on one line, truncated, escaped and without secrets', () => {
    const answer = {
      status: 200,
      header: () => `text/hunter-2\u0085\u009b31m${'x'.repeat(9_000)}`,
      text: '',
      redact: (text: string) => redactor.redact(text),
    };
    const redactor = new Redactor();
    redactor.configure(['hunter-2']);
    const read = () => processTokenAnswer(answer, { grant: 'password' });
    expect(read).toThrow(/^the token endpoint responded 200, but not in JSON \(text\/\*\*\* ?31mx{10,195}\)$/u);
  });
});

async function* asyncOf(pieces: readonly Buffer[]): AsyncGenerator<Buffer> {
  yield* pieces;
}
