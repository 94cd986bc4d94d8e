/**
 * Reads files whose path comes from the configuration. Reading a FIFO would block, and reading a device may never end.
 * Files are therefore opened in non-blocking mode, and only regular files are read, up to a size limit. Errors have a
 * system error code, `ENOTREG` or `EFBIG`.
 */
import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from 'node:fs';
import { open } from 'node:fs/promises';

const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;
/** Sufficient for certificate chains, keys and secrets. */
const MAX_BYTES = 1_000_000;
const CHUNK_BYTES = 65_536;

/** Reads a file synchronously, for threads and programs that may block on the disk. */
export function readRegularFileSync(path: string, maxBytes = MAX_BYTES): { bytes: Buffer; stats: Stats } {
  const descriptor = openSync(path, FLAGS);
  try {
    const stats = fstatSync(descriptor);
    demandRegular(path, stats, maxBytes);
    const chunks: Buffer[] = [];
    for (let length = 0; ; ) {
      const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
      const count = readSync(descriptor, chunk, 0, chunk.length, null);
      if (count === 0) return { bytes: Buffer.concat(chunks), stats };
      chunks.push(chunk.subarray(0, count));
      length += count;
      if (length > maxBytes) throw tooLarge(path, maxBytes);
    }
  } finally {
    closeSync(descriptor);
  }
}

export async function readRegularFile(path: string, maxBytes = MAX_BYTES): Promise<Buffer> {
  const file = await open(path, FLAGS);
  try {
    demandRegular(path, await file.stat(), maxBytes);
    const chunks: Buffer[] = [];
    for (let length = 0; ; ) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES);
      if (bytesRead === 0) return Buffer.concat(chunks);
      chunks.push(buffer.subarray(0, bytesRead));
      length += bytesRead;
      if (length > maxBytes) throw tooLarge(path, maxBytes);
    }
  } finally {
    await file.close();
  }
}

function demandRegular(path: string, stats: Stats, maxBytes: number): void {
  if (stats.isDirectory()) throw failure('EISDIR', `${path} is a folder`);
  if (!stats.isFile()) throw failure('ENOTREG', `${path} is not a regular file`);
  if (stats.size > maxBytes) throw tooLarge(path, maxBytes);
}

function tooLarge(path: string, maxBytes: number): Error {
  return failure('EFBIG', `${path} is larger than ${maxBytes} bytes`);
}

function failure(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}
