import type { Clock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import { parseDecimal } from '../intake/text-parsers.ts';
import type { ScannedValue, ScanStep } from '../source-kind.ts';
import { ModbusError } from './modbus-error.ts';
import { decodeBit, isBits, shortest } from './register.ts';
import { maxLength, type Span } from './requests.ts';

/** Limits a scan to ten requests per second, because a high request rate can disrupt a PLC. */
const PAUSE_MS = 100;
const MAX_ADDRESSES = 20_000;
const MAX_PER_REQUEST = { registers: 16, bits: 64 };
/** Minimum length of a text, because shorter ones may be other values. */
const MIN_TEXT_REGISTERS = 2;
const MAX_TEXT_REGISTERS = 20;
const MAX_TRIES = 5;

/** Parses the ranges to scan, for example `holding 0-199` or `input 7`. Throws `UsageError`. */
export function readRanges(what: readonly string[]): Span[] {
  const spans = what.map((text) => {
    const match = /^(holding|input|coil|discrete)\s+(\d{1,5})(?:\s*-\s*(\d{1,5}))?$/i.exec(text.trim());
    const [first, last] = [Number(match?.[2]), Number(match?.[3] ?? match?.[2])];
    if (match === null || last < first || last > 65_535) {
      throw new UsageError(`"${text}" is not a register range`, 'Use a range such as "holding 0-199" or "input 0-49".');
    }
    return { table: match[1]!.toLowerCase() as Span['table'], address: first, length: last - first + 1 };
  });
  if (spans.length === 0) {
    throw new UsageError('no register range given', 'Specify a range such as "holding 0-199".');
  }
  if (spans.reduce((sum, { length }) => sum + length, 0) > MAX_ADDRESSES) {
    throw new UsageError(`more than ${MAX_ADDRESSES} addresses`, 'Scan fewer addresses at a time.');
  }
  return spans;
}

/**
 * Reads ranges at a limited rate, splits rejected requests in half, and yields the values found. `request` sends one
 * read request. Throws a `ModbusError` if the device does not respond.
 */
export async function* scanModbus(
  request: (span: Span, signal: AbortSignal) => Promise<Uint8Array>,
  ranges: readonly Span[],
  maxRegisters: number,
  clock: Clock,
  signal: AbortSignal,
): AsyncGenerator<ScanStep> {
  const total = ranges.reduce((sum, { length }) => sum + length, 0);
  let done = 0;
  for (const range of ranges) {
    const words = new Map<number, number>();
    for (const pending = chunksOf(range, maxRegisters); pending.length > 0; ) {
      const span = pending.shift()!;
      const bytes = await requestSlowly(request, span, clock, signal);
      if (bytes !== undefined) addWords(words, span, bytes);
      else if (span.length > 1) {
        const half = span.length >> 1;
        const right = { ...span, address: span.address + half, length: span.length - half };
        pending.unshift({ ...span, length: half }, right);
        continue;
      }
      done += span.length;
      yield { done, total };
    }
    for (const found of valuesOf(range.table, words)) yield { found };
  }
}

function chunksOf({ table, address, length }: Span, maxRegisters: number): Span[] {
  const most = isBits(table) ? MAX_PER_REQUEST.bits : MAX_PER_REQUEST.registers;
  const size = Math.min(most, maxLength(table, maxRegisters));
  return Array.from({ length: Math.ceil(length / size) }, (_, at) => ({
    table,
    address: address + at * size,
    length: Math.min(size, length - at * size),
  }));
}

/** Returns `undefined` if the device rejects the request. */
async function requestSlowly(
  request: (span: Span, signal: AbortSignal) => Promise<Uint8Array>,
  span: Span,
  clock: Clock,
  signal: AbortSignal,
): Promise<Uint8Array | undefined> {
  for (let tries = 1; ; tries++) {
    await clock.sleep(PAUSE_MS, signal);
    try {
      return await request(span, signal);
    } catch (error) {
      if (!(error instanceof ModbusError)) throw error;
      if (error.isRefusal) return undefined;
      const isTemporary = error.isBusy || error.failure === 'garbled';
      if (!isTemporary || tries >= MAX_TRIES) throw error;
    }
  }
}

function addWords(words: Map<number, number>, { table, address, length }: Span, bytes: Uint8Array): void {
  for (let at = 0; at < length; at++) {
    words.set(address + at, isBits(table) ? decodeBit(bytes, at) : (bytes[at * 2]! << 8) | bytes[at * 2 + 1]!);
  }
}

/** Yields each register once; registers that contain a number as text or a plausible float are combined. */
function* valuesOf(table: Span['table'], words: ReadonlyMap<number, number>): Generator<ScannedValue> {
  const letter = { holding: 'h', input: 'i', coil: 'c', discrete: 'd' }[table];
  const addresses = [...words.keys()].sort((a, b) => a - b);
  for (let at = 0; at < addresses.length; at++) {
    const address = addresses[at]!;
    const register = `${table} ${address}`;
    const key = `${letter}${address}`;
    const digits = isBits(table) ? undefined : digitsAt(words, address);
    if (digits !== undefined) {
      yield { key, members: { register, type: 'string', length: digits.registers * 2 }, sample: digits.text };
      at += digits.registers - 1;
      continue;
    }
    const float = isBits(table) ? undefined : floatAt(words, address);
    if (float === undefined) {
      yield { key, members: { register }, sample: String(words.get(address)) };
      continue;
    }
    const order: Record<string, string> = float.order === 'ABCD' ? {} : { byte_order: float.order };
    yield { key, members: { register, type: 'float32', ...order }, sample: String(float.value) };
    at++;
  }
}

/** Characters of a number as text. The text ends with a null character, or before another register. */
const DIGITS = /^[\d.+ -][\d.+ \0-]$/;

/** Returns the number that registers from this address contain as text. */
function digitsAt(words: ReadonlyMap<number, number>, address: number) {
  const pairAt = (at: number) => {
    const word = words.get(at) ?? 0;
    const pair = String.fromCharCode(word >> 8, word & 0xff);
    return DIGITS.test(pair) ? pair : undefined;
  };
  // The string must not be a continuation of the string in the preceding register.
  if (pairAt(address - 1)?.endsWith('\0') === false) return undefined;
  let text = '';
  for (let at = address; at < address + MAX_TEXT_REGISTERS && !text.endsWith('\0'); at++) text += pairAt(at) ?? '\0';
  const registers = Math.ceil(text.replace(/\0$/, '').length / 2);
  const number = text.replaceAll('\0', '').trim();
  return registers >= MIN_TEXT_REGISTERS && Number.isFinite(parseDecimal(number))
    ? { text: number, registers }
    : undefined;
}

const PLAUSIBLE = { min: 1e-3, max: 1e7 };

function floatAt(words: ReadonlyMap<number, number>, address: number) {
  const [first, second] = [words.get(address), words.get(address + 1)];
  if (first === undefined || second === undefined) return undefined;
  const view = new DataView(new ArrayBuffer(4));
  for (const order of ['ABCD', 'CDAB'] as const) {
    view.setUint32(0, order === 'ABCD' ? first * 0x1_0000 + second : second * 0x1_0000 + first);
    const value = shortest(view.getFloat32(0));
    if (Math.abs(value) >= PLAUSIBLE.min && Math.abs(value) <= PLAUSIBLE.max) return { value, order };
  }
  return undefined;
}
