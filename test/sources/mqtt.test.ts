import { describe, expect, it } from 'vitest';
import { Payload } from '../../src/sources/mqtt/payload.ts';

const NOW_MS = 1_795_219_200_000;
const read = (text: string, members: Record<string, string> = {}, arrivalMs = NOW_MS) =>
  new Payload(Buffer.from(text), arrivalMs).read({ topic: 't', template: 't', ...members });

describe('what a message says', () => {
  it.each([
    ['12.5', undefined, 12.5],
    [' -3.5e1\n', undefined, -35],
    ['"12.5"', undefined, 12.5],
    ['true', undefined, 1],
    ['{"a/b":{"~":[1,2]}}', '/a~1b/~0/1', 2],
    ['{"on":false}', '/on', 0],
    ['{"data":[{"flow":"12.25"}]}', '/data/0/flow', 12.25],
  ])('is a number: %s at %s', (text, at, value) => {
    expect(read(text, at === undefined ? {} : { at })).toEqual({ value });
  });

  it.each([
    ['{"a":{}}', '/a'],
    ['{"a":1}', '/a/b'],
    ['{"a":1}', '/toString'],
    ['{"a":1e999}', '/a'],
    ['{"a":', '/a'],
    ['0x10', undefined],
    ['1,5', undefined],
    ['', undefined],
    ['NaN', undefined],
    ['null', undefined],
  ])('is none: %s at %s', (text, at) => {
    expect(() => read(text, at === undefined ? {} : { at })).toThrow(/not a number|nothing at|not JSON/);
  });

  it.each([
    ['"2026-11-21T00:00:00.123Z"', undefined, 1_795_219_200_123],
    ['"2026-11-21T01:00:00.123+01:00"', undefined, 1_795_219_200_123],
    ['"2026-11-21T00:00:00.123"', undefined, 1_795_219_200_123],
    ['1795219200123', undefined, 1_795_219_200_123],
    ['"1795219200123"', undefined, 1_795_219_200_123],
    ['1795219200.123', 's', 1_795_219_200_123],
    ['1795219200', 's', 1_795_219_200_000],
    ['1795219200123456', 'us', 1_795_219_200_123],
    ['1795219200123456789', 'ns', 1_795_219_200_123],
  ])('is of its own time: %s in %s', (time, timeUnit, timeMs) => {
    const members = { at: '/v', time: '/t', ...(timeUnit === undefined ? {} : { timeUnit }) };
    expect(read(`{"v":1,"t":${time}}`, members)).toEqual({ value: 1, timeMs });
  });

  it.each(['"yesterday"', 'null', '-1', '{}', '1e300'])('has no time that could be taken: %s', (time) => {
    expect(() => read(`{"v":1,"t":${time}}`, { at: '/v', time: '/t' })).toThrow('time at /t');
  });

  it.each(['1795219200', '"1795219200"', '1795219200.5'])(
    'is rejected if its time is in seconds and time_unit is not set: %s',
    (time) => {
      const members = { at: '/v', time: '/t' };
      const text = `{"v":1,"t":${time}}`;
      expect(() => read(text, members)).toThrow(/time_unit/);
      // An explicit unit is obeyed, and a gateway whose clock is not set cannot tell.
      expect(read(text, { ...members, timeUnit: 'ms' }).timeMs).toBe(Math.round(Number(time.replaceAll('"', ''))));
      expect(read(text, members, 60_000).timeMs).toBeDefined();
    },
  );

  it('has a status that the platform knows, or none', () => {
    const of = (status: string) => read(`{"v":1,"q":${status}}`, { at: '/v', status: '/q' }).quality;
    expect(['"good"', '"Bad"', '"uncertain"', '"stale"', '192', 'null'].map(of)).toEqual([
      'good',
      'bad',
      'uncertain',
      undefined,
      undefined,
      undefined,
    ]);
  });
});
