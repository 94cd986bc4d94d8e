/**
 * Request bodies: decompression, and JSON. NDJSON and line protocol are in `formats/`, because programs print them too.
 */
import type { Transform } from 'node:stream';
import { getHeapStatistics } from 'node:v8';
import { createGunzip, createInflate, createInflateRaw, createZstdDecompress } from 'node:zlib';
import { CollectedBytes } from '../../base/inbound/collected-bytes.ts';
import type { Reservation } from '../../base/inbound/memory-budget.ts';
import { addJsonValue } from '../formats/json-values.ts';
import { quote } from '../intake/address-book.ts';
import type { Draft } from '../intake/draft.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import { parseJson, requireUtf8, textOf, unpadded } from '../intake/text-parsers.ts';
import { noRoom, PushRejection, tooLarge } from './responses.ts';

const ENCODINGS = ['gzip', 'x-gzip', 'deflate', 'zstd'];

/**
 * Returns the encoding in `Content-Encoding`. Throws a `PushRejection` (415) for an unknown one, before the body is
 * read.
 */
export function encodingOf(header: string | undefined): string | undefined {
  const name = header?.trim().toLowerCase();
  if (name === undefined || name === '' || name === 'identity') return undefined;
  if (ENCODINGS.includes(name)) return name;
  throw new PushRejection(415, 'unsupported Content-Encoding', 'Use gzip, deflate, zstd or no encoding.', {
    'Accept-Encoding': 'gzip, deflate, zstd',
  });
}

/**
 * Decompresses a complete body. The memory reservation grows with the output. Rejects with a `PushRejection`: 413 if
 * the output exceeds `maxBytes`, 503 if no memory is available, 400 if the body is corrupt.
 */
export async function inflate(bytes: Buffer, encoding: string, maxBytes: number, memory: Reservation): Promise<Buffer> {
  const stream = decompressor(encoding, bytes[0] ?? 0);
  const output = new CollectedBytes();
  try {
    stream.end(bytes);
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      output.add(chunk);
      if (output.length > maxBytes) throw tooLarge();
      if (!memory.grow(chunk.length)) throw noRoom();
    }
    return output.takeAll();
  } catch (error) {
    throw error instanceof PushRejection ? error : new PushRejection(400, `the body is not valid ${encoding}`);
  } finally {
    stream.destroy();
    output.release();
  }
}

/**
 * In RFC 9110, deflate means the zlib format, but some clients send raw deflate data. `first` is the first byte of the
 * body, which distinguishes the two formats.
 */
function decompressor(encoding: string, first: number): Transform {
  if (encoding === 'zstd') return createZstdDecompress();
  if (encoding !== 'deflate') return createGunzip();
  return (first & 15) === 8 ? createInflate() : createInflateRaw();
}

/**
 * Parsing needs at most 32 bytes of memory per byte of JSON, so 64 MiB for a body of this size. They are set aside once,
 * in addition to the budget for request bodies: parsing is synchronous, so only one body is parsed at a time, and its
 * garbage is collected before the next one. A body of this size is therefore always possible under `MemoryMax=256M`.
 *
 * Measured with bodies of this size, including their text: 28 bytes for `{ },{ },…`, 21 for nested objects, 20 for
 * objects with distinct member names, and 5 for typical values. Lists and empty objects need 29 (`[[],[],…`) to 51
 * (nested lists), but values contain neither, so `isCostly` rejects such bodies.
 */
export const MAX_JSON_BYTES = 2 * 1024 * 1024;
const COSTLY = ['[', '{}'];
/** Accepted number of lists and empty objects, which may be part of names: one per this number of bytes. */
const BYTES_PER_COSTLY = 16;
/** Smaller bodies are not checked, so that their problems are reported in detail. They need at most 13 MB. */
const MIN_CHECKED_LENGTH = 256 * 1024;
/**
 * Garbage of one body that is not left to V8. If V8 collects while such a body is being parsed, it finds all objects in
 * use and raises its own limit, so the garbage of several bodies would exceed the memory of a small gateway. Typical
 * bodies stay below.
 */
const MAX_GARBAGE_BYTES = 24 * 1024 * 1024;

const SHAPE = 'Send {"values":[{"tag":"FT-101","key":"flow","value":12.5}]}.';
const IS_NDJSON = 'If the body has one value per line, send Content-Type: application/x-ndjson.';

/** Reads `{"values":[…]}`. Throws `UnreadableValues` for any other body. */
export function readJsonBody(bytes: Buffer, draft: Draft): void {
  if (bytes.length < MIN_CHECKED_LENGTH) {
    parseBody(bytes, draft);
    return;
  }
  const usedBefore = getHeapStatistics().used_heap_size;
  try {
    parseBody(bytes, draft);
  } finally {
    if (getHeapStatistics().used_heap_size - usedBefore > MAX_GARBAGE_BYTES) globalThis.gc?.();
  }
}

function parseBody(bytes: Buffer, draft: Draft): void {
  requireUtf8(bytes);
  const text = unpadded(textOf(bytes));
  if (isCostly(text)) throw wrongBody(text, 'the body is not a list of values');
  const body = parseJson(text);
  if (body === undefined) throw wrongBody(text, 'the body is not JSON');
  const { values, ...others } = isObject(body) ? body : { values: undefined };
  const [other] = Object.keys(others);
  if (other !== undefined) throw wrongBody(text, `the body has an unknown member ${quote(other)}`);
  if (!Array.isArray(values)) throw wrongBody(text, 'the body must contain one array "values"');
  for (const value of values) addJsonValue(draft, value);
}

/** Whether parsing could need more than 32 bytes per byte. */
function isCostly(text: string): boolean {
  if (text.length < MIN_CHECKED_LENGTH) return false;
  const accepted = text.length / BYTES_PER_COSTLY;
  return COSTLY.some((pattern) => {
    let count = 0;
    for (let at = text.indexOf(pattern); at >= 0 && count <= accepted; at = text.indexOf(pattern, at + 1)) count++;
    return count > accepted;
  });
}

function wrongBody(text: string, message: string): UnreadableValues {
  const [first = ''] = text.slice(0, 4_096).split('\n', 1);
  const isNdjson = first.length < text.length && isObject(parseJson(first));
  return new UnreadableValues(message, isNdjson ? IS_NDJSON : SHAPE);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
