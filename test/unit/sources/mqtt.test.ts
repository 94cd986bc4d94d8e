import { describe, expect, it } from 'vitest';
import { UNSHAPED } from '../../../src/config/tags.ts';
import { readMessage } from '../../../src/sources/messages/payload.ts';

const read = (text: string, members: Record<string, string> = {}) => {
  const spec = { topic: 't', template: 't', ...members };
  const point = { name: 'T v', series: 1, everyMs: 0, shaping: UNSHAPED, spec };
  const { readings, problem } = readMessage({ payload: Buffer.from(text) }, [point], { arrivalMs: 0 });
  return { ...readings[0], problem };
};

describe('MQTT message', () => {
  it.each([
    ['12.5', undefined, 12.5],
    [' -3.5e1\n', undefined, -35],
    ['"12.5"', undefined, 12.5],
    ['true', undefined, 1],
    ['{"a/b":{"~":[1,2]}}', '/a~1b/~0/1', 2],
    ['{"on":false}', '/on', 0],
    ['{"data":[{"flow":"12.25"}]}', '/data/0/flow', 12.25],
  ])('contains a number: %s at %s', (text, at, value) => {
    expect(read(text, at === undefined ? {} : { at })).toMatchObject({ raw: value });
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
  ])('contains no number: %s at %s', (text, at) => {
    const problems = /not JSON|not a number|no value at|exceeds the range/;
    expect(read(text, at === undefined ? {} : { at }).problem).toMatch(problems);
  });

  it.each([
    ['{"t":nan,"p":1013}', '"nan", is not a number'],
    ['{"t": -Infinity , "p":1013}', '"-Infinity", is not a number'],
    ['{"p":1013,"list":[inf,NaN,NaN],"t":NaN}', '"NaN", is not a number'],
  ])('contains numbers beside one that JSON does not allow: %s', (text, problem) => {
    expect(read(text, { at: '/p' })).toMatchObject({ raw: 1013, problem: undefined });
    expect(read(text, { at: '/t' }).problem).toContain(problem);
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
  ])('is stored with its own time: %s in %s', (time, timeUnit, timeMs) => {
    const members = { at: '/v', time: '/t', ...(timeUnit === undefined ? {} : { timeUnit }) };
    expect(read(`{"v":1,"t":${time}}`, members)).toMatchObject({ raw: 1, timeMs });
  });

  it.each([
    ['null', 'no time at /t'],
    ['"yesterday"', 'the time at /t, "yesterday", is neither an ISO 8601 timestamp nor a number'],
    ['{}', 'the time at /t, object, is neither an ISO 8601 timestamp nor a number'],
  ])('is rejected if its timestamp is invalid: %s', (time, problem) => {
    expect(read(`{"v":1,"t":${time}}`, { at: '/v', time: '/t' }).problem).toBe(problem);
  });

  it('has a status only if the platform supports it', () => {
    const of = (status: string) => read(`{"v":1,"q":${status}}`, { at: '/v', status: '/q' });
    const statuses = {
      good: ['"good"', 'true', '192', '"192"', '"GoodClamped"'],
      uncertain: ['"uncertain"', '64', '1073741824'],
      bad: ['"Bad"', 'false', '24', '"Bad [Not Connected]"', '2147483648'],
    };
    for (const [quality, texts] of Object.entries(statuses)) {
      for (const status of texts) expect(of(status)).toMatchObject({ raw: 1, quality });
    }
    // 0 means bad in OPC Classic and good in OPC UA, 1 is bad or good.
    for (const status of ['"stale"', '0', '1', 'null'])
      expect(of(status)).toMatchObject({ raw: 1, quality: undefined });
  });
});
