/**
 * Sparkplug B payloads (Eclipse Sparkplug 3.0, chapter 6.4), read and written with a protobuf reader and writer and a
 * built-in schema. Skips fields unrelated to values (metadata, the content of data sets and templates). Compressed
 * payloads are expanded up to a limit. Pure.
 */
import { gunzipSync, inflateSync } from 'node:zlib';
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
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
  /** Number of the field that contains the value, or content that is not read. `undefined` if there is none. */
  valueField: number | undefined;
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
const [INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT, DOUBLE, BOOLEAN] = [
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
] as const;
/** Limits of the integer types. 64-bit values are limited to exact doubles. */
const LIMITS: Readonly<Record<number, readonly [min: number, max: number]>> = {
  [INT8]: [-128, 127],
  [INT16]: [-32_768, 32_767],
  [INT32]: [-2_147_483_648, 2_147_483_647],
  [INT64]: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  [UINT8]: [0, 255],
  [UINT16]: [0, 65_535],
  [UINT32]: [0, 4_294_967_295],
  [UINT64]: [0, Number.MAX_SAFE_INTEGER],
};
/** Sizes of the signed integer types that are encoded as unsigned integers of this size, of 32 or of 64 bits. */
const SIGNED_BITS: Readonly<Record<number, number>> = { [INT8]: 8, [INT16]: 16, [INT32]: 32 };
/** Fields of a metric that contain its value, and the data type of those that are not numbers. */
const [INT_VALUE, LONG_VALUE, EXTENSION_VALUE] = [10, 11, 19];
const TYPE_OF_FIELD: Readonly<Record<number, number>> = { 15: 12, 16: 17, 17: 16, 18: 19 };

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

/** Also reads integers as numbers, because BigInts take three times as long. */
class PayloadReader extends BinaryReader {
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    super(bytes);
    this.#bytes = bytes;
  }

  /** Reads an unsigned integer. Numbers above 2^53 are rounded. */
  number(): number {
    let value = 0;
    for (let factor = 1; factor < 2 ** 70; factor *= 128) {
      if (this.pos >= this.len) throw new RangeError('premature end of the payload');
      const byte = this.#bytes[this.pos++]!;
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
    throw new RangeError('an integer has more than 64 bits');
  }
}

interface WrittenPayload extends SparkplugPayload {
  uuid: string | undefined;
  body: Uint8Array | undefined;
}

function readPayload(bytes: Uint8Array): WrittenPayload {
  const reader = new PayloadReader(bytes);
  const payload: WrittenPayload = { timeMs: undefined, seq: undefined, metrics: [], uuid: undefined, body: undefined };
  eachField(reader, reader.len, (field) => {
    if (field === 1) payload.timeMs = reader.number();
    else if (field === 2) {
      if (payload.metrics.push(readMetric(reader)) > MAX_METRICS) {
        throw new RangeError(`it contains more than ${MAX_METRICS} metrics`);
      }
    } else if (field === 3) payload.seq = reader.number();
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
  const { value, valueField } = metric;
  if (metric.isNull) return { problem: 'the metric is null' };
  if (valueField === undefined) return { problem: 'the metric has no value' };
  if (typeof value === 'boolean') return { raw: value };
  const type = metric.datatype || born || 0;
  if (typeof value === 'number' || typeof value === 'bigint') {
    if (type === 0 && isInteger(metric)) {
      return { problem: `the metric is the integer ${value} without a data type, so its sign is unknown` };
    }
    const number = isInteger(metric) ? integerOf(value, type) : Number(value);
    if (exceeds(number, type)) {
      return { problem: `the metric is ${number}, which does not fit the type ${TYPE_NAMES[type]}` };
    }
    return Number.isFinite(number) ? { raw: number } : { problem: `the metric is ${number}` };
  }
  if (typeof value === 'string' && (isMapped || Number.isFinite(parseDecimal(unpadded(value))))) return { raw: value };
  const name = TYPE_NAMES[type || (TYPE_OF_FIELD[valueField] ?? 0)] ?? type;
  const text = typeof value === 'string' ? ` (${quote(value)})` : '';
  return { problem: `the metric is of type ${name}${text}, not a number` };
}

/** Returns an integer in its data type, which it can exceed. */
function integerOf(value: number | bigint, type: number): number {
  const bits = SIGNED_BITS[type];
  const isSigned = bits !== undefined || type === INT64;
  const number = Number(typeof value === 'bigint' && isSigned ? BigInt.asIntN(64, value) : value);
  if (bits === undefined || number < 2 ** (bits - 1) || number >= 2 ** 32) return number;
  if (number >= 2 ** 31) return number - 2 ** 32;
  return number < 2 ** bits ? number - 2 ** bits : number;
}

/** Returns whether a number exceeds its data type. Any 64-bit integer fits, rounded to the nearest double. */
function exceeds(number: number, type: number): boolean {
  if (type === INT64 || type === UINT64) return false;
  const [min = number, max = number] = LIMITS[type] ?? [];
  return number < min || number > max;
}

/** Returns whether the value is encoded as an unsigned integer, which represents a negative number in some types. */
export function isInteger({ valueField }: SparkplugMetric): boolean {
  return valueField === INT_VALUE || valueField === LONG_VALUE;
}

/** Returns whether the data type is numeric. */
export function isNumeric({ datatype = 0 }: SparkplugMetric): boolean {
  return datatype >= INT8 && datatype <= BOOLEAN;
}

/** Calls `read` for each field up to `end`. Skips the field if `read` returns `false`. */
function eachField(reader: PayloadReader, end: number, read: (field: number) => boolean): void {
  while (reader.pos < end) {
    const [field, wireType]: [number, WireType] = reader.tag();
    if (!read(field)) reader.skip(wireType, field);
  }
}

function endOf(reader: PayloadReader): number {
  const length = reader.uint32();
  const end = reader.pos + length;
  if (end > reader.len) throw new RangeError('a field is longer than the payload');
  return end;
}

function readMetric(reader: PayloadReader): SparkplugMetric {
  const metric: SparkplugMetric = {
    name: undefined,
    alias: undefined,
    timeMs: undefined,
    datatype: undefined,
    isNull: false,
    isHistorical: false,
    value: undefined,
    valueField: undefined,
    quality: undefined,
  };
  eachField(reader, endOf(reader), (field) => {
    if (field >= INT_VALUE && field <= EXTENSION_VALUE) metric.valueField = field;
    if (field === 1) metric.name = reader.string();
    else if (field === 2) metric.alias = reader.number();
    else if (field === 3) metric.timeMs = reader.number();
    else if (field === 4) metric.datatype = reader.uint32();
    else if (field === 5) metric.isHistorical = reader.bool();
    else if (field === 7) metric.isNull = reader.bool();
    else if (field === 9) metric.quality = readQuality(reader);
    else if (field === INT_VALUE) metric.value = reader.uint32();
    else if (field === LONG_VALUE) metric.value = BigInt(reader.uint64());
    else if (field === 12) metric.value = reader.float();
    else if (field === 13) metric.value = reader.double();
    else if (field === 14) metric.value = reader.bool();
    else if (field === 15) metric.value = reader.string();
    else return false;
    return true;
  });
  return metric;
}

function readQuality(reader: PayloadReader): Quality | undefined {
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

function readProperty(reader: PayloadReader): number | undefined {
  let value: number | undefined;
  eachField(reader, endOf(reader), (field) => {
    if (field === 3) value = reader.uint32();
    else if (field === 4) value = reader.number();
    else return false;
    return true;
  });
  return value;
}

/** Returns the payload of the command that requests a node's birth certificate (chapter 6.4.20). */
export function rebirthCommand(wallMs: number): Uint8Array {
  return commandPayload('Node Control/Rebirth', BOOLEAN, 1, wallMs)!;
}

/**
 * Returns the payload of a command with one metric (chapters 6.4.20 and 6.4.24), or `undefined` if the number does not
 * fit. Numbers are not rounded.
 */
export function commandPayload(name: string, datatype: number, raw: number, wallMs: number): Uint8Array | undefined {
  const time = BigInt(Math.round(wallMs));
  const metric = new BinaryWriter().tag(1, WireType.LengthDelimited).string(name);
  metric.tag(3, WireType.Varint).uint64(time).tag(4, WireType.Varint).uint32(datatype);
  if (!writeNumber(metric, datatype, raw)) return undefined;
  const payload = new BinaryWriter().tag(1, WireType.Varint).uint64(time);
  return payload.tag(2, WireType.LengthDelimited).bytes(metric.finish()).finish();
}

/** Returns whether the number fits the data type. */
function writeNumber(metric: BinaryWriter, datatype: number, raw: number): boolean {
  const [min, max] = LIMITS[datatype] ?? [];
  if (datatype === FLOAT && Number.isFinite(Math.fround(raw))) metric.tag(12, WireType.Bit32).float(raw);
  else if (datatype === DOUBLE) metric.tag(13, WireType.Bit64).double(raw);
  else if (datatype === BOOLEAN && (raw === 0 || raw === 1)) metric.tag(14, WireType.Varint).bool(raw === 1);
  else if (min === undefined || max === undefined || !Number.isInteger(raw) || raw < min || raw > max) return false;
  else if (datatype === INT64 || datatype === UINT64) {
    metric.tag(LONG_VALUE, WireType.Varint).uint64(BigInt.asUintN(64, BigInt(raw)));
  } else metric.tag(INT_VALUE, WireType.Varint).uint32(raw >>> 0);
  return true;
}
