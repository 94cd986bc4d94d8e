/** What becomes of an input: the usual of fuzzers, on bytes, with words of the code that is looked at. */
import type { Random } from './random.ts';

const BYTES = [0, 1, 7, 9, 10, 13, 32, 34, 39, 44, 45, 46, 48, 57, 58, 61, 91, 92, 93, 123, 125, 127, 128, 192, 255];
const NUMBERS = [
  '0',
  '-0',
  '-1',
  '1e400',
  '1e-400',
  '9007199254740993',
  '4294967296',
  '-9223372036854775808',
  '0.1',
  '253402300800000',
];

export interface Material {
  words: readonly Buffer[];
  /** Another input. */
  other(): Buffer;
  maxBytes: number;
}

export function mutated(input: Buffer, random: Random, material: Material): Buffer {
  let bytes = input;
  for (let rounds = 1 << random.below(4); rounds > 0; rounds--) bytes = once(bytes, random, material);
  return bytes.subarray(0, material.maxBytes);
}

function once(bytes: Buffer, random: Random, { words, other }: Material): Buffer {
  const at = random.below(bytes.length + 1);
  const to = Math.min(bytes.length, at + 1 + random.below(random.below(4) === 0 ? bytes.length + 1 : 8));
  switch (random.below(11)) {
    case 0:
      return set(bytes, at, (bytes[at] ?? 0) ^ (1 << random.below(8)));
    case 1:
      return set(bytes, at, random.below(256));
    case 2:
      return set(bytes, at, random.pick(BYTES));
    case 3:
      return replace(bytes, at, at, Buffer.of(random.pick(BYTES)));
    case 4:
      return replace(bytes, at, to, Buffer.alloc(0));
    case 5:
      return replace(bytes, at, at, bytes.subarray(at, to));
    case 6:
      return replace(
        bytes,
        at,
        random.below(2) === 0 ? at : to,
        words.length > 0 ? random.pick(words) : Buffer.alloc(1),
      );
    case 7:
      return replace(bytes, at, to, Buffer.from(random.pick(NUMBERS)));
    case 8: {
      const from = other();
      const start = random.below(from.length + 1);
      return replace(bytes, at, to, from.subarray(start, start + 1 + random.below(from.length + 1)));
    }
    case 9:
      return set(bytes, at, (bytes[at] ?? 0) + 1 + random.below(8) - 4);
    default:
      return replace(bytes, at, at, repeated(bytes.subarray(at, to), 2 + random.below(30)));
  }
}

/** A part of an input, over and over: where time or memory grow faster than the input, this shows it. */
export function inflated(input: Buffer, random: Random, bytes: number): Buffer {
  const from = random.below(input.length);
  const part = input.subarray(from, from + 1 + random.below(Math.min(64, input.length - from)));
  const times = Math.max(1, Math.floor((bytes - input.length) / part.length));
  return Buffer.concat([input.subarray(0, from), repeated(part, times), input.subarray(from + part.length)]);
}

/** A shorter input, for the search for the shortest that shows the same. */
export function shortened(input: Buffer, random: Random): Buffer {
  const from = random.below(input.length);
  const length = random.below(3) === 0 ? 1 : 1 + random.below(Math.max(1, input.length - from));
  return replace(input, from, from + length, Buffer.alloc(0));
}

function repeated(part: Buffer, times: number): Buffer {
  return Buffer.alloc(part.length * times, part);
}

function set(bytes: Buffer, at: number, byte: number): Buffer {
  if (at >= bytes.length) return bytes;
  const copy = Buffer.from(bytes);
  copy[at] = byte & 255;
  return copy;
}

function replace(bytes: Buffer, from: number, to: number, by: Buffer): Buffer {
  return Buffer.concat([bytes.subarray(0, from), by, bytes.subarray(Math.max(from, to))]);
}
