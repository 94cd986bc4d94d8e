/**
 * Modbus requests and responses. A protocol data unit (PDU) consists of a function code and data. Modbus TCP adds a
 * transaction number and a length; serial frames add a checksum.
 */
import type { ModbusSpec } from './line-spec.ts';
import { exceptionOf, invalidResponse, type ModbusError } from './modbus-error.ts';
import { isBits, type ModbusTable, type Span, type Written } from './register.ts';

export interface ModbusRequest {
  device: ModbusSpec;
  pdu: Buffer;
  /** Length of the PDU of a valid response. */
  responseBytes: number;
  isWrite: boolean;
}

/** Maximum length of a frame. */
export const MAX_FRAME_BYTES = 260;
const TCP_HEADER_BYTES = 6;
/** Unit number and checksum of a serial frame. */
const SERIAL_OVERHEAD = 3;
const OTHER_TRANSACTION =
  'If the device never returns the transaction number of a request, set `framing: unnumbered`. A slow device requires ' +
  'a longer `timeout`.';
const OTHER_UNIT = 'If the device always responds with another unit number, set `any_unit: true`.';
const EXCEPTION_PDU_BYTES = 2;
const EXCEPTION_FLAG = 0x80;
const READ_FUNCTION: Readonly<Record<ModbusTable, number>> = { coil: 1, discrete: 2, holding: 3, input: 4 };
/** Functions that write one register or coil, and several. */
const WRITE_REGISTER = [6, 16] as const;
const WRITE_COIL = [5, 15] as const;
const COIL_ON = 0xff00;

export function readRequest(device: ModbusSpec, { table, address, length }: Span): ModbusRequest {
  const dataBytes = isBits(table) ? Math.ceil(length / 8) : length * 2;
  const pdu = pduOf(READ_FUNCTION[table], address, length);
  return { device, pdu, responseBytes: 2 + dataBytes, isWrite: false };
}

/**
 * Returns the request that writes consecutive holding registers or a coil. A single one can be written with two
 * functions, of which a device may support only one: in this case, returns two requests.
 */
export function writeRequests(device: ModbusSpec, address: number, written: Written): [ModbusRequest, ModbusRequest?] {
  const isCoil = typeof written === 'boolean';
  const words = isCoil ? [written ? COIL_ON : 0] : written;
  const data = isCoil ? [Number(written)] : words.flatMap((word) => [word >> 8, word & 0xff]);
  const requestOf = (pdu: Buffer) => ({ device, pdu, responseBytes: 5, isWrite: true });
  const [one, several] = isCoil ? WRITE_COIL : WRITE_REGISTER;
  const request = requestOf(Buffer.of(...pduOf(several, address, words.length), data.length, ...data));
  return words.length === 1 ? [requestOf(pduOf(one, address, words[0]!)), request] : [request];
}

function pduOf(code: number, first: number, second: number) {
  return Buffer.of(code, first >> 8, first & 0xff, second >> 8, second & 0xff);
}

/** `transaction` identifies the response. */
export function tcpFrame({ device, pdu }: ModbusRequest, transaction: number): Buffer {
  const length = 1 + pdu.length;
  const header = [transaction >> 8, transaction & 0xff, 0, 0, length >> 8, length & 0xff, device.unit];
  return Buffer.concat([Buffer.from(header), pdu]);
}

export function serialFrame({ device: { unit }, pdu }: ModbusRequest): Buffer {
  const sum = checksum([unit, ...pdu]);
  return Buffer.of(unit, ...pdu, sum & 0xff, sum >> 8);
}

/**
 * Returns the data of the response if the bytes received since the request contain it. Ignores responses to other
 * requests, unless `transaction` is undefined. Throws a `ModbusError`.
 */
export function tcpResponse(received: Buffer, request: ModbusRequest, transaction?: number): Buffer | undefined {
  const { device } = request;
  for (let start = 0; start + TCP_HEADER_BYTES < received.length; ) {
    const frame = received.subarray(start);
    const end = TCP_HEADER_BYTES + frame.readUInt16BE(4);
    const isTcp = frame.readUInt16BE(2) === 0 || end === frame.length;
    if (!isTcp || end > MAX_FRAME_BYTES) {
      throw invalidResponse('not a Modbus TCP frame', 'If the host forwards serial frames, set `framing: rtu`.');
    }
    if (end > frame.length) return undefined;
    if (transaction === undefined || frame.readUInt16BE(0) === transaction) {
      const unit = frame[TCP_HEADER_BYTES];
      if (unit !== device.unit && !device.isAnyUnit) {
        throw invalidResponse(`unit ${unit} instead of ${device.unit}`, OTHER_UNIT);
      }
      return dataOf(frame.subarray(TCP_HEADER_BYTES + 1, end), request);
    }
    start += end;
  }
  return undefined;
}

/** Returns the problem if only a part of the response, or a response with another transaction number, has arrived. */
export function incompleteResponse(received: Buffer, timeoutMs: number, transaction: number | undefined): ModbusError {
  const isOther =
    transaction !== undefined && received.length > TCP_HEADER_BYTES && received.readUInt16BE(0) !== transaction;
  if (!isOther) return invalidResponse(`no complete response within ${timeoutMs} ms`);
  return invalidResponse(`transaction ${received.readUInt16BE(0)} instead of ${transaction}`, OTHER_TRANSACTION);
}

/** Like `tcpResponse`. Skips line noise and frames of other units before the response. */
export function serialResponse(received: Buffer, request: ModbusRequest): Buffer | undefined {
  const code = request.pdu[0]!;
  for (let start = 0; start < received.length - 1; start++) {
    if (received[start] !== request.device.unit || (received[start + 1]! & ~EXCEPTION_FLAG) !== code) continue;
    const bytes = SERIAL_OVERHEAD + (received[start + 1] === code ? request.responseBytes : EXCEPTION_PDU_BYTES);
    const frame = received.subarray(start, start + bytes);
    if (frame.length < bytes) return undefined;
    if (frame.readUInt16LE(bytes - 2) !== checksum(frame.subarray(0, -2))) throw invalidResponse('wrong checksum');
    return dataOf(frame.subarray(1, -2), request);
  }
  return undefined;
}

function dataOf(pdu: Buffer, { pdu: [code], responseBytes, isWrite }: ModbusRequest): Buffer {
  if (pdu[0] === (code! | EXCEPTION_FLAG) && pdu.length === EXCEPTION_PDU_BYTES) throw exceptionOf(pdu[1]!);
  if (pdu[0] !== code) throw invalidResponse('wrong function code');
  const isComplete = pdu.length === responseBytes && (isWrite || pdu[1] === responseBytes - 2);
  if (!isComplete) throw invalidResponse('wrong byte count');
  return pdu.subarray(2);
}

/** Returns the CRC-16 of a serial frame ("MODBUS over Serial Line", section 6.2.2). */
function checksum(bytes: Iterable<number>): number {
  let sum = 0xffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >> 1) ^ 0xa001 : sum >> 1;
  }
  return sum;
}
