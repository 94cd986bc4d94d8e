import { deflateSync, gzipSync } from 'node:zlib';
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import { TagferryError } from '../../../../src/base/errors.ts';
import { UNSHAPED } from '../../../../src/config/tags.ts';
import { readCsv } from '../../../../src/sources/csv/csv.ts';
import { formatProblem, TimeReader } from '../../../../src/sources/intake/logger-time.ts';
import { parseDecimal, parseIsoTime } from '../../../../src/sources/intake/text-parsers.ts';
import { type MessageValue, readMessage } from '../../../../src/sources/messages/payload.ts';
import { decodePayload, readingOf } from '../../../../src/sources/sparkplug/payload.ts';
import { demand, demandSame, type FuzzTarget, headAndRest, refusing } from '../target.ts';

const isOurs = (error: unknown) => error instanceof TagferryError;

/** The first line contains the JSON pointers of value, time and status; `-` for none. */
const mqttPayload: FuzzTarget = {
  name: 'mqtt-payload',
  seeds: [
    '- - -\n12.5',
    '/v /t /q\n{"v":"12.5","t":"2026-11-21T00:00:00Z","q":"GOOD"}',
    '/a~1b/0/~0 /t -\n{"a/b":[{"~":true}],"t":1700000000123}',
    '/v - -\n{"v":{"v":1}}',
    '- - -\n"false"',
  ],
  run(bytes) {
    const { head, rest } = headAndRest(bytes);
    const [at, time, status, timeUnit] = head
      .split(' ')
      .map((word) => (word === '-' || word === '' ? undefined : word));
    const unit = timeUnit === 's' || timeUnit === 'us' || timeUnit === 'ns' ? timeUnit : 'ms';
    const value: MessageValue = {
      topic: 't',
      template: 't',
      timeUnit: unit,
      ...(at === undefined ? {} : { at }),
      ...(time === undefined ? {} : { time }),
      ...(status === undefined ? {} : { status }),
    };
    const point = { name: 'T v', series: 1, everyMs: 0, shaping: UNSHAPED, spec: value };
    const { readings, problem } = readMessage({ payload: rest }, [point], { arrivalMs: 0 });
    const reading = readings[0]!;
    const isNumber = 'raw' in reading && Number.isFinite(reading.raw);
    demand(isNumber === (problem === undefined), 'a reading is neither a finite number nor a problem');
    if (!('timeMs' in reading) || reading.timeMs === undefined) return;
    demand(Number.isInteger(reading.timeMs), 'a time is not a whole number');
  },
};

/** Metric `flow` = 12.5 (double), alias 3 = -1 (Int32), a boolean, a string, a quality. */
const SPARKPLUG = Buffer.from(
  '08d2f5c6ebae3112170a04666c6f771807200a69000000000000294018d2f5c6ebae311207100320035001ffffffff0f1800',
  'hex',
);

/** Returns a payload (uuid, body, metric `algorithm`) with compressed content. */
function compressed(body: Buffer, algorithm: string): Uint8Array {
  const metric = new BinaryWriter().tag(1, 2).string('algorithm').tag(15, 2).string(algorithm).finish();
  return new BinaryWriter()
    .tag(2, 2)
    .bytes(metric)
    .tag(4, 2)
    .string('SPBV1.0_COMPRESSED')
    .tag(5, 2)
    .bytes(body)
    .finish();
}

const sparkplug: FuzzTarget = {
  name: 'sparkplug',
  seeds: [
    SPARKPLUG,
    Buffer.from('12120a04666c6f77200a69000000000000294018d20f', 'hex'),
    Buffer.from('120b0a0161200b70014a040a0251711200', 'hex'),
    Buffer.from('1213100320084a0d0a075175616c69747912021840', 'hex'),
    compressed(gzipSync(SPARKPLUG), 'GZIP'),
    compressed(deflateSync(SPARKPLUG), 'DEFLATE'),
  ],
  run(bytes) {
    // The source reports errors of the protobuf decoder as unreadable messages.
    const payload = refusing(
      (error) => error instanceof Error,
      () => decodePayload(bytes),
    );
    if (payload === undefined) return;
    demand(payload.metrics.length <= 50_000, 'more metrics than the limit');
    for (const metric of payload.metrics) {
      for (const born of [undefined, 1, 2, 3, 4, 8, 10, 13]) {
        const reading = readingOf(metric, born, false);
        const isReading = 'problem' in reading || Number.isFinite(Number(reading.raw));
        demand(isReading, 'a metric is neither a finite number nor a problem');
      }
    }
  },
};

/** The first byte determines the size of the pieces. */
const csv: FuzzTarget = {
  name: 'csv',
  seeds: [
    'a'.concat('time,flow\n2026-11-21T00:00:00Z,12.5\n'),
    'btime;"flow ""x"""\r\n21.11.2026;"1,5\n2"\r\n\r\n',
    'c\ttime\tflow\n1\t2\n"\n',
    'd"a"b,c\n',
  ],
  async run(bytes) {
    const rest = bytes.subarray(1);
    // Larger pieces for larger files, to limit the run time.
    const piece = Math.max(1, (bytes[0] ?? 1) % 16, rest.length >> 7);
    const read = async (pieceBytes: number) => {
      const records: unknown[] = [];
      try {
        for await (const record of readCsv(piecesOf(rest, pieceBytes))) records.push(record);
      } catch (error) {
        if (isOurs(error)) return 'refused';
        throw error;
      }
      return records;
    };
    demandSame('a file in one piece and in several', await read(rest.length + 1), await read(piece));
  },
};

async function* piecesOf(bytes: Buffer, pieceBytes: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += pieceBytes) yield bytes.subarray(at, at + pieceBytes);
}

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?(Z|[+-]\d\d:\d\d)$/;

/** The first line is a time or a number, the second one a logger format. */
const times: FuzzTarget = {
  name: 'times-and-numbers',
  seeds: [
    '2026-11-21T00:00:00.123+01:00\n',
    '2000-02-29 24:00:00,5Z\n',
    '31.03.2026 02:30:00\nDD.MM.YYYY HH:mm:ss',
    '11/21/26 12:30 p.m.\nMM/DD/YY hh:mm A',
    '-12.345e-3\nunix',
    '123456789012345678901234567890\nexcel',
    '0.1\nunix_ms',
  ],
  run(bytes) {
    const { head, rest } = headAndRest(bytes);
    const number = parseDecimal(head);
    demand(Number.isNaN(number) || Object.is(number, Number(head)), `${head} is read as ${number}`);
    const timeMs = parseIsoTime(head);
    const wanted = ISO.test(head) ? Date.parse(head) : Number.NaN;
    // Date.parse does not support 24:00 and leap seconds.
    if (!Number.isNaN(wanted)) demandSame(head, timeMs, wanted);
    demand(Number.isNaN(timeMs) || Number.isInteger(timeMs), `${head} is not in whole milliseconds: ${timeMs}`);
    const format = rest.toString('utf8').split('\n')[0]!;
    if (format !== '' && formatProblem(format) !== undefined) return;
    const reader = new TimeReader({ zone: 'Europe/Berlin', ...(format === '' ? {} : { format }) });
    const read = reader.read(head);
    demand(read === undefined || Number.isFinite(read.timeMs), `${head} in ${format} is ${read?.timeMs}`);
  },
};

export const PLANT_VALUES = [mqttPayload, sparkplug, csv, times];
