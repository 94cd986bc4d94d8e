import { describe, expect, it } from 'vitest';
import { exceptionOf } from '../../../src/sources/modbus/modbus-error.ts';
import type { Span } from '../../../src/sources/modbus/refused-registers.ts';
import { readRanges, scanModbus } from '../../../src/sources/modbus/scan.ts';
import type { ScannedValue } from '../../../src/sources/source-kind.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';

/** Scans a device that has these registers, and what it was asked for, when. */
async function scanOf(words: ReadonlyMap<number, number>, ...what: string[]) {
  const clock = new ManualClock();
  const asked: { span: Span; atMs: number }[] = [];
  const ask = async (span: Span) => {
    asked.push({ span, atMs: clock.monotonicMs() });
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
    for await (const step of scanModbus(ask, readRanges(what), clock, new AbortController().signal)) {
      if ('found' in step) found.push(step.found);
      else progress.push(`${step.done}/${step.total}`);
    }
  })();
  let over = false;
  void scanning.then(() => {
    over = true;
  });
  while (!over) await clock.advance(100);
  return { found, asked, progress };
}

describe('a scan of a Modbus device', () => {
  it('finds what answers, reads nothing that was not named, and ten times a second at most', async () => {
    const words = new Map([
      [2, 7],
      [4, 0x4248],
      [5, 0],
      [6, 0],
      [7, 0x4248],
      [19, 65_535],
      [20, 1],
    ]);
    const { found, asked, progress } = await scanOf(words, 'holding 0-19', 'holding 100');
    expect(found.map(({ members, sample }) => [members, sample])).toEqual([
      [{ register: 'holding 2' }, '7'],
      [{ register: 'holding 4', type: 'float32' }, '50'],
      [{ register: 'holding 6', type: 'float32', byte_order: 'CDAB' }, '50'],
      [{ register: 'holding 19' }, '65535'],
    ]);
    const ends = asked.map(({ span }) => span.address + span.length - 1);
    expect(ends.every((end) => end <= 19 || end === 100)).toBe(true);
    const gaps = asked.slice(1).map(({ atMs }, at) => atMs - asked[at]!.atMs);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(100);
    expect(progress.at(-1)).toBe('21/21');
  });

  it.each(['', 'holding', 'holding 5-3', 'holding 0-70000', 'registers 1'])(
    'does not take "%s" for a range',
    (text) => {
      expect(() => readRanges([text])).toThrow(/is no range/);
    },
  );

  it('reads nothing where nothing is named, and not a whole device at once', () => {
    expect(() => readRanges([])).toThrow(/no range is named/);
    expect(() => readRanges(['holding 0-65535'])).toThrow(/more than 20000/);
  });
});
