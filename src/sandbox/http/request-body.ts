import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { codeOf } from '../../base/errors.ts';
import { MAX_BODY_BYTES } from '../../contract/values.ts';
import { refusal } from './refusal.ts';

const unzip = promisify(gunzip);

/** The body, bounded on the wire and unpacked; 413 over 500 kB either way, 415 for packings nobody agreed on. */
export async function readRequestBody(request: IncomingMessage): Promise<{ body: Buffer; wireBytes: number }> {
  const chunks: Buffer[] = [];
  let wireBytes = 0;
  for await (const chunk of request) {
    wireBytes += (chunk as Buffer).length;
    if (wireBytes <= MAX_BODY_BYTES) chunks.push(chunk as Buffer);
    // The rest is read and let go, so that the client hears the answer instead of a broken pipe; but not for ever.
    if (wireBytes > 64 * MAX_BODY_BYTES) break;
  }
  if (wireBytes > MAX_BODY_BYTES) throw tooLarge();
  const packed = Buffer.concat(chunks);
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding === 'identity') return { body: packed, wireBytes };
  if (encoding !== 'gzip') throw refusal(415, `the content encoding ${encoding.slice(0, 40)} is not understood`);
  try {
    return { body: await unzip(packed, { maxOutputLength: MAX_BODY_BYTES }), wireBytes };
  } catch (error) {
    if (codeOf(error) === 'ERR_BUFFER_TOO_LARGE') throw tooLarge();
    throw refusal(400, 'the body is not gzip');
  }
}

function tooLarge() {
  return refusal(413, `the body is larger than ${MAX_BODY_BYTES} bytes`);
}
