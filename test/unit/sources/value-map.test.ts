import { describe, expect, it } from 'vitest';
import type { TagValue, ValueMap } from '../../../src/config/tags.ts';
import { readValueMap } from '../../../src/config/value-map.ts';
import { readNdjsonBody } from '../../../src/sources/formats/json-values.ts';
import { readLineProtocol } from '../../../src/sources/formats/line-protocol.ts';
import { numberOf } from '../../../src/sources/intake/shaping.ts';
import { readMessage } from '../../../src/sources/messages/payload.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { check } from '../config/folder.ts';
import { CsvBench } from './csv/csv-bench.ts';
import { makeIntakeBench, originOf, tagOf } from './sink-double.ts';

const STATES: ValueMap = { numbers: { RUN: 1, OFF: 0 }, passesNumbers: true };
const PHASES: ValueMap = { numbers: { 10: 1, 20: 2, true: 3 }, passesNumbers: false };
const UNKNOWN = '"STOP" is not in map (known: "RUN", "OFF")';

function plant(value: Omit<TagValue, 'key'>) {
  const tags = new Map([['T', tagOf('T', 1, [{ key: 'v', ...value }])]]);
  const bench = makeIntakeBench(tags);
  return { ...bench, tags, values: () => bench.sink.stored.map((stored) => stored.value) };
}

describe('value map', () => {
  it.each([
    ['RUN', STATES, 1],
    [' OFF ', STATES, 0],
    ['run', STATES, undefined],
    ['constructor', STATES, undefined],
    [7, STATES, 7],
    ['7.5', STATES, 7.5],
    [true, STATES, undefined],
    ['true', STATES, undefined],
    [true, undefined, 1],
    [10, PHASES, 1],
    ['20.0', PHASES, 2],
    [30, PHASES, undefined],
    [true, PHASES, 3],
    [false, PHASES, undefined],
    [Number.NaN, STATES, undefined],
    ['RUN', undefined, undefined],
    [' 1.5 ', undefined, 1.5],
  ] as const)('reads %j with %j as %j', (raw, map, number) => {
    expect(numberOf(raw, map)).toBe(number);
  });

  it('is applied before scale and offset, and counts other texts as unreadable values', async () => {
    const origin = originOf('mqtt', 's', {}, { scale: 10, offset: 5 });
    const { tags, intake, gateOf, values } = plant({ map: STATES, from: origin });
    const [point] = pointsOf(tags, 's', intake);
    const gate = gateOf('s');
    await gate.write(['RUN', 'STOP', 'OFF', 'STOP'].map((raw) => ({ point: point!, raw })));
    expect(values()).toEqual([15, 5]);
    expect(gate.status.report(0)).toMatchObject({ errors: 2, rejected: { count: 2 } });
    expect(gate.status.unreadTextOf(point!)).toBe(UNKNOWN);
  });

  it('replaces text in messages, either a JSON member or the whole message', async () => {
    const spec = { topic: 'a', template: 'a', at: '/state' };
    const { tags, intake, gateOf, values } = plant({ map: STATES, from: originOf('mqtt', 's', spec) });
    const gate = gateOf('s');
    const points = pointsOf<typeof spec>(tags, 's', intake);
    const whole = points.map((point) => ({ ...point, spec: { topic: 'a', template: 'a' } }));
    const read = (text: string, of: Parameters<typeof readMessage>[1]) =>
      gate.record(readMessage({ payload: Buffer.from(text) }, of, { arrivalMs: 0 }).readings);
    read('{"state":"RUN"}', points);
    read('OFF', whole);
    read('"RUN"', whole);
    read('3', whole);
    read('STOP', whole);
    await gate.write([]);
    expect(values()).toEqual([1, 0, 1, 3]);
    expect(gate.status.unreadTextOf(points[0]!)).toBe(UNKNOWN);
  });

  it('replaces text in CSV cells, and lists unknown texts as problems in the file', async () => {
    const bench = new CsvBench('settle: 50ms, decimal: ","', 'v: { from: drop, map: { RUN: 1, OFF: 0 } }');
    bench.write('a.csv', 'v;w\nRUN;1\n1,5;1\nSTOP;1\n');
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.values()).toEqual([1, 1.5]);
    expect(bench.read('done/a.csv.report.txt')).toContain(UNKNOWN);
  });

  it('replaces pushed text and numbers in NDJSON and line protocol', async () => {
    const { intake, values } = plant({ map: STATES });
    const { intake: phases, values: numbers } = plant({ map: PHASES });
    const push = async (read: (draft: ReturnType<typeof intake.draft>) => void, to = intake) => {
      const draft = to.draft({ isPartial: true });
      read(draft);
      await to.submit(draft, 'http');
      return draft.problems.listed.map(({ field, problem }) => `${field}: ${problem}`);
    };
    const value = (raw: unknown) => JSON.stringify({ tag: 'T', key: 'v', value: raw });
    const list = Buffer.from(['RUN', 'STOP', 4, null].map(value).join('\n'));
    expect(await push((draft) => readNdjsonBody(list, draft))).toEqual([
      `value: ${UNKNOWN}`,
      'value: must be a number, not null: omit values that do not exist',
    ]);
    expect(await push((draft) => readNdjsonBody(Buffer.from(value('OFF')), draft))).toEqual([]);
    const lines = Buffer.from('T v="RUN"\nT v="STOP"\nT v=5\nT w="RUN"\n');
    const options = { msOfUnit: 1e-6, isUnitGuessed: true, tagFrom: undefined };
    expect(await push((draft) => readLineProtocol(lines, options, draft))).toEqual([
      `value: the field "v" of "T" has a value without a number: ${UNKNOWN}`,
      'key: the tag "T" has no key "w"',
    ]);
    const torn = [`${value(1)},${value(2)}`, '{"tag":"T","key":"v"', '"value":3}'].join('\n');
    expect(await push((draft) => readNdjsonBody(Buffer.from(torn), draft))).toEqual(
      [1, 2, 3].map((line) => `: line ${line} is not JSON`),
    );
    expect(values()).toEqual([1, 4, 0, 1, 5]);
    const phaseLines = Buffer.from('T v=10\nT v=true\nT v=7\n');
    expect(await push((draft) => readLineProtocol(phaseLines, options, draft), phases)).toHaveLength(1);
    expect(numbers()).toEqual([1, 3]);
  });

  it.each([
    ['NDJSON', readNdjsonBody, (raw: string) => `{"tag":"T","key":"v","value":${raw},"timestamp":1790000000000}`],
    [
      'line protocol',
      (bytes: Buffer, draft: ReturnType<ReturnType<typeof plant>['intake']['draft']>) =>
        readLineProtocol(bytes, { msOfUnit: 1e-6, tagFrom: undefined }, draft),
      (raw: string) => `T v=${raw} 1790000000000000000`,
    ],
  ])('passes the readings of a program to its source, with their timestamps: %s', (_, read, line) => {
    const { intake, tags } = plant({ map: STATES, from: originOf('exec', 's', {}) });
    const series = pointsOf(tags, 's', intake)[0]!.series;
    const passed: unknown[] = [];
    const interceptor = {
      has: (one: number) => one === series,
      accept: (_: number, value: unknown, timeMs: number | undefined) => passed.push([value, timeMs]),
    };
    const draft = intake.draft({ isPartial: true, interceptor });
    const raws = ['"RUN"', '"STOP"', '4', 'true', ...(line('').startsWith('{') ? ['null'] : ['NaN'])];
    read(Buffer.from(`${raws.map(line).join('\n')}\n`), draft);
    expect(draft.finish()).toHaveLength(0);
    expect(draft.problems.count).toBe(0);
    const last = line('').startsWith('{') ? { problem: expect.stringContaining('not null') } : 'NaN';
    expect(passed).toEqual(['RUN', 'STOP', 4, true, last].map((value) => [value, 1_790_000_000_000]));
  });

  it('can contain NaN and Infinity without affecting numbers', () => {
    const problems = { problem: () => {}, warning: () => {} } as unknown as Parameters<typeof readValueMap>[1];
    const map = readValueMap({ map: { NaN: -1, Infinity: -2, RUN: 1 } }, problems)!;
    expect([numberOf('NaN', map), numberOf('Infinity', map), numberOf(12, map)]).toEqual([-1, -2, 12]);
  });

  it('is rejected by check if it is empty, or if a text or number is invalid', () => {
    const linesOf = (map: string) =>
      check({ 'tags.yaml': `tags: { T: { asset: 1, values: { v: { map: ${map} } } } }\n` }).lines;
    expect(linesOf('{ RUN: 1, OFF: 0, 3: 4, true: 5 }')).toEqual([]);
    expect(linesOf('{}')).toEqual([
      expect.stringMatching(/mapping of 1 to 1000 texts to numbers.*\{ RUN: 1, OFF: 0 \}/),
    ]);
    expect(linesOf('{ RUN: on }')).toEqual([expect.stringContaining('"on" is not a number')]);
    expect(linesOf('{ " RUN": 1 }')).toEqual([expect.stringContaining('begins or ends with a space')]);
    expect(linesOf('{ RUN: .inf }')).toEqual([expect.stringContaining('Infinity is not a number')]);
  });
});
