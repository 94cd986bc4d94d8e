import { createWriteStream, type WriteStream } from 'node:fs';
import { messageOf, TagferryError } from '../../base/errors.ts';
import type { RequestLog } from '../http/request-log.ts';
import { type HarEntry, harEntry } from './har.ts';

/** Some half a million small requests; a run that is forgotten does not fill the disk. */
const MAX_BYTES = 512 * 1024 * 1024;

/**
 * A record of what a client sent: one HAR entry a line, secrets masked, readable by the owner alone. Appended to as requests end, so that
 * a sandbox that is killed leaves all but the last line; an existing file is gone on with.
 */
export class RecordFile {
  readonly #file: string;
  readonly #stream: WriteStream;
  readonly #maxBytes: number;
  #bytes = 0;
  #error: unknown;

  constructor(file: string, maxBytes = MAX_BYTES) {
    this.#file = file;
    this.#maxBytes = maxBytes;
    this.#stream = createWriteStream(file, { flags: 'a', mode: 0o600 });
    this.#stream.on('error', (error) => {
      this.#error = error;
    });
  }

  /** `false` where it is full, or the disk said no, and nothing more is written. */
  write(entry: HarEntry): boolean {
    if (this.#error !== undefined || this.#bytes >= this.#maxBytes) return false;
    const line = `${JSON.stringify(entry)}\n`;
    this.#bytes += Buffer.byteLength(line);
    this.#stream.write(line);
    return true;
  }

  /** Throws `TagferryError` where not everything is in the file. */
  async close(): Promise<void> {
    await new Promise<void>((resolve) => this.#stream.end(resolve).once('error', () => resolve()));
    if (this.#error !== undefined) {
      const text = `the record ${this.#file} could not be written: ${messageOf(this.#error)}`;
      throw new TagferryError(text, { code: 'sandbox.record', cause: this.#error });
    }
  }
}

/** Writes every request from now on; says where it has to end before its time. */
export function recordRequests(
  log: RequestLog,
  file: string,
  baseUrl: string,
  report: (sentence: string) => void,
): RecordFile {
  const record = new RecordFile(file);
  const stop = log.onRequest((_entry, exchange) => {
    if (record.write(harEntry(exchange, baseUrl))) return;
    stop();
    report(`the record ${file} is full, or cannot be written: it ends here`);
  });
  return record;
}
