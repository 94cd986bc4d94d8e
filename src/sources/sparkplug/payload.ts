/**
 * Reads values from Sparkplug B payloads (Eclipse Sparkplug 3.0, chapter 6.4) with a protobuf reader and a built-in
 * schema. Skips fields unrelated to values (metadata, the content of data sets and templates). Compressed payloads are
 * expanded up to a limit. Pure.
 */
import { gunzipSync, inflateSync } from 'node:zlib';
import { BinaryReader, type WireType } from '@bufbuild/protobuf/wire';
import { codeOf } from '../../base/errors.ts';
import { quote } from '../intake/address-book.ts';
import type { Quality } from '../intake/gate.ts';
import type { RawReading } from '../intake/shaping.ts';
import { parseDecimal, unpadded } from '../intake/text-parsers.ts';

export interface SparkplugMetric {
  name: string | undefined;
  alias: number | undefined;
  /** Milliseconds since 1970. */
  timeMs: number | undefined;
  datatype: number | undefined;
  isNull: boolean;
  /** Whether the node stored the value and sent it later. */
  isHistorical: boolean;
  /** Raw value. Its meaning depends on the data type, which may be specified only in the birth certificate. */
  value: number | bigint | boolean | string | undefined;
  /** Whether the value is encoded as an unsigned integer, which may represent a negative number. */
  isInteger: boolean;
  /** Content that is not a single value, if the metric has any. */
  compound: 'Bytes' | 'DataSet' | 'Template' | 'Extension' | undefined;
  quality: Quality | undefined;
}

export interface SparkplugPayload {
  timeMs: number | undefined;
  seq: number | undefined;
  metrics: SparkplugMetric[];
}

/** Reading of a metric, or the reason why it has none. */
export type MetricReading = { raw: RawReading } | { problem: string };

/** Data types (chapter 6.4.16); the position is the number of the type. */
const TYPE_NAMES =
  'Unknown Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float Double Boolean String DateTime Text UUID DataSet Bytes File Template PropertySet PropertySetList Int8Array Int16Array Int32Array Int64Array UInt8Array UInt16Array UInt32Array UInt64Array FloatArray DoubleArray BooleanArray StringArray DateTimeArray'.split(
    ' ',
  );
const [INT8, INT16, INT32, INT64] = [1, 2, 3, 4];
const BOOLEAN = 11;

/** Marks a payload whose body contains another payload, as Eclipse Tahu compresses it. */
const COMPRESSED = 'SPBV1.0_COMPRESSED';
const ALGORITHM = 'algorithm';
const EXPAND: Readonly<Record<string, typeof inflateSync>> = { DEFLATE: inflateSync, GZIP: gunzipSync };
/** Maximum expanded size of a compressed payload. */
const MAX_EXPANDED_BYTES = 4 * 1024 * 1024;
/** Maximum number of metrics per payload. A metric can be two bytes long, but occupies a hundred times as much memory. */
const MAX_METRICS = 50_000;
/** Quality property (chapter 6.4.12): an OPC quality, or 500 for stale. */
const QUALITY = 'Quality';
const GOOD = 192;
const UNCERTAIN = 64;
const STALE = 500;

/** Throws if the bytes are not a Sparkplug B payload or exceed a limit. */
export function decodePayload(bytes: Uint8Array): SparkplugPayload {
  const { uuid, body, ...outer } = readPayload(bytes);
  if (uuid !== COMPRESSED) return outer;
  const inner = readPayload(expand(body, outer));
  if (inner.uuid === COMPRESSED) throw new RangeError('it is compressed twice');
  const { timeMs = outer.timeMs, seq = outer.seq, metrics } = inner;
  return { timeMs, seq, metrics };
}

interface WrittenPayload extends SparkplugPayload {
  uuid: string | undefined;
  body: Uint8Array | undefined;
}

function readPayload(bytes: Uint8Array): WrittenPayload {
  const reader = new BinaryReader(bytes);
  const payload: WrittenPayload = { timeMs: undefined, seq: undefined, metrics: [], uuid: undefined, body: undefined };
  eachField(reader, reader.len, (field) => {
    if (field === 1) payload.timeMs = Number(reader.uint64());
    else if (field === 2) {
      if (payload.metrics.push(readMetric(reader)) > MAX_METRICS) {
        throw new RangeError(`it contains more than ${MAX_METRICS} metrics`);
      }
    } else if (field === 3) payload.seq = Number(reader.uint64());
    else if (field === 4) payload.uuid = reader.string();
    else if (field === 5) payload.body = reader.bytes();
    else return false;
    return true;
  });
  return payload;
}

/** Expands the body of a compressed payload. The default algorithm is DEFLATE, as in Eclipse Tahu. */
function expand(body: Uint8Array | undefined, { metrics }: SparkplugPayload): Uint8Array {
  const algorithm = String(metrics.find(({ name }) => name === ALGORITHM)?.value ?? 'DEFLATE');
  const expandSync = EXPAND[algorithm.toUpperCase()];
  if (expandSync === undefined) throw new RangeError(`unknown compression algorithm ${quote(algorithm)}`);
  try {
    return expandSync(body ?? new Uint8Array(), { maxOutputLength: MAX_EXPANDED_BYTES });
  } catch (error) {
    if (codeOf(error) === 'ERR_BUFFER_TOO_LARGE') throw new RangeError('it exceeds 4 MiB when expanded');
    throw new RangeError(`its body is not valid ${algorithm.toUpperCase()}`);
  }
}

/**
 * Returns the reading of a metric. `born`: data type in the birth certificate, used if the metric has none. `isMapped`:
 * the value has a map, so any text is a reading.
 */
export function readingOf(metric: SparkplugMetric, born: number | undefined, isMapped: boolean): MetricReading {
  const { isNull, value, compound } = metric;
  if (isNull) return { problem: 'the metric is null' };
  if (typeof value === 'boolean') return { raw: value };
  if (metric.isInteger && !typeOf(metric, born)) {
    return { problem: `the metric is the integer ${value} without a data type, so its sign is unknown` };
  }
  const number = numberOf(metric, born);
  if (number !== undefined) return Number.isFinite(number) ? { raw: number } : { problem: `the metric is ${number}` };
  const type = TYPE_NAMES[typeOf(metric, born)];
  if (typeof value === 'string') {
    if (isMapped || Number.isFinite(parseDecimal(unpadded(value)))) return { raw: value };
    return { problem: `the metric is of type ${type ?? 'String'} (${quote(value)}), not a number` };
  }
  if (compound === undefined) return { problem: 'the metric has no value' };
  return { problem: `the metric is of type ${type ?? compound}, not a number` };
}

/**
 * Returns the value as a number, or `undefined` if the data type is not numeric. `born`: data type according to the
 * birth certificate, used if the metric specifies no data type.
 */
export function numberOf(metric: SparkplugMetric, born: number | undefined): number | undefined {
  const { value } = metric;
  const type = typeOf(metric, born);
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (typeof value === 'bigint') return Number(type === INT64 ? BigInt.asIntN(64, value) : value);
  if (typeof value !== 'number') return undefined;
  // Signed integers of up to 32 bits are encoded as unsigned integers.
  if (type === INT8) return (value << 24) >> 24;
  if (type === INT16) return (value << 16) >> 16;
  return type === INT32 ? value | 0 : value;
}

/** Returns whether a metric with a value is numeric. */
export function isNumber(metric: SparkplugMetric, born: number | undefined): boolean {
  const type = typeOf(metric, born);
  return type >= INT8 && type <= BOOLEAN;
}

/** Returns the data type; 0 if it is unknown. */
function typeOf({ datatype }: SparkplugMetric, born: number | undefined): number {
  return datatype || born || 0;
}

/** Calls `read` for each field up to `end`. Skips the field if `read` returns `false`. */
function eachField(reader: BinaryReader, end: number, read: (field: number) => boolean): void {
  while (reader.pos < end) {
    const [field, wireType]: [number, WireType] = reader.tag();
    if (!read(field)) reader.skip(wireType, field);
  }
}

function endOf(reader: BinaryReader): number {
  const length = reader.uint32();
  const end = reader.pos + length;
  if (end > reader.len) throw new RangeError('a field is longer than the payload');
  return end;
}

const [INT_VALUE, LONG_VALUE] = [10, 11];
/** Members of a metric by field number. */
const FIELDS: Readonly<Record<number, readonly [keyof SparkplugMetric, (reader: BinaryReader) => unknown]>> = {
  1: ['name', (reader) => reader.string()],
  2: ['alias', (reader) => Number(reader.uint64())],
  3: ['timeMs', (reader) => Number(reader.uint64())],
  4: ['datatype', (reader) => reader.uint32()],
  5: ['isHistorical', (reader) => reader.bool()],
  7: ['isNull', (reader) => reader.bool()],
  9: ['quality', readQuality],
  [INT_VALUE]: ['value', (reader) => reader.uint32()],
  [LONG_VALUE]: ['value', (reader) => BigInt(reader.uint64())],
  12: ['value', (reader) => reader.float()],
  13: ['value', (reader) => reader.double()],
  14: ['value', (reader) => reader.bool()],
  15: ['value', (reader) => reader.string()],
};
/** Content that is not read, by field number. */
const COMPOUNDS: Readonly<Record<number, SparkplugMetric['compound']>> = {
  16: 'Bytes',
  17: 'DataSet',
  18: 'Template',
  19: 'Extension',
};

function readMetric(reader: BinaryReader): SparkplugMetric {
  const metric: SparkplugMetric = {
    name: undefined,
    alias: undefined,
    timeMs: undefined,
    datatype: undefined,
    isNull: false,
    isHistorical: false,
    value: undefined,
    isInteger: false,
    compound: undefined,
    quality: undefined,
  };
  eachField(reader, endOf(reader), (field) => {
    const found = FIELDS[field];
    if (found) metric.isInteger ||= field === INT_VALUE || field === LONG_VALUE;
    if (found) (metric as unknown as Record<string, unknown>)[found[0]] = found[1](reader);
    else metric.compound = COMPOUNDS[field] ?? metric.compound;
    return found !== undefined;
  });
  return metric;
}

function readQuality(reader: BinaryReader): Quality | undefined {
  const keys: string[] = [];
  const values: (number | undefined)[] = [];
  eachField(reader, endOf(reader), (field) => {
    if (field === 1) keys.push(reader.string());
    else if (field === 2) values.push(readProperty(reader));
    else return false;
    return true;
  });
  const code = values[keys.indexOf(QUALITY)];
  if (code === undefined) return undefined;
  if (code === STALE || code < UNCERTAIN) return 'bad';
  return code < GOOD ? 'uncertain' : 'good';
}

function readProperty(reader: BinaryReader): number | undefined {
  let value: number | undefined;
  eachField(reader, endOf(reader), (field) => {
    if (field === 3) value = reader.uint32();
    else if (field === 4) value = Number(reader.uint64());
    else return false;
    return true;
  });
  return value;
}
