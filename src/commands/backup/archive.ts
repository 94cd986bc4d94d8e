/**
 * Backup archives: tar files whose first entry is a manifest and whose last entry contains the checksums of all files.
 */
import { createHash } from 'node:crypto';
import { closeSync, createWriteStream, openSync, readSync, type WriteStream } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { counted } from '../../base/amounts.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { pacedWrite } from '../../base/paced-write.ts';
import { garbled, readTarHeader, TAR_BLOCK, type TarHeader, tarEnd, tarHeader, tarPadding } from '../../base/tar.ts';
import { FORMAT as BUFFER_FORMAT } from '../../buffer/tables.ts';
import { IDENTITY_FILE } from '../../store/gateway-identity.ts';
import { WEBHOOK_FILE } from '../../webhook/registration-file.ts';
import { writeError } from '../terminal/output.ts';

/** Optional copy of the latest accepted configuration, included only in backups with secrets. */
export const LAST_GOOD = 'last-good.json';
/** Optional marker of a decommissioned gateway. */
export const DECOMMISSIONED = 'decommissioned.json';

/** All files that a restore writes to a state folder. */
export const STATE_FILES: readonly string[] = [
  ...['buffer.db', 'buffer.db-wal', 'inbox.db', 'inbox.db-wal'],
  ...[WEBHOOK_FILE, IDENTITY_FILE, LAST_GOOD, DECOMMISSIONED],
];

const FAILED = 'backup.unwritable';

/** A file in the archive, read in chunks. */
export interface ArchiveFile extends Omit<TarHeader, 'atSeconds'> {
  read(): Iterable<Buffer>;
}

/**
 * Streams an archive that ends with the checksums of all files, so that a truncated one is detected. Writes to `FILE.part`
 * (0600) and renames it when it is complete and on disk.
 */
export class ArchiveWriter {
  readonly #file: string | undefined;
  readonly #output: Writable;
  readonly #atSeconds: number;
  readonly #sums: string[] = [];
  #failure: unknown;
  bytes = 0;

  /** Without `file`, writes to standard output. */
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
      // The buffer is reused for the next chunk.
      await this.#put(Buffer.from(piece));
    }
    await this.#put(tarPadding(header.size));
    this.#sums.push(`${sum.digest('hex')}  ${header.name}\n`);
  }

  async addText(name: string, text: string, mode = 0o600): Promise<void> {
    const bytes = Buffer.from(text);
    await this.add({ name, size: bytes.length, mode, read: () => [bytes] });
  }

  /** Resolves when the file has been written to disk and renamed. */
  async end(): Promise<void> {
    await this.addText(SUMS, this.#sums.join(''));
    await this.#put(tarEnd());
    if (this.#file === undefined) return;
    this.#output.end();
    await finished(this.#output).catch((error: unknown) => {
      throw writeError(error, this.#file, FAILED, HINTS);
    });
    await rename(`${this.#file}.part`, this.#file);
    const folder = await open(dirname(this.#file), 'r');
    await folder.sync().finally(() => folder.close());
  }

  /** Deletes an incomplete file. */
  async discard(): Promise<void> {
    if (this.#file === undefined) return;
    (this.#output as WriteStream).destroy();
    // EEXIST: another process is writing the file.
    if (codeOf(this.#failure) !== 'EEXIST') await rm(`${this.#file}.part`, { force: true });
  }

  async #put(bytes: Buffer): Promise<void> {
    this.bytes += bytes.length;
    if (this.#failure === undefined) await pacedWrite(this.#output, bytes);
    if (this.#failure !== undefined) throw writeError(this.#failure, this.#file, FAILED, HINTS);
  }
}

const HINTS: Readonly<Record<string, string>> = {
  ENOSPC: 'This file system is full. Choose another one, or use `-` and pipe the output to another machine.',
  EEXIST: 'Remove FILE.part, unless another backup is being written there.',
};

/** A file in a backup, with the offset of its contents. */
export interface ArchivedFile extends TarHeader {
  at: number;
}

const PIECE_BYTES = 256 * 1024;
const MAX_FILES = 10_000;

/**
 * Reads a backup. The constructor verifies the whole file: checksums, a known format, and only names inside the restored folders. The file
 * stays open until `close`.
 */
export class ArchiveReader {
  readonly #descriptor: number;
  readonly files: readonly ArchivedFile[];
  readonly manifest: Manifest;

  /**
   * Throws `archive.garbled` if the file is damaged, truncated or not a backup, and `restore.format` if restoring it
   * requires a different version.
   */
  constructor(path: string) {
    this.#descriptor = opened(path);
    try {
      const files = this.#walk();
      const first = files.find(({ name }) => name === MANIFEST);
      if (!first || first !== files[0]) throw garbled();
      // Read the manifest before the checksums, because a later version may store the checksums differently.
      this.manifest = readManifest(this.text(first));
      this.#verifyChecksums(files);
      this.files = files.filter(({ name }) => name !== MANIFEST && name !== SUMS);
      for (const file of this.files) verifyName(file);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  *read({ at, size }: ArchivedFile): Iterable<Buffer> {
    const piece = Buffer.alloc(Math.min(PIECE_BYTES, size));
    for (let done = 0; done < size; ) {
      const length = readSync(this.#descriptor, piece, 0, Math.min(piece.length, size - done), at + done);
      if (length === 0) throw garbled();
      done += length;
      yield piece.subarray(0, length);
    }
  }

  /** Returns the contents of a small file. */
  bytes(file: ArchivedFile): Buffer {
    if (file.size > MAX_SMALL_BYTES) throw garbled();
    return Buffer.concat(
      [...this.read(file)].map((piece) => Buffer.from(piece)),
      file.size,
    );
  }

  text(file: ArchivedFile): string {
    return this.bytes(file).toString('utf8');
  }

  #walk(): ArchivedFile[] {
    const files: ArchivedFile[] = [];
    const block = Buffer.alloc(TAR_BLOCK);
    for (let at = 0; ; ) {
      if (readSync(this.#descriptor, block, 0, TAR_BLOCK, at) < TAR_BLOCK) throw garbled();
      const header = readTarHeader(Buffer.from(block));
      if (!header) return files;
      if (files.length === MAX_FILES) throw garbled();
      files.push({ ...header, at: at + TAR_BLOCK });
      at += TAR_BLOCK + Math.ceil(header.size / TAR_BLOCK) * TAR_BLOCK;
    }
  }

  /** Verifies that the final list contains every file with a matching checksum. */
  #verifyChecksums(files: readonly ArchivedFile[]): void {
    const last = files.at(-1);
    if (last?.name !== SUMS) throw garbled();
    const lines = files.slice(0, -1).map((file) => {
      const sum = createHash('sha256');
      for (const piece of this.read(file)) sum.update(piece);
      return `${sum.digest('hex')}  ${file.name}\n`;
    });
    if (lines.join('') !== this.text(last)) throw garbled();
  }
}

function opened(path: string): number {
  try {
    return openSync(path, 'r');
  } catch (cause) {
    throw new TagferryError(`cannot read ${path} (${codeOf(cause)})`, { code: 'restore.unreadable', cause });
  }
}

function verifyName({ name }: ArchivedFile): void {
  const [first, ...rest] = name.split('/');
  const isPlain =
    rest.length > 0 && rest.every((part) => part !== '' && part !== '.' && part !== '..' && !part.includes('\0'));
  if (!isPlain) throw garbled();
  const inside = rest.join('/');
  const isKnown =
    first === 'config' ||
    (first === 'secrets' && /^[a-z0-9_-]+$/i.test(inside)) ||
    (first === 'unit' && /^[^/]+\.conf$/.test(inside)) ||
    (first === 'state' && STATE_FILES.includes(inside));
  if (!isKnown) throw garbled();
}

/** Version of the archive layout. */
const FORMAT = 1;

export const MANIFEST = 'manifest.json';
const SUMS = 'SHA256SUMS';
/** Maximum size of files that are processed in memory, such as configuration files and certificates. */
export const MAX_SMALL_BYTES = 16_000_000;

export interface Manifest {
  tagferry_backup: number;
  made_by: string;
  /** Time in ISO 8601 format. */
  made_at: string;
  host: string;
  secrets: boolean;
  /** `null` if no agent has used the state folder. */
  state: { buffer_format: number; values: number; quarantined: number; events: number } | null;
  /** Configuration files that are not included, with the reason. */
  left_out: { file: string; why: string }[];
}

export function manifestOf(facts: Omit<Manifest, 'tagferry_backup'>): Manifest {
  return { tagferry_backup: FORMAT, ...facts };
}

/** Describes how many values and events the state contains. */
export function stateText({ values, quarantined, events }: NonNullable<Manifest['state']>): string {
  return `${counted(values, 'value')}, ${counted(quarantined, 'value')} in quarantine, ${counted(events, 'event')} with pending reactions`;
}

/** Throws `restore.format` if the backup format is not supported, and `archive.garbled` for invalid text. */
function readManifest(text: string): Manifest {
  let found: Partial<Manifest>;
  try {
    found = JSON.parse(text) as Partial<Manifest>;
  } catch (cause) {
    throw foreign(cause);
  }
  const { tagferry_backup: format, made_by: madeBy, state } = found;
  if (typeof format !== 'number' || typeof madeBy !== 'string' || state === undefined) throw foreign();
  const by = `tagferry ${plain(madeBy)}`;
  if (format !== FORMAT) {
    const age = format > FORMAT ? 'newer' : 'older';
    throw new TagferryError(
      `the backup from ${by} has format ${format}, which is ${age} than the supported format ${FORMAT}`,
      {
        code: 'restore.format',
        hint: `Install ${by}, restore, then upgrade.`,
      },
    );
  }
  if (state !== null && state.buffer_format > BUFFER_FORMAT) {
    throw new TagferryError(
      `the buffer from ${by} has format ${state.buffer_format}, which is newer than the supported format ${BUFFER_FORMAT}`,
      {
        code: 'restore.format',
        hint: `Install ${by} or later, then restore.`,
      },
    );
  }
  return found as Manifest;
}

function foreign(cause?: unknown): TagferryError {
  return new TagferryError('not a tagferry backup', { code: 'archive.garbled', cause });
}
