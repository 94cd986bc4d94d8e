import { describe, expect, it } from 'vitest';
import type { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import type { Draft } from '../../src/sources/draft.ts';
import { addJsonValue } from '../../src/sources/push/json-values.ts';
import { readPlainBody, readPlainLines } from '../../src/sources/push/plain-json.ts';
import { makeIntakeBench, seeded, tagOf } from './sink-double.ts';

const TAGS = new Map([
  ['FT-101', tagOf('FT-101', 881, [{ key: 'flow' }, { key: 'flow2' }, { key: 'temperature' }])],
  ['FT-1', tagOf('FT-1', 1, [{ key: 'flow' }])],
  ['Füllstand', tagOf('Füllstand', 2, [{ key: 'level' }])],
]);

/** What a draft comes to: its columns, or that it was refused. */
function outcomeOf(draft: Draft, read: () => void): unknown {
  try {
    read();
    const { length, series, timeMs, value, flags }: ValueColumns = draft.finish();
    const rows: unknown[] = [];
    for (let at = 0; at < length; at++) rows.push([series[at], timeMs[at], value[at], flags[at]]);
    return rows;
  } catch {
    return 'refused';
  }
}

const random = seeded(99);
const below = (bound: number) => Math.floor(random() * bound);
const pick = <T>(list: readonly T[]): T => list[below(list.length)]!;
const blank = () => (random() < 0.9 ? '' : pick([' ', '\n', '\t ', '\r\n']));

/** An address by asset, few enough that the same ones come again in the same order. */
function directMembers(strange: boolean): string[] {
  const members = [`"asset"${blank()}:${blank()}${pick(strange ? ['"7"', '0', '-7', '7.5', '1e3'] : ['7', '8'])}`];
  if (random() < 0.5) members.push(`"unit":${pick(strange ? ['{"code":"bar"}', '"12"', '0'] : ['12', '13'])}`);
  if (random() < 0.5) members.push(`"group":${pick(strange ? ['""', 'null', '"a b"'] : ['"process"', '"Process"'])}`);
  return members;
}

function randomItem(withinLine: boolean): string {
  const strange = random() < 0.03;
  const tag = `"tag"${blank()}:${blank()}${pick(strange ? ['"FT-10"', '"FT-1011"', '1', '"\\u0046T-101"', '"ft-101"'] : ['"FT-101"', '"FT-101"', '"FT-1"', '"Füllstand"'])}`;
  const members = [
    ...(random() < 0.5 ? [tag] : directMembers(strange)),
    `"key":${pick(strange ? ['"flo"', '"FLOW"', 'null'] : ['"flow"', '"flow"', '"flow2"', '"temperature"', '"level"'])}`,
    `"value"${blank()}:${blank()}${pick(strange ? ['1e3', '"1"', '01', '.5', '5.', '-', '+1', '1E400', 'NaN', 'true'] : [() => String(below(1e6) / 1000), () => `-${below(1e9)}`, () => String(random() * 1e20), () => '-0.000', () => '123456789.123456789'].map((make) => make()))}`,
  ];
  if (random() < 0.8) {
    const ms = below(2 ** 41);
    members.push(
      `"timestamp":${pick(strange ? ['"now"', '1.5', '-1', '""', '99999999999999999'] : [String(ms), `"${new Date(ms).toISOString()}"`, `"${new Date(ms).toISOString().slice(0, 19)}"`])}`,
    );
  }
  if (random() < 0.7)
    members.push(`"status":${pick(strange ? ['"fine"', '"goodbye"', 'null'] : ['"good"', '"bad"', '"uncertain"'])}`);
  if (random() < 0.02) members.push(pick(['"unit":1', '"tag":"FT-1"', '"values":[]', '"":1', '"a']));
  if (random() < 0.3) members.sort(() => random() - 0.5);
  const text = `{${blank()}${members.join(`${blank()},${blank()}`)}${blank()}}`;
  return withinLine ? text.replaceAll(/[\r\n]/g, ' ') : text;
}

/** One byte changed, now and then: quotes, braces, commas and all. */
function damaged(text: string): string {
  if (random() < 0.7) return text;
  const at = below(text.length);
  return (
    text.slice(0, at) +
    pick(['', '"', '{', '}', '[', ']', ',', ':', '\\', '0', 'x', '\u0000', ' ']) +
    text.slice(at + below(2))
  );
}

describe('the short way through JSON', () => {
  it('takes nothing that JSON.parse and the checks would not take, and takes it the same', () => {
    const bench = makeIntakeBench(TAGS);
    const other = makeIntakeBench(TAGS);
    let short = 0;
    for (let round = 0; round < 20_000; round++) {
      const items = Array.from({ length: below(5) }, () => randomItem(false));
      const text = damaged(`${blank()}{"values"${blank()}:${blank()}[${items.join(`${blank()},`)}]}${blank()}`);
      const draft = bench.intake.draft();
      if (!readPlainBody(Buffer.from(text), draft)) continue;
      short++;
      const found = outcomeOf(draft, () => {});
      const slow = other.intake.draft();
      const wanted = outcomeOf(slow, () => {
        const body = JSON.parse(text);
        if (Object.keys(body).join() !== 'values') throw new Error('other members');
        for (const item of body.values) addJsonValue(slow, item);
      });
      expect([text, found]).toEqual([text, wanted]);
    }
    expect(short).toBeGreaterThan(2_000);
  });

  it('holds to the same for NDJSON', () => {
    const bench = makeIntakeBench(TAGS);
    const other = makeIntakeBench(TAGS);
    let short = 0;
    for (let round = 0; round < 20_000; round++) {
      const items = Array.from({ length: below(5) }, () => randomItem(true));
      const text = damaged(items.join(pick(['\n', '\r\n', '\n\n', ' \n'])) + pick(['', '\n']));
      const draft = bench.intake.draft();
      if (!readPlainLines(Buffer.from(text), draft)) continue;
      short++;
      const found = outcomeOf(draft, () => {});
      const slow = other.intake.draft();
      const wanted = outcomeOf(slow, () => {
        for (const line of text.split('\n')) if (line.trim() !== '') addJsonValue(slow, JSON.parse(line));
      });
      expect([text, found]).toEqual([text, wanted]);
    }
    expect(short).toBeGreaterThan(2_000);
  });

  it('is the way that an ordinary body takes, in any order of tags', () => {
    const bench = makeIntakeBench(TAGS);
    const one = (tag: string, key: string) => ({
      tag,
      key,
      value: 12.5,
      timestamp: '2026-11-21T00:00:00.000Z',
      status: 'good',
    });
    const values = [
      one('FT-101', 'flow'),
      one('FT-101', 'flow2'),
      one('FT-1', 'flow'),
      one('FT-101', 'flow'),
      one('Füllstand', 'level'),
    ];
    for (const list of [values, values, values.toReversed(), values]) {
      const draft = bench.intake.draft();
      expect(readPlainBody(Buffer.from(JSON.stringify({ values: list })), draft)).toBe(true);
      const { series, length } = draft.finish();
      const keys = [...series.subarray(0, length)].map(
        (id) => `${bench.catalogue.get(id)!.asset} ${bench.catalogue.get(id)!.key}`,
      );
      expect(keys).toEqual(list.map(({ tag, key }) => `${TAGS.get(tag)!.asset} ${key}`));
    }
  });

  it('is the way of addresses by asset too: those that differ in unit or group alone stay apart', () => {
    const bench = makeIntakeBench(TAGS);
    const address = { asset: 7, key: 'flow' };
    const addresses = [
      address,
      { ...address, unit: 12 },
      { ...address, unit: 13 },
      { ...address, group: 'process' },
      { ...address, unit: 12, group: 'process' },
      { asset: 8, key: 'flow' },
    ];
    for (const list of [addresses, addresses, addresses.toReversed(), addresses]) {
      const draft = bench.intake.draft();
      const values = list.map((one) => ({ ...one, value: 1, timestamp: 1_800_000_000_000 }));
      expect(readPlainBody(Buffer.from(JSON.stringify({ values })), draft)).toBe(true);
      const { series, length } = draft.finish();
      const found = [...series.subarray(0, length)].map((id) => bench.catalogue.get(id)!);
      expect(found.map(({ asset, group, unit }) => [asset, group, unit])).toEqual(
        list.map((one) => [
          one.asset,
          'group' in one ? one.group : undefined,
          'unit' in one ? { id: one.unit } : undefined,
        ]),
      );
    }
  });

  it('reads a timestamp anew where a single letter of it differs', () => {
    const bench = makeIntakeBench(TAGS);
    const times = [
      '2026-11-21T00:00:00.000Z',
      '2026-11-21T00:00:00.000Z',
      '2026-11-21T00:00:00.001Z',
      '2027-11-21T00:00:00.001Z',
    ];
    const values = times.map((timestamp) => ({ tag: 'FT-1', key: 'flow', value: 1, timestamp }));
    const draft = bench.intake.draft();
    expect(readPlainBody(Buffer.from(JSON.stringify({ values })), draft)).toBe(true);
    expect([...draft.finish().timeMs.subarray(0, 4)]).toEqual(times.map((time) => Date.parse(time)));
  });

  it('takes an address for no other that begins with the same letters', () => {
    const bench = makeIntakeBench(TAGS);
    const seriesOf = (...units: number[]) => {
      const draft = bench.intake.draft();
      const values = units.map((unit) => ({ key: 'flow', asset: 7, unit, value: 1 }));
      expect(readPlainBody(Buffer.from(JSON.stringify({ values })), draft)).toBe(true);
      const { series, length } = draft.finish();
      return [...series.subarray(0, length)].map((id) => bench.catalogue.get(id)!.unit);
    };
    seriesOf(1, 12);
    expect(seriesOf(1, 123)).toEqual([{ id: 1 }, { id: 123 }]);
    expect(seriesOf(1, 12)).toEqual([{ id: 1 }, { id: 12 }]);
  });

  it('knows no address of a body in a line, where a line feed stands in it', () => {
    const bench = makeIntakeBench(TAGS);
    const item = '{"tag":"FT-1",\n"key":"flow","value":1}';
    expect(readPlainBody(Buffer.from(`{"values":[${item},${item}]}`), bench.intake.draft())).toBe(true);
    expect(readPlainLines(Buffer.from(`{"tag":"FT-1","key":"flow","value":1}\n${item}\n`), bench.intake.draft())).toBe(
      false,
    );
  });

  it('follows a reload of tags.yaml between two requests, and leaves accepted values where they are', async () => {
    const bench = makeIntakeBench(TAGS);
    const body = Buffer.from(
      '{"values":[{"asset":7,"key":"k","value":0},{"tag":"FT-1","key":"flow","value":1},{"tag":"FT-1","key":"flow","value":2}]}',
    );
    const before = bench.intake.draft();
    readPlainBody(body, before);
    bench.intake.replaceTags(new Map([['FT-1', tagOf('FT-1', 777, [{ key: 'flow' }])]]));
    const after = bench.intake.draft();
    readPlainBody(body, after);
    await bench.intake.submit(before, 'http');
    await bench.intake.submit(after, 'http');
    expect(bench.sink.stored.map((value) => value.address)).toEqual([
      '7//k/',
      '1//flow/',
      '1//flow/',
      '7//k/',
      '777//flow/',
      '777//flow/',
    ]);
  });
});
