import { Readable, type Transform } from 'node:stream';
import { createGunzip, createInflate, createInflateRaw, createZstdDecompress } from 'node:zlib';
import type { Reservation } from '../../base/inbound/memory-budget.ts';
import { noRoom, PushRefusal, tooLarge } from './push-refusal.ts';

const ENCODINGS = ['gzip', 'x-gzip', 'deflate', 'zstd'];

/** What `Content-Encoding` asks for. Throws a `PushRefusal` (415) for what is not known: before the body is read. */
export function encodingOf(header: string | undefined): string | undefined {
  const name = header?.trim().toLowerCase();
  if (name === undefined || name === '' || name === 'identity') return undefined;
  if (ENCODINGS.includes(name)) return name;
  throw new PushRefusal(415, 'this Content-Encoding is not known', 'Send gzip, deflate, zstd, or as it is.', {
    'Accept-Encoding': 'gzip, deflate, zstd',
  });
}

/** RFC 9110 means zlib's format by deflate; some clients send it bare. `first`: the body's first byte, which tells them apart. */
function inflating(encoding: string, first: number): Transform {
  if (encoding === 'zstd') return createZstdDecompress();
  if (encoding !== 'deflate') return createGunzip();
  return (first & 15) === 8 ? createInflate() : createInflateRaw();
}

/**
 * Undoes `Content-Encoding` of a whole body, whose reservation grows with what comes out. Rejects with a `PushRefusal`: 413 where
 * that is more than `maxBytes`, 503 where there is no room for it, 400 where the body is broken.
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
    throw error instanceof PushRefusal ? error : new PushRefusal(400, `the body is not ${encoding}`);
  } finally {
    stream.destroy();
  }
  return Buffer.concat(chunks, length);
}

/** The same of a body without an end. */
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
