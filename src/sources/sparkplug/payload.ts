/**
 * Sparkplug B payloads (Eclipse Sparkplug 3.0, chapter 6.4), as far as values go: a schema of our own over a reader of protobuf.
 * Fields that say nothing of values (metadata, data sets, templates, bodies) are passed over. Pure.
 */
import { BinaryReader, type WireType } from '@bufbuild/protobuf/wire';
import type { Quality } from '../gate.ts';

export interface SparkplugMetric {
  name: string | undefined;
  alias: number | undefined;
  /** Milliseconds since 1970. */
  timeMs: number | undefined;
  datatype: number | undefined;
  isHistorical: boolean;
  isNull: boolean;
  /** As it came; what it means depends on the type, which may stand in the birth certificate alone. */
  value: number | bigint | boolean | string | undefined;
  quality: Quality | undefined;
}

export interface SparkplugPayload {
  timeMs: number | undefined;
  seq: number | undefined;
  metrics: SparkplugMetric[];
}

const TYPES = {
  Int8: 1,
  Int16: 2,
  Int32: 3,
  Int64: 4,
  UInt64: 8,
  Boolean: 11,
  String: 12,
  DateTime: 13,
  Text: 14,
} as const;
/** The property that tells whether a value is good (chapter 6.4.12): as OPC has it, and 500 for stale. */
const QUALITY = 'Quality';
const GOOD = 192;
const UNCERTAIN = 64;
const STALE = 500;

/** Throws where the bytes are no such payload. */
export function decodePayload(bytes: Uint8Array): SparkplugPayload {
  const reader = new BinaryReader(bytes);
  const payload: SparkplugPayload = { timeMs: undefined, seq: undefined, metrics: [] };
  eachField(reader, reader.len, (field) => {
    if (field === 1) payload.timeMs = Number(reader.uint64());
    else if (field === 2) payload.metrics.push(readMetric(reader));
    else if (field === 3) payload.seq = Number(reader.uint64());
    else return false;
    return true;
  });
  return payload;
}

/** What the metric holds as a number; `undefined` where its type holds none. `datatype` is that of its birth, where it has none itself. */
export function numberOf({ value, datatype }: SparkplugMetric, born: number | undefined): number | undefined {
  const type = datatype ?? born;
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (typeof value === 'bigint') return Number(type === TYPES.Int64 ? BigInt.asIntN(64, value) : value);
  if (typeof value !== 'number') return undefined;
  // Signed ones of 32 bits and less come as unsigned.
  if (type === TYPES.Int8) return (value << 24) >> 24;
  if (type === TYPES.Int16) return (value << 16) >> 16;
  return type === TYPES.Int32 ? value | 0 : value;
}

/** Whether it holds a number where it is not null. */
export function isNumber({ datatype }: SparkplugMetric, born: number | undefined): boolean {
  const type = datatype ?? born ?? 0;
  return type >= TYPES.Int8 && type <= TYPES.Boolean;
}

/** Calls for each field up to `end`; where the call gives `false` the field is passed over. */
function eachField(reader: BinaryReader, end: number, take: (field: number) => boolean): void {
  while (reader.pos < end) {
    const [field, wireType]: [number, WireType] = reader.tag();
    if (!take(field)) reader.skip(wireType, field);
  }
}

function endOf(reader: BinaryReader): number {
  const length = reader.uint32();
  const end = reader.pos + length;
  if (end > reader.len) throw new RangeError('a field is longer than the payload');
  return end;
}

function readMetric(reader: BinaryReader): SparkplugMetric {
  const metric: SparkplugMetric = {
    name: undefined,
    alias: undefined,
    timeMs: undefined,
    datatype: undefined,
    isHistorical: false,
    isNull: false,
    value: undefined,
    quality: undefined,
  };
  eachField(reader, endOf(reader), (field) => {
    switch (field) {
      case 1:
        metric.name = reader.string();
        return true;
      case 2:
        metric.alias = Number(reader.uint64());
        return true;
      case 3:
        metric.timeMs = Number(reader.uint64());
        return true;
      case 4:
        metric.datatype = reader.uint32();
        return true;
      case 5:
        metric.isHistorical = reader.bool();
        return true;
      case 7:
        metric.isNull = reader.bool();
        return true;
      case 9:
        metric.quality = readQuality(reader);
        return true;
      case 10:
        metric.value = reader.uint32();
        return true;
      case 11:
        metric.value = BigInt(reader.uint64());
        return true;
      case 12:
        metric.value = reader.float();
        return true;
      case 13:
        metric.value = reader.double();
        return true;
      case 14:
        metric.value = reader.bool();
        return true;
      case 15:
        metric.value = reader.string();
        return true;
      default:
        return false;
    }
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
