/** Payloads of the commands NCMD and DCMD (Eclipse Sparkplug 3.0, chapters 6.4.20 and 6.4.24). */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';

/** Data types (chapter 6.4.16) of numbers, with the limits of the integers. 64-bit values are limited to exact doubles. */
const FLOAT = 9;
const DOUBLE = 10;
const BOOLEAN = 11;
const INTEGERS: Readonly<Record<number, { min: number; max: number; isLong?: true }>> = {
  1: { min: -128, max: 127 },
  2: { min: -32_768, max: 32_767 },
  3: { min: -2_147_483_648, max: 2_147_483_647 },
  4: { min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER, isLong: true },
  5: { min: 0, max: 255 },
  6: { min: 0, max: 65_535 },
  7: { min: 0, max: 4_294_967_295 },
  8: { min: 0, max: Number.MAX_SAFE_INTEGER, isLong: true },
};

/** Returns the payload of the command that requests a node's birth certificate. */
export function rebirthCommand(wallMs: number): Uint8Array {
  return commandPayload('Node Control/Rebirth', BOOLEAN, 1, wallMs)!;
}

/** Returns the payload of a command with one metric, or `undefined` if the number does not fit. Numbers are not rounded. */
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
  if (datatype === FLOAT && Number.isFinite(Math.fround(raw))) metric.tag(12, WireType.Bit32).float(raw);
  else if (datatype === DOUBLE) metric.tag(13, WireType.Bit64).double(raw);
  else if (datatype === BOOLEAN && (raw === 0 || raw === 1)) metric.tag(14, WireType.Varint).bool(raw === 1);
  else {
    const limits = INTEGERS[datatype];
    if (limits === undefined || !Number.isInteger(raw) || raw < limits.min || raw > limits.max) return false;
    // Signed integers are encoded as unsigned integers of 32 or 64 bits.
    if (limits.isLong) metric.tag(11, WireType.Varint).uint64(BigInt.asUintN(64, BigInt(raw)));
    else metric.tag(10, WireType.Varint).uint32(raw >>> 0);
  }
  return true;
}
