import { Readable, type Transform } from 'node:stream';
import { createGunzip, createInflate, createInflateRaw, createZstdDecompress } from 'node:zlib';
import type { Reservation } from '../../base/inbound/memory-budget.ts';
import { noRoom, PushRejection, tooLarge } from './push-rejection.ts';

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
 * Returns the decompressor for an encoding. In RFC 9110, deflate means the zlib format, but some clients send raw
 * deflate data. `first` is the first byte of the body, which distinguishes the two formats.
 */
function inflating(encoding: string, first: number): Transform {
  if (encoding === 'zstd') return createZstdDecompress();
  if (encoding !== 'deflate') return createGunzip();
  return (first & 15) === 8 ? createInflate() : createInflateRaw();
}

/**
 * Decompresses a complete body. The memory reservation grows with the output. Rejects with a `PushRejection`: 413 if
 * the output exceeds `maxBytes`, 503 if no memory is available, 400 if the body is corrupt.
 */
export async function inflate(bytes: Buffer, encoding: string, maxBytes: number, memory: Reservation): Promise<Buffer> {
  const stream = inflating(encoding, bytes[0] ?? 0);
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    stream.end(bytes);
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > maxBytes) throw tooLarge(maxBytes);
      if (!memory.grow(chunk.length)) throw noRoom();
      chunks.push(chunk);
    }
  } catch (error) {
    throw error instanceof PushRejection ? error : new PushRejection(400, `the body is not valid ${encoding}`);
  } finally {
    stream.destroy();
  }
  return Buffer.concat(chunks, length);
}

/** Decompresses a stream. */
export async function* inflated(raw: AsyncIterator<Buffer>, encoding: string): AsyncGenerator<Buffer> {
  const first = await raw.next();
  if (first.done) return;
  const stream = inflating(encoding, first.value[0] ?? 0);
  const source = async function* () {
    yield first.value;
    for (let next = await raw.next(); !next.done; next = await raw.next()) yield next.value;
  };
  Readable.from(source())
    .on('error', (error) => stream.destroy(error))
    .pipe(stream);
  yield* stream as AsyncIterable<Buffer>;
}
