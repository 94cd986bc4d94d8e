import { describe, expect, it } from 'vitest';
import { STATUS_FLAGS } from '../../../src/buffer/format/value-columns.ts';
import type { TagValue } from '../../../src/config/tags.ts';
import { shape } from '../../../src/sources/intake/shaping.ts';
import { type MessageValue, readMessage } from '../../../src/sources/messages/payload.ts';
import { type Point, pointsOf } from '../../../src/sources/points.ts';
import type { SourceKind } from '../../../src/sources/source-kind.ts';
import { listenTo, testedReport } from '../../../src/sources/source-test.ts';
import { check } from '../config/folder.ts';
import { CsvBench } from './csv/csv-bench.ts';
import { makeIntakeBench, originOf, tagOf } from './sink-double.ts';

const BAD = STATUS_FLAGS.bad;
const checkValue = (members: string, sources = 's: { modbus: "tcp://10.0.0.5" }') =>
  check({
    'tags.yaml': `sources: { ${sources} }\ntags: { T: { asset: 1, values: { v: { from: s, ${members} } } } }\n`,
  });
const codesOf = (members: string, sources?: string) => {
  const { configuration, lines } = checkValue(members, sources);
  return configuration?.tags.tags.get('T')?.values.get('v')?.from?.shaping.noValue ?? lines;
};

function plant(value: Omit<TagValue, 'key'>) {
  const tags = new Map([['T', tagOf('T', 1, [{ key: 'v', ...value }])]]);
  const bench = makeIntakeBench(tags);
  const [point] = pointsOf(tags, 's', bench.intake);
  return { ...bench, point: point!, gate: bench.gateOf('s') };
}

describe('codes for "no value"', () => {
  it.each([
    ['type: int16, no_value: 0x8000', [-32_768]],
    ['type: int16, no_value: 65535', [-1]],
    ['type: int16, no_value: -9999', [-9_999]],
    ['type: uint16, no_value: [0xFFFF, 0x8000]', [65_535, 32_768]],
    ['type: uint16, no_value: sunspec', [65_535]],
    ['type: int16, no_value: sunspec', [-32_768]],
    ['type: int32, no_value: 0x80000000', [-2_147_483_648]],
    ['type: int32, no_value: sunspec', [-2_147_483_648]],
    ['type: uint32, no_value: sunspec', [4_294_967_295]],
    ['type: int64, no_value: "0x8000000000000000"', [-(2 ** 63)]],
    ['type: int64, no_value: 0x8000000000000000', [-(2 ** 63)]],
    ['type: uint64, no_value: [sunspec]', [2 ** 64]],
    ['type: float32, no_value: 3.402823466e38', [3.4028235e38]],
    ['type: float32, no_value: "0xC61C3C00"', [-9_999]],
    ['type: float32, no_value: [0xC61C3C00, 0x449A5000, 7]', [-9_999, 1_234.5, 7]],
    ['type: float64, no_value: 0xC0C3878000000000', [-9_999]],
    ['type: float32, no_value: [sunspec, -1]', [-1]],
    ['type: bcd16, no_value: 9999', [9_999]],
    ['type: bcd16, no_value: 0x9999', [9_999]],
    ['type: bcd32, no_value: [0x99999999, 0xFFFFFFFF]', [99_999_999]],
    ['bit: 3, no_value: 0xFFFF', [65_535]],
    ['type: string, length: 8, no_value: 9999', [9_999]],
  ])('are converted to the register type: %s', (members, codes) => {
    expect(codesOf(`register: holding 7, ${members}`)).toEqual(codes);
  });

  it.each([
    ['register: holding 7, type: int16, no_value: 0x80000000', 'no_value "0x80000000" does not fit int16'],
    ['register: holding 7, type: int16, no_value: "0x18000"', 'no_value "0x18000" does not fit int16'],
    ['register: holding 7, type: int16, no_value: 0.5', 'is not an exact number of type int16'],
    [
      'register: holding 7, type: int64, no_value: 9223372036854775808',
      'or a bit pattern of 64 bits: 0x8000000000000000',
    ],
    ['register: holding 7, no_value: none', 'no_value "none" is not a bit pattern'],
    ['register: holding 7, type: bcd16, no_value: sunspec', 'no_value "sunspec" is not defined for bcd16'],
    ['register: coil 7, no_value: 1', 'does not fit coil registers'],
    ['register: holding 7, no_value: []', 'is not a number, a text, a bit pattern such as 0x8000, or a list of them'],
    [
      'register: holding 7, range: [125, -40]',
      'range [125, -40] must begin with the lower value, use range: [-40, 125]',
    ],
    ['register: holding 7, range: [5, 5]', 'range [5, 5] must begin with the lower value'],
    ['register: holding 7, range: [5]', 'is not a list of the lowest and the highest value'],
    [
      'register: holding 7, max_silence: 10m',
      'max_silence has no effect without deadband or on_change, add one of them, such as on_change: true',
    ],
    ['register: holding 7, scale_register: coil 3', 'scale_register "coil 3" is a single bit'],
    ['register: holding 7, bit: 3, scale_register: holding 3', 'cannot be combined with single bits'],
    ['register: holding 7, scale_register: holding 7', 'scale_register "holding 7" is the register of the value'],
    ['register: holding 7, type: uint32, scale_register: holding 8', 'is the register of the value'],
    [
      'register: holding 40083, scale_register: 40084',
      'is combined with a different notation: 40084 is the Modicon number of holding 83, use the table',
    ],
    [
      'register: 40083, scale_register: holding 40084',
      'is combined with a different notation: 40083 is the Modicon number of holding 82',
    ],
    ['register: holding 7, scale_register: high', 'scale_register "high" is not a Modbus register'],
    ['register: holding 7, scale_register: holding 3, writable: { min: 0, max: 1 }', 'cannot be written'],
  ])('and limits that cannot apply are rejected: %s', (members, problem) => {
    const { lines } = checkValue(members);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^DIR\/tags\.yaml:2: /);
    expect(lines[0]).toContain(problem);
  });

  it('can be texts but not bit patterns for source kinds other than Modbus', () => {
    const mqtt = 's: { mqtt: "mqtt://10.0.0.5" }';
    expect(codesOf('topic: a, no_value: [-9999, "32767", NAN, "---"]', mqtt)).toEqual([-9_999, 32_767, 'NAN', '---']);
    expect(codesOf('register: holding 7, no_value: NAN')).toEqual([expect.stringContaining('is not a bit pattern')]);
    for (const pattern of ['"0x8000"', '0x8000', '[-1, 0x8000]']) {
      expect(codesOf(`topic: a, no_value: ${pattern}`, mqtt)).toEqual([
        expect.stringContaining('no_value "0x8000" is a bit pattern, which only Modbus sources support'),
      ]);
    }
    expect(codesOf('topic: a, no_value: [-9999, sunspec]', mqtt)).toEqual([
      expect.stringMatching(/tags.yaml:2: .*no_value "sunspec" .*only Modbus sources support, use a number .* -9999$/),
    ]);
  });

  it('are read as bit patterns under `like` and behind an alias', () => {
    const text = `sources: { s: { modbus: "tcp://10.0.0.5" } }
like:
  shared: { v: { from: s, register: holding 7, type: float32, no_value: &code 0xC61C3C00 } }
tags:
  T: { asset: 1, like: shared, values: { w: { from: s, register: holding 9, type: float32, no_value: [*code] } } }
`;
    const values = check({ 'tags.yaml': text }).configuration?.tags.tags.get('T')?.values;
    expect(['v', 'w'].map((key) => values?.get(key)?.from?.shaping.noValue)).toEqual([[-9_999], [-9_999]]);
  });

  it('belong to the values if they are not SunSpec codes', () => {
    const { lines } = checkValue('register: holding 7', 's: { modbus: "tcp://10.0.0.5", no_value: 0x8000 }');
    expect(lines).toEqual([expect.stringContaining('is not "sunspec" (other codes belong to the values)')]);
  });

  it('are counted and reported as failures, as are out-of-range values', async () => {
    const shaping = { scale: 0.1, noValue: [32_768, -1], range: [-40, 125] as const, onFailure: 'bad' as const };
    const { gate, point, sink } = plant({ from: originOf('mqtt', 's', {}, shaping) });
    await gate.write([212, 32_768, '-1', 1_251, -400, Number.MAX_VALUE].map((raw) => ({ point, raw })));
    expect(sink.stored.map(({ value, status }) => [value, status])).toEqual([
      [21.2, 0],
      [21.2, BAD],
      [-40, 0],
      [-40, BAD],
    ]);
    expect(gate.status.report(0)).toMatchObject({ errors: 4, rejected: { count: 4 } });
    await gate.write([{ point, raw: 32_768 }]);
    expect(gate.status.report(0).rejected?.problem).toBe('T v: 32768 means "no value" (no_value)');
  });

  it('are recognized in numbers that a device sends with the precision of 32 bits', () => {
    const { point } = plant({ from: originOf('sparkplug', 's', {}, { noValue: [3_276.7] }) });
    for (const raw of [3_276.7, Math.fround(3_276.7), String(Math.fround(3_276.7))]) {
      expect(shape(raw, point)).toMatchObject({ fault: 'no_value' });
    }
    expect(shape(3_276.8, point)).toMatchObject({ value: 3_276.8 });
  });

  it('are compared with the number before and after `map`', async () => {
    const map = { numbers: { ON: 1, ERR: -1 }, passesNumbers: true };
    const { gate, point, sink } = plant({ map, from: originOf('mqtt', 's', {}, { noValue: [-1, 7] }) });
    await gate.write(['ON', 'ERR', 7, '7', 8].map((raw) => ({ point, raw })));
    expect(sink.stored.map(({ value }) => value)).toEqual([1, 8]);
  });

  it('can be texts, with and without `map`, before and after padding is removed', async () => {
    const code = 'means "no value" (no_value)';
    for (const map of [{}, { map: { numbers: { ON: 1 }, passesNumbers: true } }]) {
      const { gate, point, sink } = plant({ ...map, from: originOf('mqtt', 's', {}, { noValue: ['NAN', -1] }) });
      await gate.write(['3', ' NAN ', -1, 'nan'].map((raw) => ({ point, raw })));
      expect(sink.stored.map(({ value }) => value)).toEqual([3]);
      expect(gate.status.report(0).rejected).toMatchObject({ count: 3, problem: expect.stringContaining('"nan"') });
      await gate.write([{ point, raw: 'NAN' }]);
      expect(gate.status.report(0).rejected?.problem).toBe(`T v: NAN ${code}`);
    }
  });

  it.each(['NAN', '"NAN"', '\ufeffNAN\0'])('can be the text of a message: %j', (payload) => {
    const spec = { topic: 'a', template: 'a' };
    const { point } = plant({ from: originOf('mqtt', 's', spec, { noValue: ['NAN'] }) });
    const { readings } = readMessage({ payload: Buffer.from(payload) }, [point as Point<MessageValue>], {
      arrivalMs: 0,
    });
    expect(readings).toMatchObject([{ raw: 'NAN' }]);
    expect(shape('NAN', point)).toMatchObject({ fault: 'no_value' });
  });

  it('are listed in the report of a CSV file', async () => {
    const bench = new CsvBench('settle: 50ms', 'v: { from: drop, no_value: [-9999, NAN], range: [0, 9] }');
    bench.write('a.csv', 'v\n1\n-9999\n10\nNAN\n');
    await bench.open();
    await bench.until(() => bench.below('done').length === 2);
    expect(bench.values()).toEqual([1]);
    const report = bench.read('done/a.csv.report.txt');
    expect(report).toContain('4 rows read, 1 value stored');
    expect(report).toContain('line 5: T v: NAN means "no value" (no_value)');
    expect(report).toContain('line 3: T v: -9999 means "no value" (no_value)');
    expect(report).toContain('line 4: T v: 10 is outside range [0, 9]');
  });

  it('are reported as the problem by a source test', async () => {
    const { point, gate, clock } = plant({ from: originOf('mqtt', 's', {}, { range: [0, 5] }) });
    const tested = async (raw: number, more: object = {}) => {
      const begin = () => gate.record([{ point, raw, ...more }]);
      const listening = listenTo(gate.status, [point], clock, 1_000, new AbortController().signal, begin);
      await clock.advance(1_000);
      const [reading] = await listening;
      return testedReport({ name: 's', spec: {} }, {} as SourceKind, reading!, clock);
    };
    expect(await tested(7)).toMatchObject({ raw: 7, value: null, problem: '7 is outside range [0, 5]' });
    const warning = 'time of arrival used: timestamp is before 2000';
    expect(await tested(1, { warning })).toMatchObject({ value: 1, warning });
    expect(await tested(7, { exponent: -1 })).toMatchObject({ raw: 7, value: 0.7, problem: null });
  });

  it('are reported by a source test for silent values if they were rejected without a reading', async () => {
    const { point, gate, clock } = plant({ from: originOf('exec', 's', {}) });
    gate.status.reject('earlier');
    const other = { ...point, series: 99, name: 'T w' };
    const tested = listenTo(gate.status, [point, other], clock, 1_000, new AbortController().signal);
    gate.status.recordNumber({ point: other, raw: 1 }, 1, clock.monotonicMs());
    gate.status.reject('value: "STOP" is not in map');
    await clock.advance(1_000);
    const [silent] = await tested;
    expect(silent!.problem).toBe('no message within 1 s. 2 rejected, latest: value: "STOP" is not in map');
  });
});
