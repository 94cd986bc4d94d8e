import type { IncomingMessage } from 'node:http';
import { gunzip, inflate, inflateRaw, zstdDecompress } from 'node:zlib';
import { codeOf } from '../errors.ts';
import { PushRefusal, tooLarge, tryLater } from './push-refusal.ts';

/** Bytes that requests hold in memory while they are read and wait for the disk, all together. */
export class HeldBytes {
  readonly #most: number;
  #held = 0;

  constructor(mostBytes: number) {
    this.#most = mostBytes;
  }

  get held(): number {
    return this.#held;
  }

  tryTake(bytes: number): boolean {
    if (this.#held + bytes > this.#most) return false;
    this.#held += bytes;
    return true;
  }

  /** More or fewer, whatever the bound says: for what is in memory already. */
  change(bytes: number): void {
    this.#held += bytes;
  }
}

/** One request's share of the held bytes. */
export class Hold {
  readonly #all: HeldBytes;
  #bytes = 0;

  constructor(all: HeldBytes) {
    this.#all = all;
  }

  /** Throws the refusal (503) where too much is held already. */
  take(bytes: number): void {
    if (!this.#all.tryTake(bytes)) throw tryLater('too many values wait for the disk', 1_000);
    this.#bytes += bytes;
  }

  /** The request holds exactly so many bytes from now on. */
  set(bytes: number): void {
    this.#all.change(bytes - this.#bytes);
    this.#bytes = bytes;
  }
}

/** Reads the body as it comes over the wire. Rejects with a `PushRefusal` (413, 503, or 400 where it broke off). */
export function readBody(request: IncomingMessage, mostBytes: number, hold: Hold): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const stop = (error: unknown) => {
      request.removeAllListeners('data').removeAllListeners('end').removeAllListeners('close');
      reject(error);
    };
    request.on('data', (chunk: Buffer) => {
      length += chunk.length;
      if (length > mostBytes) return stop(tooLarge(mostBytes));
      try {
        hold.take(chunk.length);
      } catch (error) {
        return stop(error);
      }
      chunks.push(chunk);
    });
    request.on('end', () => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, length)));
    request.on('close', () => {
      if (!request.complete) stop(new PushRefusal(400, 'the body broke off'));
    });
    // Without a listener a reset by the client would end the process; 'close' follows.
    request.on('error', () => {});
  });
}

type Inflate = (
  bytes: Buffer,
  options: { maxOutputLength: number },
  done: (error: Error | null, out: Buffer) => void,
) => void;

const INFLATES: Readonly<Record<string, Inflate>> = {
  gzip: gunzip,
  'x-gzip': gunzip,
  // RFC 9110 means zlib's format; some clients send bare deflate. The first byte tells them apart.
  deflate: (bytes, options, done) => ((bytes[0]! & 15) === 8 ? inflate : inflateRaw)(bytes, options, done),
  zstd: zstdDecompress,
};

/** Undoes `Content-Encoding`; at most a few bodies at once, because each may grow to the bound whatever its size was. */
export class Inflater {
  readonly #mostBytes: number;
  readonly #waiting: (() => void)[] = [];
  #free = 4;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** Throws a `PushRefusal` (415) for an encoding that is not known: before the body is read. */
  static check(encoding: string | undefined): string | undefined {
    const name = encoding?.trim().toLowerCase();
    if (name === undefined || name === '' || name === 'identity') return undefined;
    if (INFLATES[name] !== undefined) return name;
    throw new PushRefusal(415, 'this Content-Encoding is not known', 'Send gzip, deflate, zstd, or as it is.', {
      'Accept-Encoding': 'gzip, deflate, zstd',
    });
  }

  /** Rejects with a `PushRefusal`: 413 where it grows beyond the bound, 400 where it is broken. */
  async inflate(bytes: Buffer, encoding: string): Promise<Buffer> {
    if (this.#free === 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#free--;
    try {
      return await new Promise((resolve, reject) => {
        INFLATES[encoding]!(bytes, { maxOutputLength: this.#mostBytes }, (error, out) => {
          if (error === null) resolve(out);
          else if (codeOf(error) === 'ERR_BUFFER_TOO_LARGE') reject(tooLarge(this.#mostBytes));
          else reject(new PushRefusal(400, `the body is not ${encoding}`));
        });
      });
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }
}
