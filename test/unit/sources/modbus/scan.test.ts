import { describe, expect, it } from 'vitest';
import { exceptionOf } from '../../../../src/sources/modbus/modbus-error.ts';
import type { Span } from '../../../../src/sources/modbus/requests.ts';
import { readRanges, scanModbus } from '../../../../src/sources/modbus/scan.ts';
import type { ScannedValue } from '../../../../src/sources/source-kind.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';

/** Scans a device with these registers and records the requests. */
async function scanOf(words: ReadonlyMap<number, number>, what: string[], maxRegisters = 120) {
  const clock = new ManualClock();
  const requests: { span: Span; atMs: number }[] = [];
  const request = async (span: Span) => {
    requests.push({ span, atMs: clock.monotonicMs() });
    const bytes = new Uint8Array(span.length * 2);
    for (let at = 0; at < span.length; at++) {
      const word = words.get(span.address + at);
      if (word === undefined) throw exceptionOf(2);
      new DataView(bytes.buffer).setUint16(at * 2, word);
    }
    return bytes;
  };
  const found: ScannedValue[] = [];
  const progress: string[] = [];
  const scanning = (async () => {
    for await (const step of scanModbus(request, readRanges(what), maxRegisters, clock, new AbortController().signal)) {
      if ('found' in step) found.push(step.found);
      else if ('done' in step) progress.push(`${step.done}/${step.total}`);
    }
  })();
  let isDone = false;
  void scanning.then(() => {
    isDone = true;
  });
  while (!isDone) await clock.advance(100);
  return { found, requests, progress };
}

describe('Modbus scan', () => {
  it('lists readable registers in the specified ranges with at most ten requests per second', async () => {
    const words = new Map([
      [2, 7],
      [4, 0x4248],
      [5, 0],
      [6, 0],
      [7, 0x4248],
      [19, 65_535],
      [20, 1],
    ]);
    const { found, requests, progress } = await scanOf(words, ['holding 0-19', 'holding 100']);
    expect(found.map(({ members, sample }) => [members, sample])).toEqual([
      [{ register: 'holding 2' }, '7'],
      [{ register: 'holding 4', type: 'float32' }, '50'],
      [{ register: 'holding 6', type: 'float32', byte_order: 'CDAB' }, '50'],
      [{ register: 'holding 19' }, '65535'],
    ]);
    const ends = requests.map(({ span }) => span.address + span.length - 1);
    expect(ends.every((end) => end <= 19 || end === 100)).toBe(true);
    const gaps = requests.slice(1).map(({ atMs }, at) => atMs - requests[at]!.atMs);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(100);
    expect(progress.at(-1)).toBe('21/21');
  });

  it('proposes a string for registers that contain a number as text', async () => {
    const texts = { 10: '0012.50\0', 20: ' -7 ', 30: '12', 40: 'RUN ', 50: '1.2.3.4 ' };
    const words = new Map<number, number>();
    for (const [address, text] of Object.entries(texts)) {
      for (let at = 0; at < text.length; at += 2) {
        words.set(Number(address) + at / 2, (text.charCodeAt(at) << 8) | text.charCodeAt(at + 1));
      }
    }
    const { found } = await scanOf(words, ['holding 0-59']);
    expect(found.filter(({ members }) => members.type === 'string')).toEqual([
      { key: 'h10', members: { register: 'holding 10', type: 'string', length: 8 }, sample: '0012.50' },
      { key: 'h20', members: { register: 'holding 20', type: 'string', length: 4 }, sample: '-7' },
    ]);
  });

  it('requests at most `max_registers` at a time', async () => {
    const { requests } = await scanOf(new Map(Array.from({ length: 20 }, (_, at) => [at, at])), ['holding 0-19'], 6);
    expect(requests.map(({ span }) => span.length)).toEqual([6, 6, 6, 2]);
  });

  it.each(['', 'holding', 'holding 5-3', 'holding 0-70000', 'registers 1'])('rejects the range "%s"', (text) => {
    expect(() => readRanges([text])).toThrow(/is not a register range/);
  });

  it('rejects an empty list of ranges and the entire address space', () => {
    expect(() => readRanges([])).toThrow(/no register range given/);
    expect(() => readRanges(['holding 0-65535'])).toThrow(/more than 20000/);
  });
});
