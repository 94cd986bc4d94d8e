import { TagferryError } from '../../../../src/base/errors.ts';
import type { ValueColumns } from '../../../../src/buffer/format/value-columns.ts';
import { addJsonValue, readNdjsonBody } from '../../../../src/sources/formats/json-values.ts';
import { RejectedLines, readLineProtocol } from '../../../../src/sources/formats/line-protocol.ts';
import type { Draft } from '../../../../src/sources/intake/draft.ts';
import { UnreadableValues } from '../../../../src/sources/intake/problem-list.ts';
import { readJsonBody } from '../../../../src/sources/push/bodies.ts';
import { makeIntakeBench, tagOf } from '../../sources/sink-double.ts';
import { demandSame, type FuzzTarget, headAndRest } from '../target.ts';

const TAGS = new Map([
  ['FT-101', tagOf('FT-101', 881, [{ key: 'flow' }, { key: 'temperature' }])],
  ['Füllstand', tagOf('Füllstand', 2, [{ key: 'level' }])],
]);
const bench = makeIntakeBench(TAGS);
const other = makeIntakeBench(TAGS);
/** Separate, because partial drafts create series, and the other results are compared by series number. */
const inPart = makeIntakeBench(TAGS);
/** See the same lines, so that their series have the same numbers. */
const lines = makeIntakeBench(TAGS);
const sameLines = makeIntakeBench(TAGS);
const MAX_VALUES = 1_000;

const isOurs = (error: unknown) => error instanceof TagferryError;

/** Returns the accepted rows, or that the request is rejected. */
function rowsOf(draft: Draft, read: () => void): { rows: unknown[]; refused: number } | 'rejected' {
  try {
    read();
    const { length, series, timeMs, value, flags }: ValueColumns = draft.finish();
    const rows = Array.from({ length }, (_, at) => [series[at], timeMs[at], value[at], flags[at]]);
    return { rows, refused: draft.problems.count };
  } catch (error) {
    if (isOurs(error)) return 'rejected';
    throw error;
  }
}

/** Reference reader without hints and limits. */
function readAtOnce(draft: Draft, text: string): void {
  const body: unknown = parsed(text);
  if (typeof body !== 'object' || body === null || Object.keys(body).join() !== 'values')
    throw new UnreadableValues('');
  const { values } = body as { values: unknown };
  if (!Array.isArray(values)) throw new UnreadableValues('');
  for (const item of values) addJsonValue(draft, item);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new UnreadableValues('');
  }
}

function utf8(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new UnreadableValues('');
  }
}

const ITEM = '{"tag":"FT-101","key":"flow","value":12.5,"timestamp":"2026-11-21T00:00:00.000Z","status":"good"}';
const BY_ASSET = '{"asset":7,"key":"flow","unit":12,"group":"process","value":-0.001,"timestamp":1700000000000}';

const jsonBody: FuzzTarget = {
  name: 'json-body',
  seeds: [
    `{"values":[${ITEM}]}`,
    `{"values":[${ITEM},${BY_ASSET},${ITEM}]}`,
    ' {"values" : [ {"value":1e3,"tag":"F\\u0054-101","key":"flow"} ] } ',
    '{"values":[]}',
    '{"values":[{"tag":"Füllstand","key":"level","value":1,"unit":{"code":"bar"}}]}',
  ],
  run(bytes) {
    const draft = bench.intake.draft({ maxValues: MAX_VALUES });
    const found = rowsOf(draft, () => readJsonBody(bytes, draft));
    const slow = other.intake.draft({ maxValues: MAX_VALUES });
    const wanted = rowsOf(slow, () => readAtOnce(slow, utf8(bytes)));
    demandSame('values of JSON.parse and accepted values', found, wanted);
  },
};

const ndjson: FuzzTarget = {
  name: 'ndjson',
  seeds: [`${ITEM}\n${BY_ASSET}\n`, `\n${ITEM}\r\n\n${ITEM}`, `${ITEM}\nx\n{"tag":1}\n${BY_ASSET}`],
  run(bytes) {
    const draft = bench.intake.draft({ maxValues: MAX_VALUES });
    const found = rowsOf(draft, () => readNdjsonBody(bytes, draft));
    const slow = other.intake.draft({ maxValues: MAX_VALUES });
    const wanted = rowsOf(slow, () => {
      for (const line of utf8(bytes).split('\n')) {
        if (/^[ \t\r]*$/.test(line)) continue;
        addJsonValue(slow, parsed(line));
      }
    });
    demandSame('values of JSON.parse per line and accepted values', found, wanted);
    // A partial draft accepts valid lines.
    const part = inPart.intake.draft({ isPartial: true, maxValues: MAX_VALUES });
    rowsOf(part, () => readNdjsonBody(bytes, part));
  },
};

const MS_OF_UNIT: Readonly<Record<string, number>> = { ns: 1e-6, us: 1e-3, ms: 1, s: 1_000 };

/** The first line contains the precision, and Influx tags for tag and key. */
const lineProtocol: FuzzTarget = {
  name: 'line-protocol',
  seeds: [
    'ns\nFT-101 flow=12.5,temperature=20i 1700000000000000000\nFT-101 flow=1\n',
    'ms name\nplant,host=gw,name=FT-101 flow=-0.5,temperature=1e3 1700000000000\n',
    's\nFT-101 flow=t\n# a comment\nF\\ T flow="a \\" b",temperature=2u 1700000000\r\n',
    '\na\nFT-101 flow=1\nb c\n',
    'ms key\nFT-101,host=gw flow=1 1700000000000\nFT-101,a=b flow=2 1700000000000\nFT-101 flow=3 1700000000000\n',
    'us\nFüllstand level=1 1700000000000000\n',
  ],
  run(bytes) {
    const { head, rest } = headAndRest(bytes);
    const words = head.split(' ');
    const precision = words.find((word) => Object.hasOwn(MS_OF_UNIT, word));
    const options = {
      msOfUnit: MS_OF_UNIT[precision ?? 'ns']!,
      isUnitGuessed: precision === undefined,
      tagFrom: words.includes('name') ? 'name' : undefined,
      keyOf: words.includes('key')
        ? (field: string, tags: ReadonlyMap<string, string>) => `${field}${tags.get('host') ?? ''}`
        : undefined,
    };
    const taken = (body: Buffer, from: typeof bench) => {
      const draft = from.intake.draft({ isPartial: true, maxValues: MAX_VALUES });
      const rejected = new RejectedLines();
      const rows = rowsOf(draft, () => readLineProtocol(body, options, draft, rejected));
      return { rows, rejected: rejected.count };
    };
    // A byte order mark counts only at the beginning.
    if (rest[0] === 0xef) return;
    demandSame(
      'lines alone and behind a comment',
      taken(rest, lines),
      taken(Buffer.concat([Buffer.from('#\n'), rest]), sameLines),
    );
  },
};

export const PUSHED_VALUES = [jsonBody, ndjson, lineProtocol];
