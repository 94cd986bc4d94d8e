/** What a server says of a value, in the agent's words. Pure. */
import { DataType, type DataValue } from 'node-opcua-client';
import type { Status } from './protocol.ts';

/** Number, `null` where there is none; milliseconds, `null` where it came without; severity. */
export type Reading = readonly [raw: number | null, timeMs: number | null, status: Status];

/** What a status code's two highest bits say; the fourth value is reserved, and no good sign. */
const SEVERITIES: readonly Status[] = [0, 1, 2, 2];
/** The code tells of a value, and that its queue on the server was too small. */
const OVERFLOW = 0x480;

export function readingOf({ value, statusCode, sourceTimestamp, serverTimestamp }: DataValue): Reading {
  return [numberOf(value), timeOf(sourceTimestamp) ?? timeOf(serverTimestamp), SEVERITIES[statusCode.value >>> 30]!];
}

export function isOverflow({ statusCode }: DataValue): boolean {
  return (statusCode.value & OVERFLOW) === OVERFLOW;
}

/** Servers say "never" with the year 1601. */
function timeOf(date: Date | null | undefined): number | null {
  const ms = date?.getTime() ?? Number.NaN;
  return ms >= 0 ? Math.floor(ms) : null;
}

function numberOf(variant: DataValue['value'] | undefined): number | null {
  if (!variant) return null;
  const { dataType, value } = variant;
  switch (dataType) {
    case DataType.Boolean:
      return Number(elementOf(value));
    case DataType.Int64:
    case DataType.UInt64:
      return wholeOf(value, dataType === DataType.Int64);
    case DataType.SByte:
    case DataType.Byte:
    case DataType.Int16:
    case DataType.UInt16:
    case DataType.Int32:
    case DataType.UInt32:
    case DataType.Float:
    case DataType.Double: {
      const number = elementOf(value);
      return typeof number === 'number' && Number.isFinite(number) ? number : null;
    }
    default:
      return null;
  }
}

/** What was asked for by its index comes as an array of one. */
function elementOf(value: unknown): unknown {
  if (!Array.isArray(value) && !ArrayBuffer.isView(value)) return value;
  const { length } = value as ArrayLike<unknown>;
  return length === 1 ? (value as ArrayLike<unknown>)[0] : undefined;
}

/** Two halves of 32 bits; beyond 2^53 the nearest double. */
function wholeOf(value: unknown, isSigned: boolean): number | null {
  const pair = Array.isArray(value) && Array.isArray(value[0]) ? elementOf(value) : value;
  if (!Array.isArray(pair) || pair.length !== 2) return null;
  const bits = (BigInt(pair[0] >>> 0) << 32n) | BigInt(pair[1] >>> 0);
  return Number(isSigned ? BigInt.asIntN(64, bits) : bits);
}
