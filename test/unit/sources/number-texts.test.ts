import { describe, expect, it } from 'vitest';
import { UNSHAPED, type ValueMap } from '../../../src/config/tags.ts';
import { numberReader } from '../../../src/sources/csv/columns.ts';
import { readNdjsonBody } from '../../../src/sources/formats/json-values.ts';
import { readLineProtocol } from '../../../src/sources/formats/line-protocol.ts';
import type { Draft } from '../../../src/sources/intake/draft.ts';
import { shape } from '../../../src/sources/intake/shaping.ts';
import { type MessageValue, readMessage } from '../../../src/sources/messages/payload.ts';
import { decode, type ModbusRegister } from '../../../src/sources/modbus/register.ts';
import type { Point } from '../../../src/sources/points.ts';
import { readJsonBody } from '../../../src/sources/push/bodies.ts';
import { readingOf, type SparkplugMetric } from '../../../src/sources/sparkplug/payload.ts';
import { makeIntakeBench, tagOf } from './sink-double.ts';

const STATES: ValueMap = { numbers: { ON: 1, OFF: 0 }, passesNumbers: true };
const LINES = { msOfUnit: 1, isUnitGuessed: false, tagFrom: undefined };

/** Returns the values that a draft of the tag T with the key v accepts. */
function pushed(text: string, map: ValueMap | undefined, read: (bytes: Buffer, draft: Draft) => void): number[] {
  const { intake } = makeIntakeBench(new Map([['T', tagOf('T', 1, [{ key: 'v', ...(map && { map }) }])]]));
  const draft = intake.draft({ isPartial: true });
  try {
    read(Buffer.from(text), draft);
  } catch {
    return [];
  }
  const { value, length } = draft.finish();
  return [...value.subarray(0, length)];
}

/** Returns the values that a gate accepts from a reading. */
function shaped(raw: unknown, map: ValueMap | undefined): number[] {
  const reading = shape(raw as string, { map, shaping: UNSHAPED });
  return 'value' in reading ? [reading.value] : [];
}

function message(text: string, map: ValueMap | undefined, at?: string): number[] {
  const spec: MessageValue = { topic: 'a', template: 'a', ...(at === undefined ? {} : { at }) };
  const point: Point<MessageValue> = { name: 'T v', series: 1, everyMs: 0, map, shaping: UNSHAPED, spec };
  const { readings } = readMessage({ payload: Buffer.from(text) }, [point], { arrivalMs: 0 });
  return readings.flatMap((reading) => ('raw' in reading ? shaped(reading.raw, map) : []));
}

function csvCell(text: string, map: ValueMap | undefined, read = numberReader('.', undefined)): number[] {
  const number = map !== undefined && text in map.numbers ? map.numbers[text]! : read(text);
  return Number.isFinite(number) ? [number] : [];
}

function metric(text: string, map: ValueMap | undefined): number[] {
  const found = { value: text, valueField: 15, datatype: 12, isNull: false } as SparkplugMetric;
  const reading = readingOf(found, undefined, map !== undefined);
  return 'raw' in reading ? shaped(reading.raw, map) : [];
}

function registers(text: string, map: ValueMap | undefined): number[] {
  const bytes = Buffer.from(text.padEnd(16, '\0'), 'latin1');
  const order = { wordsReversed: false, bytesSwapped: false };
  const register: ModbusRegister = {
    table: 'holding',
    address: 0,
    length: 8,
    type: 'string',
    characters: 16,
    ...order,
  };
  return shaped(decode(bytes, 0, register), map);
}

const inJson = (text: string) => JSON.stringify({ tag: 'T', key: 'v', value: text });

/** Inputs that accept text, by kind. Each function returns the values that are stored for a text. */
const KINDS: readonly [string, (text: string, map: ValueMap | undefined) => number[]][] = [
  ['a message (MQTT, NATS)', message],
  ['a quoted message', (text, map) => message(JSON.stringify(text), map)],
  ['a text in a JSON message', (text, map) => message(JSON.stringify({ v: text }), map, '/v')],
  ['a number in a JSON message', (text, map) => message(`{"v":${text}}`, map, '/v')],
  ['a Sparkplug metric', metric],
  ['Modbus registers', registers],
  ['an OPC UA text', shaped],
  ['a CSV cell', csvCell],
  [
    'a pushed JSON number',
    (text, map) => pushed(`{"values":[${inJson('#').replace('"#"', text)}]}`, map, readJsonBody),
  ],
  ['a pushed JSON text', (text, map) => pushed(`{"values":[${inJson(text)}]}`, map, readJsonBody)],
  ['a line of NDJSON (exec)', (text, map) => pushed(`${inJson('#').replace('"#"', text)}\n`, map, readNdjsonBody)],
  ['a text in NDJSON (exec)', (text, map) => pushed(`${inJson(text)}\n`, map, readNdjsonBody)],
  [
    'a line protocol field',
    (text, map) => pushed(`T v=${text}\n`, map, (bytes, draft) => readLineProtocol(bytes, LINES, draft)),
  ],
  [
    'a line protocol text',
    (text, map) => pushed(`T v="${text}"\n`, map, (bytes, draft) => readLineProtocol(bytes, LINES, draft)),
  ],
];

/** Strings that are not numbers. */
const WRONG = [
  '1.234.567',
  '1,234,567',
  '0x1F',
  '0b11',
  '1e400',
  '-1e400',
  '21.5.1',
  '21,5 kg',
  '21,5',
  '1_000',
  "1'234",
];
const NUMBERS = { '12.5': 12.5, '-0.5': -0.5, '1e3': 1000, '+7': 7, '007': 7, '.5': 0.5 };

describe('text that is not a number', () => {
  it.each(KINDS)('is rejected by %s, with and without a map', (_, read) => {
    for (const map of [undefined, STATES]) {
      const stored = [...WRONG, '12 34', '', ' ', 'NaN', 'Infinity', 'off', 'on', 'constructor'].map((text) => [
        text,
        // "12 34" in line protocol is a value with a timestamp, which the timestamp tests cover.
        text === '12 34' && read(text, map)[0] === 12 ? [] : read(text, map),
      ]);
      expect(stored.filter(([, values]) => values!.length > 0)).toEqual([]);
    }
  });

  it.each([
    ['.', ',', { '1,234,567': 1_234_567, '1,234,567.5': 1_234_567.5 }, ['1.234.567', '12,34', '1,2345']],
    [',', '.', { '1.234.567': 1_234_567, '1.234,5': 1_234.5, '21,5': 21.5 }, ['12.34', '21,5,1', '1.2345', '21.5.1']],
    [',', "'", { "1'234,5": 1_234.5 }, ['21.5', "12'34"]],
    ['.', ' ', { '1 234.5': 1_234.5 }, ['12 34', '1 2345']],
  ] as const)(
    'is parsed by a CSV source with the separators %j and %j, or rejected',
    (decimal, thousands, read, wrong) => {
      const number = numberReader(decimal, thousands);
      for (const [text, value] of Object.entries(read)) expect([text, number(text)]).toEqual([text, value]);
      for (const text of [...wrong, '0x1F', '21,5 kg'])
        expect([text, csvCell(text, undefined, number)]).toEqual([text, []]);
    },
  );
});

describe('number or mapped text', () => {
  const asJson = new Set(['a number in a JSON message', 'a pushed JSON number', 'a line of NDJSON (exec)']);
  const needsMap = new Set(['a pushed JSON text', 'a text in NDJSON (exec)', 'a line protocol text']);

  it.each(KINDS)('is read by %s', (kind, read) => {
    for (const [text, value] of Object.entries(NUMBERS)) {
      // JSON numbers have no plus sign and no leading zeros.
      if (asJson.has(kind) && !/^-?(0|[1-9])/.test(text)) continue;
      if (asJson.has(kind) && /^0\d/.test(text)) continue;
      expect([text, read(text, STATES)]).toEqual([text, [value]]);
      expect([text, read(text, undefined)]).toEqual([text, needsMap.has(kind) ? [] : [value]]);
    }
    const written = (text: string) => (asJson.has(kind) ? JSON.stringify(text) : text);
    if (kind === 'a line protocol field') return;
    expect([read(written('ON'), STATES), read(written('OFF'), STATES)]).toEqual([[1], [0]]);
    expect(read(written('ON'), undefined)).toEqual([]);
  });
});

describe('leading and trailing padding of text', () => {
  const PADDINGS = ['\0', '\0\0\0\0', '\ufeff', ' \0', '\0 ', '\r\n', '\0\r\n\0'];

  it.each(PADDINGS)('is removed: %j', (padding) => {
    const padded = (text: string) => [`${text}${padding}`, `${padding}${text}`, `${padding}${text}${padding}`];
    const line = (bytes: Buffer, draft: Draft) => readLineProtocol(bytes, LINES, draft);
    const found = [
      ...padded('7').flatMap((text) => message(text, undefined)),
      ...padded('{"v":7}').flatMap((text) => message(text, undefined, '/v')),
      ...padded('7').flatMap((text) => message(JSON.stringify({ v: text }), undefined, '/v')),
      ...padded('ON').flatMap((text) => message(text, { numbers: { ON: 7 }, passesNumbers: true })),
      ...padded('7').flatMap((text) => metric(text, undefined)),
      ...padded('7').flatMap((text) => shaped(text, undefined)),
      ...padded(`{"values":[${inJson('7')}]}`).flatMap((text) => pushed(text, STATES, readJsonBody)),
      ...padded(inJson('7')).flatMap((text) => pushed(text, STATES, readNdjsonBody)),
      ...padded('T v=7').flatMap((text) => pushed(text, undefined, line)),
    ];
    expect(found).toEqual(Array.from({ length: 27 }, () => 7));
  });

  it('is removed from each line of a stream', () => {
    const bytes = `\0\0${inJson('1')}\0\n\ufeff${inJson('2')}\n\0\0\0\n${inJson('3')}`;
    expect(pushed(bytes, STATES, readNdjsonBody)).toEqual([1, 2, 3]);
    const lines = 'T v=1 1000\0\0\n\0\0T v=2 2000\n\0\nT v=3 3000';
    expect(pushed(lines, undefined, (bytes, draft) => readLineProtocol(bytes, LINES, draft))).toEqual([1, 2, 3]);
  });

  it('does not join the digits on both sides of a null character', () => {
    expect(message('1\x002', undefined)).toEqual([]);
    expect(metric('1\x002', undefined)).toEqual([]);
    expect(pushed('T v=1\x002', undefined, (bytes, draft) => readLineProtocol(bytes, LINES, draft))).toEqual([]);
  });
});
