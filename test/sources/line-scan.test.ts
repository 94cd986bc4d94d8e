import { describe, expect, it } from 'vitest';
import { STAMPED_HERE } from '../../src/buffer/format/value-columns.ts';
import type { Draft } from '../../src/sources/draft.ts';
import { readPlainLineProtocol } from '../../src/sources/push/line-scan.ts';
import { type LineOptions, readLineProtocol } from '../../src/sources/push/line-values.ts';
import { makeIntakeBench, seeded, tagOf } from './sink-double.ts';

const TAGS = new Map([
  ['FT-101', tagOf('FT-101', 881, [{ key: 'flow' }, { key: 'flow2' }, { key: 'temperature' }])],
  ['FT-1', tagOf('FT-1', 1, [{ key: 'flow' }])],
  ['Füllstand', tagOf('Füllstand', 2, [{ key: 'level' }])],
]);

const random = seeded(7);
const below = (bound: number) => Math.floor(random() * bound);
const pick = <T>(list: readonly T[]): T => list[below(list.length)]!;

function randomLine(): string {
  const strange = random() < 0.02;
  if (strange && random() < 0.3) return pick(['', '# comment', ' ', '\t', ',a=b c=1', 'FT-101', 'FT-101 ', '\\']);
  const name = pick(
    strange ? ['FT\\ 101', 'ft-101', '"FT-1"', 'FT-10', 'FT-101x'] : ['FT-101', 'FT-101', 'FT-1', 'Füllstand'],
  );
  const tags =
    random() < 0.1 ? pick(strange ? [',a', ',a=', ',=b', ',a=b=c', ',a\\==b'] : [',host=gw', ',device=FT-1,a=b']) : '';
  const fields = Array.from({ length: 1 + below(3) }, () => {
    const key = pick(strange ? ['flo', 'FLOW', 'fl\\ ow', ''] : ['flow', 'flow', 'level', 'temperature']);
    const value = pick(
      strange
        ? ['t', '"text"', '1e3', '+1', '.5', '5.', '-', 'NaN', '1.5i', '9007199254740993i', '12u', '']
        : [
            String(below(1e6) / 1000),
            `-${below(1e9)}`,
            String(random() * 1e20),
            '-0.0',
            `${below(1e9)}i`,
            '007',
            '1.23456789012345678',
          ],
    );
    return `${key}=${value}`;
  });
  const ms = 1.7e12 + below(1e10);
  const time =
    random() < 0.8
      ? ` ${pick(strange ? ['-1', '1.5', '5', '99999999999999999999999', 'x', '1 2'] : [String(ms), '1795219200123'])}`
      : '';
  return `${name}${tags} ${fields.join(',')}${time}${random() < 0.02 ? pick([' ', '\r', '\t', '  ']) : ''}`;
}

function outcomeOf(draft: Draft, read: () => void): unknown {
  try {
    read();
    const { length, series, timeMs, value, flags } = draft.finish();
    // Stamps of arrival rise from draft to draft.
    const timeOf = (at: number) => (flags[at]! & STAMPED_HERE ? 'arrival' : timeMs[at]);
    const rows = Array.from({ length }, (_, at) => [series[at], timeOf(at), value[at], flags[at]]);
    return { rows, problems: draft.isPartial ? draft.problems.count : 0, count: draft.isPartial ? 0 : draft.count };
  } catch {
    return 'refused';
  }
}

describe('the short way through line protocol', () => {
  it.each([
    ['ms', undefined, false],
    ['ms', 'device', false],
    ['ms', undefined, true],
  ] as const)(
    'takes what the parser takes, and takes it the same (%s, tag from %s, partial %s)',
    (_, tagFrom, isPartial) => {
      const bench = makeIntakeBench(TAGS);
      const options: LineOptions = { msOfUnit: 1, isUnitGuessed: false, tagFrom };
      let short = 0;
      for (let round = 0; round < 6_000; round++) {
        const text = Array.from({ length: 1 + below(4) }, randomLine).join('\n') + pick(['', '\n', '\n\n']);
        const draft = bench.intake.draft({ isPartial });
        const scanned = bench.intake.draft({ isPartial });
        const takes = () => true;
        if (readPlainLineProtocol(Buffer.from(text), { msOfUnit: 1, tagFrom, takes }, scanned)) short++;
        const fast = outcomeOf(draft, () => readLineProtocol(Buffer.from(text), options, draft));
        // A comment is nothing that the short way takes: what follows is read by the parser.
        const slow = bench.intake.draft({ isPartial });
        const slowly = outcomeOf(slow, () => readLineProtocol(Buffer.from(`# all of it\n${text}`), options, slow));
        expect([text, fast]).toEqual([text, slowly]);
      }
      expect(short).toBeGreaterThan(tagFrom ? 5 : 500);
    },
  );

  it('reads times in every unit as the parser does', () => {
    const bench = makeIntakeBench(TAGS);
    for (const [msOfUnit, time] of [
      [1e-6, '1795219200123999999'],
      [1e-3, '1795219200123999'],
      [1, '1795219200123'],
      [1_000, '1795219200'],
      [3_600_000, '498672'],
    ] as const) {
      const options = { msOfUnit, isUnitGuessed: msOfUnit === 1e-6, tagFrom: undefined };
      const [fast, slow] = [bench.intake.draft(), bench.intake.draft()];
      const text = `FT-1 flow=1 ${time}\nFT-1 flow=2 ${time}`;
      expect(readPlainLineProtocol(Buffer.from(text), { ...options, takes: () => true }, bench.intake.draft())).toBe(
        true,
      );
      readLineProtocol(Buffer.from(text), options, fast);
      readLineProtocol(Buffer.from(`#\n${text}`), options, slow);
      expect([...fast.finish().timeMs.slice(0, 2)]).toEqual([...slow.finish().timeMs.slice(0, 2)]);
    }
  });

  it('forgets what lines meant when the tags change', () => {
    const bench = makeIntakeBench(TAGS);
    const options = { msOfUnit: 1, isUnitGuessed: false, tagFrom: undefined };
    const seriesOf = () => {
      const draft = bench.intake.draft();
      readLineProtocol(Buffer.from('FT-1 flow=1'), options, draft);
      return draft.finish().series[0]!;
    };
    const before = seriesOf();
    bench.intake.replaceTags(new Map([['FT-1', tagOf('FT-1', 77, [{ key: 'flow' }])]]));
    expect(bench.catalogue.get(seriesOf())!.asset).toBe(77);
    expect(bench.catalogue.get(before)!.asset).toBe(1);
  });
});
