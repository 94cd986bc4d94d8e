import type { Clock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import type { ScannedValue, ScanStep } from '../source-kind.ts';
import { decodeBit, decodeRegister } from './decode.ts';
import { ModbusError } from './modbus-error.ts';
import type { Span } from './refused-registers.ts';
import { readRegister } from './register.ts';

/** Ten requests a second at most: a careless read can disturb a PLC. */
const PAUSE_MS = 100;
const MAX_ADDRESSES = 20_000;
const AT_ONCE = { registers: 16, bits: 64 };
const BUSY_TRIES = 5;

/** `holding 0-199`, `input 7`: only what was named is read. Throws `UsageError`. */
export function readRanges(what: readonly string[]): Span[] {
  const spans = what.map((text) => {
    const match = /^(holding|input|coil|discrete)\s+(\d{1,5})(?:\s*-\s*(\d{1,5}))?$/i.exec(text.trim());
    const [first, last] = [Number(match?.[2]), Number(match?.[3] ?? match?.[2])];
    if (match === null || last < first || last > 65_535) {
      throw new UsageError(`"${text}" is no range of registers`, 'Write for example "holding 0-199" or "input 0-49".');
    }
    return { table: match[1]!.toLowerCase() as Span['table'], address: first, length: last - first + 1 };
  });
  if (spans.length === 0) {
    throw new UsageError('no range is named, and nothing else is read', 'Write for example "holding 0-199".');
  }
  if (spans.reduce((sum, { length }) => sum + length, 0) > MAX_ADDRESSES) {
    throw new UsageError(`that is more than ${MAX_ADDRESSES} addresses`, 'Name less at once.');
  }
  return spans;
}

/**
 * Reads ranges slowly, halving what the device refuses, and gives what answers. `ask` sends one reading request. Rejects with the
 * `ModbusError` of a device that does not answer.
 */
export async function* scanModbus(
  ask: (span: Span, signal: AbortSignal) => Promise<Uint8Array>,
  ranges: readonly Span[],
  clock: Clock,
  signal: AbortSignal,
): AsyncGenerator<ScanStep> {
  const total = ranges.reduce((sum, { length }) => sum + length, 0);
  let done = 0;
  for (const range of ranges) {
    const words = new Map<number, number>();
    for (const waiting = chunksOf(range); waiting.length > 0; ) {
      const span = waiting.shift()!;
      const bytes = await askSlowly(ask, span, clock, signal);
      if (bytes !== undefined) keep(words, span, bytes);
      else if (span.length > 1) {
        const half = span.length >> 1;
        const right = { ...span, address: span.address + half, length: span.length - half };
        waiting.unshift({ ...span, length: half }, right);
        continue;
      }
      done += span.length;
      yield { done, total };
    }
    for (const found of valuesOf(range.table, words)) yield { found };
  }
}

const isBits = (table: Span['table']) => table === 'coil' || table === 'discrete';

function chunksOf({ table, address, length }: Span): Span[] {
  const size = isBits(table) ? AT_ONCE.bits : AT_ONCE.registers;
  return Array.from({ length: Math.ceil(length / size) }, (_, at) => ({
    table,
    address: address + at * size,
    length: Math.min(size, length - at * size),
  }));
}

/** `undefined` where the device refuses. */
async function askSlowly(
  ask: (span: Span, signal: AbortSignal) => Promise<Uint8Array>,
  span: Span,
  clock: Clock,
  signal: AbortSignal,
): Promise<Uint8Array | undefined> {
  for (let tries = 1; ; tries++) {
    await clock.sleep(PAUSE_MS, signal);
    try {
      return await ask(span, signal);
    } catch (error) {
      if (!(error instanceof ModbusError)) throw error;
      if (error.isRefusal) return undefined;
      const again = error.isBusy || error.failure === 'garbled';
      if (!again || tries >= BUSY_TRIES) throw error;
    }
  }
}

function keep(words: Map<number, number>, { table, address, length }: Span, bytes: Uint8Array): void {
  for (let at = 0; at < length; at++) {
    words.set(address + at, isBits(table) ? decodeBit(bytes, at) : (bytes[at * 2]! << 8) | bytes[at * 2 + 1]!);
  }
}

/** Each register once, two that make a sensible float together as one. */
function* valuesOf(table: Span['table'], words: ReadonlyMap<number, number>): Generator<ScannedValue> {
  const letter = { holding: 'h', input: 'i', coil: 'c', discrete: 'd' }[table];
  const addresses = [...words.keys()].sort((a, b) => a - b);
  for (let at = 0; at < addresses.length; at++) {
    const address = addresses[at]!;
    const register = `${table} ${address}`;
    const key = `${letter}${address}`;
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

const SENSIBLE = { min: 1e-3, max: 1e7 };

function floatAt(
  words: ReadonlyMap<number, number>,
  address: number,
): { value: number; order: 'ABCD' | 'CDAB' } | undefined {
  const [first, second] = [words.get(address), words.get(address + 1)];
  if (first === undefined || second === undefined) return undefined;
  const bytes = Uint8Array.of(first >> 8, first & 0xff, second >> 8, second & 0xff);
  for (const order of ['ABCD', 'CDAB'] as const) {
    const register = readRegister({ register: 'holding 0', type: 'float32', byte_order: order });
    if ('reason' in register) continue;
    const value = decodeRegister(bytes, 0, register);
    if (Math.abs(value) >= SENSIBLE.min && Math.abs(value) <= SENSIBLE.max) return { value, order };
  }
  return undefined;
}
