import { createHash } from 'node:crypto';
import { createWriteStream, type WriteStream } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { pacedWrite } from '../../base/paced-write.ts';
import { type TarHeader, tarEnd, tarHeader, tarPadding } from '../../base/tar.ts';
import { SUMS } from './manifest.ts';

/** A file of the archive; its bytes come a piece at a time. */
export interface ArchiveFile extends Omit<TarHeader, 'atSeconds'> {
  read(): Iterable<Buffer>;
}

/**
 * Writes an archive as it goes, a piece at a time, with the checksums of all files as its last: one that broke off has none. A file stands
 * under its name only when it is whole and on disk; until then it is `FILE.part`, 0600 from its first byte.
 */
export class ArchiveWriter {
  readonly #file: string | undefined;
  readonly #output: Writable;
  readonly #atSeconds: number;
  readonly #sums: string[] = [];
  #failure: unknown;
  bytes = 0;

  /** To standard output where there is no `file`. */
  constructor(file: string | undefined, atSeconds: number) {
    this.#file = file;
    this.#atSeconds = atSeconds;
    this.#output =
      file === undefined
        ? process.stdout
        : createWriteStream(`${file}.part`, { mode: 0o600, flags: 'wx', flush: true });
    this.#output.on('error', (error) => {
      this.#failure = error;
    });
  }

  async add({ read, ...header }: ArchiveFile): Promise<void> {
    const sum = createHash('sha256');
    await this.#put(tarHeader({ ...header, atSeconds: this.#atSeconds }));
    for (const piece of read()) {
      sum.update(piece);
      // The next piece is read into the same memory.
      await this.#put(Buffer.from(piece));
    }
    await this.#put(tarPadding(header.size));
    this.#sums.push(`${sum.digest('hex')}  ${header.name}\n`);
  }

  async addText(name: string, text: string, mode = 0o600): Promise<void> {
    const bytes = Buffer.from(text);
    await this.add({ name, size: bytes.length, mode, read: () => [bytes] });
  }

  /** Resolves when the file is on disk under its name. */
  async end(): Promise<void> {
    await this.addText(SUMS, this.#sums.join(''));
    await this.#put(tarEnd());
    if (this.#file === undefined) return;
    this.#output.end();
    await finished(this.#output).catch((error: unknown) => {
      throw this.#unwritable(error);
    });
    await rename(`${this.#file}.part`, this.#file);
    const folder = await open(dirname(this.#file), 'r');
    await folder.sync().finally(() => folder.close());
  }

  /** Takes away what was begun. */
  async giveUp(): Promise<void> {
    if (this.#file === undefined) return;
    (this.#output as WriteStream).destroy();
    // One that another writes is not ours.
    if (codeOf(this.#failure) !== 'EEXIST') await rm(`${this.#file}.part`, { force: true });
  }

  async #put(bytes: Buffer): Promise<void> {
    this.bytes += bytes.length;
    if (this.#failure === undefined) await pacedWrite(this.#output, bytes);
    if (this.#failure !== undefined) throw this.#unwritable(this.#failure);
  }

  #unwritable(cause: unknown): TagferryError {
    const code = codeOf(cause) ?? 'unknown';
    const hint = HINTS[code];
    return new TagferryError(`${this.#file ?? 'standard output'} cannot be written (${code})`, {
      code: 'backup.unwritable',
      cause,
      ...(hint === undefined ? {} : { hint }),
    });
  }
}

const HINTS: Readonly<Record<string, string>> = {
  ENOENT: 'Its folder does not exist: create it, or correct the path.',
  EACCES: 'This user may not write there: choose another file.',
  EROFS: 'That file system is read-only: choose another file.',
  ENOSPC: 'That file system is full: choose another, or `-` and a pipe to another machine.',
  EEXIST: 'Another backup is being written there, or one was broken off: remove FILE.part.',
};
