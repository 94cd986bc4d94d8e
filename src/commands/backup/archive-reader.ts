import { createHash } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { garbled, readTarHeader, TAR_BLOCK, type TarHeader } from '../../base/tar.ts';
import { MANIFEST, MAX_SMALL_BYTES, type Manifest, readManifest, SUMS } from './manifest.ts';
import { STATE_FILES } from './state-files.ts';

/** A file of a backup, where its bytes begin. */
export interface ArchivedFile extends TarHeader {
  at: number;
}

const PIECE_BYTES = 256 * 1024;
const MAX_FILES = 10_000;

/**
 * A backup that was read once from end to end: whole, of a format that is known, and with no name that leads out of the folders it is for.
 * Nothing is taken from it before. The file stays open until `close`.
 */
export class ArchiveReader {
  readonly #descriptor: number;
  readonly files: readonly ArchivedFile[];
  readonly manifest: Manifest;

  /** Throws `archive.garbled` where it is damaged, broken off or none of ours, `restore.format` where another version has to read it. */
  constructor(path: string) {
    this.#descriptor = opened(path);
    try {
      const files = this.#walk();
      const first = files.find(({ name }) => name === MANIFEST);
      if (!first || first !== files[0]) throw garbled();
      // Said before a checksum is missed: a later version may have others.
      this.manifest = readManifest(this.text(first));
      this.#demandWhole(files);
      this.files = files.filter(({ name }) => name !== MANIFEST && name !== SUMS);
      for (const file of this.files) demandPlace(file);
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

  /** Of a small file. */
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

  /** The list at the end names every file, and each fits its checksum. */
  #demandWhole(files: readonly ArchivedFile[]): void {
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
    throw new TagferryError(`${path} cannot be read (${codeOf(cause)})`, { code: 'restore.unreadable', cause });
  }
}

function demandPlace({ name }: ArchivedFile): void {
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
