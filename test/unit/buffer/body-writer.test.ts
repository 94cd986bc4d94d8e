import { describe, expect, it } from 'vitest';
import { BodyWriter } from '../../../src/buffer/batches/body-writer.ts';
import type { Series } from '../../../src/buffer/series.ts';
import { VALUE_STATUSES } from '../../../src/contract/values.ts';

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
  // A value with many digits, followed by values with few digits.
  ...[0.123_456_789, 5, 1_200, -30.5],
];
/** JSON.stringify formats these doubles differently. */
const ODD = [-0, 1e-7, 5e-324, -3e-9];

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const point = (timeMs: number, value: number, flags = 0) => {
  const status = flags === 0 ? {} : { status: VALUE_STATUSES[flags - 1] };
  return { timestamp: new Date(timeMs).toISOString(), value, ...status };
};

describe('request body', () => {
  it.each([1, 3])('is identical to the JSON.stringify output for %i series', (keys) => {
    const writer = new BodyWriter();
    for (const _ of [1, 2]) {
      writer.begin(1e6);
      const expected = KEYS.slice(0, keys).map((key) => {
        expect(writer.openKey(key)).toBe(true);
        const data = VALUES.map((value, i) => {
          const flags = i % (VALUE_STATUSES.length + 1);
          const timeMs = Date.UTC(2026, 1, 28, 23, 59, 59, 987) + i * 13_000_007;
          // The flag of a time assigned by the agent is not posted.
          expect(writer.point(timeMs, value, flags + (i % 2 ? 4 : 0))).toBe(true);
          return point(timeMs, value, flags);
        });
        writer.closeKey();
        return { ...key, data };
      });
      expect(text(writer.end())).toBe(JSON.stringify({ values: expected }));
    }
  });

  it('preserves every double, even if JSON.stringify formats it differently', () => {
    const writer = new BodyWriter();
    writer.begin(1e6);
    writer.openKey(KEYS[1]!);
    for (const value of ODD) writer.point(0, value, 0);
    writer.closeKey();
    const { values } = JSON.parse(text(writer.end())) as { values: { data: { value: number }[] }[] };
    expect(values[0]!.data.map(({ value }) => value)).toEqual(ODD);
  });

  it('contains the correct timestamp for each value if the date changes between values', () => {
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
});
