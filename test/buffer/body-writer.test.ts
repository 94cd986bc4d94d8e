import { describe, expect, it } from 'vitest';
import { BodyWriter } from '../../src/buffer/batches/body-writer.ts';
import { VALUE_STATUSES } from '../../src/contract/values.ts';

const series = { key: 'flow "a"', group: 'process', unit: { id: 12 } };
const VALUES = [
  ...[0, -0, 1, -1, 7, 10, 99, 100, 12_345, 0.1, 20.5, -0.25, 1.005, 123.456_789, 1e-7, 5e-324, 1e21, -1e300, 1 / 3],
  ...[2 ** 31 - 1, 2 ** 31, -(2 ** 31) + 1, -(2 ** 31), 2_147_483.648, 2 ** 53, 1_000_000_000, 999_999_999.9],
];

describe('the body of a post', () => {
  it.each([1, 3])('is what JSON makes of its values, of %i series', (keys) => {
    const writer = new BodyWriter();
    for (const _ of [1, 2]) {
      writer.begin(1e6);
      const expected = Array.from({ length: keys }, (_key, at) => {
        const one = at === 1 ? { key: 'plain' } : series;
        expect(writer.openKey(one as typeof series)).toBe(true);
        const data = VALUES.map((value, i) => {
          const flags = i % (VALUE_STATUSES.length + 1);
          const timeMs = Date.UTC(2026, 1, 28, 23, 59, 59, 987) + i * 13_000_007;
          expect(writer.point(timeMs, value, flags)).toBe(true);
          const status = flags === 0 ? {} : { status: VALUE_STATUSES[flags - 1] };
          return { timestamp: new Date(timeMs).toISOString(), value, ...status };
        });
        writer.closeKey();
        return { ...one, data };
      });
      expect(JSON.parse(new TextDecoder().decode(writer.end()))).toEqual({ values: expected });
    }
  });

  it('is no longer than it may be', () => {
    for (let most = 100; most < 1_500; most += 7) {
      const writer = new BodyWriter();
      writer.begin(most);
      if (!writer.openKey(series)) continue;
      while (writer.point(0, -1.234_567_890_123_456e-300, VALUE_STATUSES.length));
      writer.closeKey();
      expect(writer.end().length).toBeLessThanOrEqual(most);
    }
  });
});
