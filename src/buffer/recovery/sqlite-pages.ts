/**
 * Reads rows of a SQLite file without SQLite, for files that SQLite rejects. Each leaf page is read separately, so a
 * damaged header, root or neighbour does not affect other pages. Row contents are not interpreted; buffer rows have
 * checksums.
 *
 * Layout: https://www.sqlite.org/fileformat2.html. Pages in the WAL, up to the last commit, replace the pages in the
 * file. Frames of an earlier round are recognized by their salt instead of the running checksum, which ends at the
 * first damaged frame.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

export type RawField = null | number | string | Uint8Array;

export interface RawRow {
  rowid: number;
  fields: RawField[];
  /** The row continues on an unreadable page: the final field is truncated and the following fields are missing. */
  isCut?: boolean;
}

/** Page size set by `openDatabase`. */
export const PAGE_BYTES = 1024;

const WAL_HEADER = 32;
const FRAME_HEADER = 24;
const LEAF = 0x0d;
/** Type of a free page in the pointer map of an auto-vacuum database. */
const FREE_PAGE = 2;
/** Maximum payload, larger than the row of the largest commit. */
const MAX_PAYLOAD = 16 * 1024 * 1024;
const CHUNK_BYTES = 64 * 1024;
const MAX_CHUNKS = 64;
/** Size of an unreadable sector, and of the smallest file system blocks. */
const SECTOR_BYTES = 4096;
const BLOCK_BYTES = 1024;
/** Offset of the first trunk page of the free list in the file header. */
const FREE_LIST_AT = 32;

/** File with a cache of chunks. Reading past its end returns undefined. */
class Source {
  readonly #fd: number;
  readonly bytes: number;
  readonly #chunks = new Map<number, Buffer>();
  /** Unreadable blocks. Each is read only once, because a disk can take seconds to report an error. */
  readonly #bad = new Set<number>();

  constructor(path: string) {
    this.#fd = openSync(path, 'r');
    this.bytes = fstatSync(this.#fd).size;
  }

  /** Returns undefined unless all bytes are readable. */
  read(at: number, length: number): Buffer | undefined {
    const first = Math.floor(at / CHUNK_BYTES);
    const last = Math.floor((at + length - 1) / CHUNK_BYTES);
    const parts: Buffer[] = [];
    for (let index = first; index <= last; index++) {
      const chunk = this.#chunk(index);
      const from = Math.max(0, at - index * CHUNK_BYTES);
      parts.push(chunk.subarray(from, Math.min(chunk.length, at + length - index * CHUNK_BYTES)));
    }
    if (this.#bad.size > 0 && this.#hasBad(at, length)) return undefined;
    const all = parts.length === 1 ? parts[0]! : Buffer.concat(parts);
    return all.length === length ? all : undefined;
  }

  #chunk(index: number): Buffer {
    const kept = this.#chunks.get(index);
    if (kept) return kept;
    const buffer = Buffer.alloc(CHUNK_BYTES);
    const start = index * CHUNK_BYTES;
    const length = this.#fill(buffer, start, 0, CHUNK_BYTES) ?? this.#fillBySectors(buffer, start);
    const chunk = buffer.subarray(0, length);
    this.#chunks.set(index, chunk);
    if (this.#chunks.size > MAX_CHUNKS) this.#chunks.delete(this.#chunks.keys().next().value!);
    return chunk;
  }

  /** Reads a part of a chunk. Returns the end offset of the bytes read, or undefined on a read error. */
  #fill(buffer: Buffer, start: number, from: number, length: number): number | undefined {
    try {
      return from + readSync(this.#fd, buffer, from, length, start + from);
    } catch {
      return undefined;
    }
  }

  /** After EIO, reads sector by sector, and a bad sector block by block, so that no other data is lost. */
  #fillBySectors(buffer: Buffer, start: number): number {
    const left = Math.min(CHUNK_BYTES, Math.max(0, this.bytes - start));
    for (let from = 0; from < left; from += SECTOR_BYTES) {
      if (this.#fill(buffer, start, from, SECTOR_BYTES) !== undefined) continue;
      for (let block = from; block < Math.min(left, from + SECTOR_BYTES); block += BLOCK_BYTES) {
        if (this.#fill(buffer, start, block, BLOCK_BYTES) === undefined) this.#bad.add((start + block) / BLOCK_BYTES);
      }
    }
    return left;
  }

  #hasBad(at: number, length: number): boolean {
    for (let block = Math.floor(at / BLOCK_BYTES); block * BLOCK_BYTES < at + length; block++) {
      if (this.#bad.has(block)) return true;
    }
    return false;
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/**
 * Returns whether any part of a file is readable. A bad sector is permanent; a disk that cannot read anything may
 * recover.
 */
export function isPartlyReadable(path: string): boolean {
  let fd: number | undefined;
  try {
    fd = openSync(path, 'r');
    const { size } = fstatSync(fd);
    const sector = Buffer.alloc(SECTOR_BYTES);
    for (let probe = 0; probe < PROBES; probe++) {
      const at = Math.floor((size * probe) / PROBES / SECTOR_BYTES) * SECTOR_BYTES;
      try {
        if (readSync(fd, sector, 0, SECTOR_BYTES, at) > 0) return true;
      } catch {}
    }
  } catch {
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
  return false;
}

/** Number of sectors that are tried, spread over the file. */
const PROBES = 16;

export class SqlitePages {
  readonly #file: Source;
  readonly #wal: Source | undefined;
  readonly #pageBytes: number;
  /** Offsets of pages in the WAL. */
  readonly #frames = new Map<number, number>();
  readonly #pages: number;
  /** Pages on the free list, used if a pointer map is unreadable. */
  #freeList: ReadonlySet<number> | undefined;
  /** Number of unreadable leaf pages and cells. */
  broken = 0;
  /** Number of pages in use that the disk cannot read. */
  unreadPages = 0;

  /** `pageBytes` is not read from the header, because the header may be damaged. */
  constructor(path: string, pageBytes: number) {
    this.#pageBytes = pageBytes;
    this.#file = new Source(path);
    try {
      this.#wal = new Source(`${path}-wal`);
    } catch {}
    let pages = Math.ceil(this.#file.bytes / pageBytes);
    if (this.#wal) {
      // Page numbers beyond the end of both files are corrupt.
      readFrames(this.#wal, pageBytes, this.#frames, pages + Math.ceil(this.#wal.bytes / pageBytes));
      for (const page of this.#frames.keys()) pages = Math.max(pages, page);
    }
    this.#pages = pages;
  }

  close(): void {
    this.#file.close();
    this.#wal?.close();
  }

  /** Yields the rows of all leaf pages in use, including truncated rows. */
  *rows(): Generator<RawRow> {
    for (const rows of this.pages()) yield* rows;
  }

  /** Yields the rows of each page, and an empty list for other pages, so that callers can pause. */
  *pages(): Generator<RawRow[]> {
    for (let number = 1; number <= this.#pages; number++) {
      if (this.#isMap(number) || this.#isFree(number)) continue;
      const page = this.#page(number);
      if (!page) this.unreadPages++;
      const at = number === 1 ? 100 : 0;
      yield page?.[at] === LEAF ? [...this.#cells(page, at)] : [];
    }
  }

  #page(number: number): Buffer | undefined {
    const frame = this.#frames.get(number);
    if (frame !== undefined) return this.#wal!.read(frame, this.#pageBytes);
    return this.#file.read((number - 1) * this.#pageBytes, this.#pageBytes);
  }

  #mapOf(number: number): number {
    const each = Math.floor(this.#pageBytes / 5) + 1;
    return Math.floor((number - 2) / each) * each + 2;
  }

  #isMap(number: number): boolean {
    return this.#mapOf(number) === number;
  }

  /**
   * If neither the map nor the list is readable, the page is read, because an unnecessary row is harmless, while a
   * skipped row would be lost.
   */
  #isFree(number: number): boolean {
    if (number === 1) return false;
    const map = this.#mapOf(number);
    const page = this.#page(map);
    if (page) return page[5 * (number - map - 1)] === FREE_PAGE;
    this.#freeList ??= this.#readFreeList();
    return this.#freeList.has(number);
  }

  #readFreeList(): Set<number> {
    const free = new Set<number>();
    let trunk = this.#page(1)?.readUInt32BE(FREE_LIST_AT) ?? 0;
    while (trunk > 0 && trunk <= this.#pages && !free.has(trunk)) {
      free.add(trunk);
      const page = this.#page(trunk);
      const leaves = Math.min(page?.readUInt32BE(4) ?? 0, this.#pageBytes / 4 - 2);
      for (let i = 0; i < leaves; i++) free.add(page!.readUInt32BE(8 + i * 4));
      trunk = page?.readUInt32BE(0) ?? 0;
    }
    return free;
  }

  *#cells(page: Buffer, at: number): Generator<RawRow> {
    const count = page.readUInt16BE(at + 3);
    if (at + 8 + count * 2 > page.length) {
      this.broken++;
      return;
    }
    for (let i = 0; i < count; i++) {
      const row = this.#cell(page, page.readUInt16BE(at + 8 + i * 2));
      if (row) yield row;
      if (!row || row.isCut) this.broken++;
    }
  }

  #cell(page: Buffer, start: number): RawRow | undefined {
    const size = readVarint(page, start);
    if (!size || size.value > MAX_PAYLOAD) return undefined;
    const rowid = readVarint(page, size.end);
    if (!rowid) return undefined;
    const payload = this.#payload(page, rowid.end, size.value);
    if (!payload) return undefined;
    const isCut = payload.length < size.value;
    const fields = readRecord(payload, isCut);
    return fields && { rowid: rowid.value, fields, ...(isCut ? { isCut } : {}) };
  }

  /** Returns the payload of a cell including readable overflow pages. */
  #payload(page: Buffer, at: number, size: number): Uint8Array | undefined {
    const usable = this.#pageBytes;
    if (size <= usable - 35) return at + size <= usable ? page.subarray(at, at + size) : undefined;
    const min = Math.floor(((usable - 12) * 32) / 255) - 23;
    const wanted = min + ((size - min) % (usable - 4));
    const local = wanted <= usable - 35 ? wanted : min;
    if (at + local + 4 > usable) return undefined;
    // Collected in parts, because memory must not be allocated for a corrupt size.
    const parts: Uint8Array[] = [page.subarray(at, at + local)];
    let next = page.readUInt32BE(at + local);
    for (let done = local; done < size; ) {
      const more = next === 0 ? undefined : this.#page(next);
      if (!more) return Buffer.concat(parts);
      parts.push(more.subarray(4));
      done += usable - 4;
      next = more.readUInt32BE(0);
    }
    return Buffer.concat(parts, size);
  }
}

/** Records the position of each page after the last commit. */
function readFrames(wal: Source, pageBytes: number, frames: Map<number, number>, maxPages: number): void {
  const header = wal.read(0, WAL_HEADER);
  const size = FRAME_HEADER + pageBytes;
  const first = wal.read(WAL_HEADER, FRAME_HEADER);
  if (!header || !first) return;
  // Every frame contains the salt, in case the header is zeroed.
  const isHeader = (header.readUInt32BE(0) & 0xffff_fffe) >>> 0 === 0x377f_0682;
  const salt = isHeader ? header.subarray(16, 24) : Buffer.from(first.subarray(8, 16));
  let open: [number, number][] = [];
  for (let at = WAL_HEADER; at + size <= wal.bytes; at += size) {
    const frame = wal.read(at, FRAME_HEADER);
    if (!frame?.subarray(8, 16).equals(salt)) continue;
    const page = frame.readUInt32BE(0);
    if (page === 0 || page > maxPages) continue;
    open.push([page, at + FRAME_HEADER]);
    if (frame.readUInt32BE(4) === 0) continue;
    for (const [number, place] of open) frames.set(number, place);
    open = [];
  }
}

/** Reads a big-endian varint; `undefined` at the end of the bytes or above 2^53. */
function readVarint(bytes: Uint8Array, at: number): { value: number; end: number } | undefined {
  let value = 0;
  for (let i = 0; i < 8; i++) {
    const byte = bytes[at + i]!;
    value = value * 128 + (byte & 0x7f);
    if (byte < 0x80) return value <= Number.MAX_SAFE_INTEGER ? { value, end: at + i + 1 } : undefined;
  }
  return undefined;
}

const INTEGER_BYTES = [0, 1, 2, 3, 4, 6, 8] as const;

/** `isCut`: whether the payload is truncated within its final field. */
function readRecord(payload: Uint8Array, isCut: boolean): RawField[] | undefined {
  const head = readVarint(payload, 0);
  if (!head || head.value > 200) return undefined;
  const view = Buffer.from(payload.buffer, payload.byteOffset, payload.length);
  const fields: RawField[] = [];
  let body = head.value;
  for (let at = head.end; at < head.value; ) {
    const type = readVarint(payload, at);
    if (!type) return undefined;
    at = type.end;
    const length =
      type.value >= 12 ? Math.floor((type.value - 12) / 2) : type.value === 7 ? 8 : (INTEGER_BYTES[type.value] ?? 0);
    if (type.value === 10 || type.value === 11) return undefined;
    if (body + length > payload.length) {
      if (isCut && type.value >= 12 && body < payload.length) fields.push(view.subarray(body));
      return isCut ? fields : undefined;
    }
    fields.push(readField(view, type.value, body, length));
    body += length;
  }
  return body === payload.length ? fields : undefined;
}

function readField(view: Buffer, type: number, at: number, length: number): RawField {
  if (type === 0) return null;
  if (type === 7) return view.readDoubleBE(at);
  if (type === 8 || type === 9) return type - 8;
  if (type >= 12) return type % 2 === 0 ? view.subarray(at, at + length) : view.toString('utf8', at, at + length);
  return length === 8 ? Number(view.readBigInt64BE(at)) : view.readIntBE(at, length);
}
