import { describe, expect, it } from 'vitest';
import { BodyWriter } from '../../src/buffer/batches/body-writer.ts';
import type { Series } from '../../src/buffer/series.ts';
import { VALUE_STATUSES } from '../../src/contract/values.ts';

type Key = Pick<Series, 'key' | 'group' | 'unit'>;

const KEYS: Key[] = [
  { key: 'flow "a"', group: 'process', unit: { id: 12 } },
  { key: 'plain', group: undefined, unit: undefined },
  { key: 'level', group: undefined, unit: { code: 'm³/h' } },
];
const VALUES = [
  ...[0, 1, -1, 7, 10, 99, 100, 12_345, 0.1, 20.5, -0.25, 1.005, 123.456_789, 1e21, -1e300, 1 / 3, 0.05, -0.001, 110.1],
  ...[
    2 ** 31 - 1,
    2 ** 31,
    -(2 ** 31) + 1,
    -(2 ** 31),
    2_147_483.648,
    2 ** 53,
    1_000_000_000,
    999_999_999.9,
    1.000_001,
  ],
  // Behind one with many digits, of which it has none.
  ...[0.123_456_789, 5, 1_200, -30.5],
];
/** Not as JSON writes them, and the same doubles. */
const ODD = [-0, 1e-7, 5e-324, -3e-9];

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const point = (timeMs: number, value: number, flags = 0) => {
  const status = flags === 0 ? {} : { status: VALUE_STATUSES[flags - 1] };
  return { timestamp: new Date(timeMs).toISOString(), value, ...status };
};

describe('the body of a post', () => {
  it.each([1, 3])('is what JSON writes of its values, of %i series', (keys) => {
    const writer = new BodyWriter();
    for (const _ of [1, 2]) {
      writer.begin(1e6);
      const expected = KEYS.slice(0, keys).map((key) => {
        expect(writer.openKey(key)).toBe(true);
        const data = VALUES.map((value, i) => {
          const flags = i % (VALUE_STATUSES.length + 1);
          const timeMs = Date.UTC(2026, 1, 28, 23, 59, 59, 987) + i * 13_000_007;
          // Whose time it is does not leave.
          expect(writer.point(timeMs, value, flags + (i % 2 ? 4 : 0))).toBe(true);
          return point(timeMs, value, flags);
        });
        writer.closeKey();
        return { ...key, data };
      });
      expect(text(writer.end())).toBe(JSON.stringify({ values: expected }));
    }
  });

  it('has each number as the same double, also where JSON would write it otherwise', () => {
    const writer = new BodyWriter();
    writer.begin(1e6);
    writer.openKey(KEYS[1]!);
    for (const value of ODD) writer.point(0, value, 0);
    writer.closeKey();
    const { values } = JSON.parse(text(writer.end())) as { values: { data: { value: number }[] }[] };
    expect(values[0]!.data.map(({ value }) => value)).toEqual(ODD);
  });

  it('has the time of each value, whatever day the one before was of', () => {
    const writer = new BodyWriter();
    writer.begin(1e6);
    writer.openKey(KEYS[1]!);
    const day = Date.UTC(2026, 11, 31);
    const rests = [
      0, 1, 999, 1_000, 59_999, 60_000, 3_599_999, 3_600_000, 36_000_000, 72_610_203, 86_399_999, 86_400_000,
    ];
    const times = [0, ...rests.flatMap((rest) => [day + rest, day - rest])];
    for (const timeMs of times) writer.point(timeMs, 1, 0);
    writer.closeKey();
    expect(text(writer.end())).toBe(
      JSON.stringify({ values: [{ key: 'plain', data: times.map((timeMs) => point(timeMs, 1)) }] }),
    );
  });

  it('takes a key and a value while there are 128 bytes for a value behind it, and so no key without one', () => {
    const [first, second] = KEYS as [Key, Key];
    const LONGEST = -1.234_567_890_123_456e-300;
    const bad = VALUE_STATUSES.length;
    const pointText = JSON.stringify(point(0, LONGEST, bad));
    for (let max = 100; max < 640; max++) {
      const writer = new BodyWriter();
      writer.begin(max);
      let expected = '{"values":[';
      for (const [i, key] of [first, second].entries()) {
        const head = `${i > 0 ? ',' : ''}${JSON.stringify(key).slice(0, -1)},"data":[`;
        const fits = expected.length + head.length + 128 <= max;
        expect(writer.openKey(key)).toBe(fits);
        if (!fits) break;
        expected += head;
        for (let count = 0; count < 2; count++) {
          const hasRoom = expected.length + 128 <= max;
          expect(writer.point(0, LONGEST, bad)).toBe(hasRoom);
          if (hasRoom) expected += `${count > 0 ? ',' : ''}${pointText}`;
          if (count === 0) expect(hasRoom).toBe(true);
        }
        writer.closeKey();
        expected += ']}';
      }
      const body = writer.end();
      expect(text(body)).toBe(`${expected}]}`);
      if (expected.length > 20) expect(body.length).toBeLessThanOrEqual(max);
    }
  });

  it('grows with what is written, wherever in it the room ends', () => {
    for (let length = 65_536 - 40; length < 65_536 - 16; length++) {
      const writer = new BodyWriter();
      writer.begin(1e9);
      const keys = [{ ...KEYS[1]!, key: 'k'.repeat(length) }, KEYS[1]!];
      for (const key of keys) {
        writer.openKey(key);
        writer.point(0, 1, 0);
        writer.closeKey();
      }
      expect(
        text(writer.end()) === JSON.stringify({ values: keys.map((key) => ({ ...key, data: [point(0, 1)] })) }),
      ).toBe(true);
    }
    const writer = new BodyWriter();
    writer.begin(1e9);
    writer.openKey(KEYS[1]!);
    const times = Array.from({ length: 1_500 }, (_, i) => i * 1_001);
    for (const timeMs of times) writer.point(timeMs, 0.5, 3);
    writer.closeKey();
    expect(text(writer.end())).toBe(
      JSON.stringify({ values: [{ key: 'plain', data: times.map((timeMs) => point(timeMs, 0.5, 3)) }] }),
    );
  });
});
