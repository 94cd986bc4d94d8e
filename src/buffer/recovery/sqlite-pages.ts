/**
 * Reads the rows of a SQLite file without SQLite, for a file that SQLite refuses: every leaf page of a table stands by
 * itself, so a broken header, root or neighbour takes nothing else with it. Nothing is decided here about what a row
 * means or whether it is right; the rows of the buffer have checksums for that.
 *
 * Layout: https://www.sqlite.org/fileformat2.html. Pages of the WAL stand for those of the file up to its last commit;
 * frames are told apart from those of an earlier round by their salt, and not by the running checksum, which ends with the
 * first broken frame.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

export type RawField = null | number | string | Uint8Array;

export interface RawRow {
  rowid: number;
  fields: RawField[];
  /** Of a row that has run over into a page that does not read: how far its last field goes. The fields behind it are missing. */
  isCut?: boolean;
}

const WAL_HEADER = 32;
const FRAME_HEADER = 24;
const LEAF = 0x0d;
/** In the pointer map of an auto-vacuum database: the page is on the free list, what stands on it is old. */
const FREE_PAGE = 2;
/** A log row of the largest commit is smaller; a garbled size is likely larger. */
const MAX_PAYLOAD = 16 * 1024 * 1024;
const CHUNK_BYTES = 64 * 1024;
const MAX_CHUNKS = 64;
/** What a disk cannot read is a sector of this size; the blocks of a small file system are smaller. */
const SECTOR_BYTES = 4096;
const BLOCK_BYTES = 1024;
/** In the header of the file: the first trunk page of the free list, and how many pages are on it. */
const FREE_LIST_AT = 32;

/** A file read by offsets, some megabytes of it kept. Behind its end there is nothing, which is no error. */
class Source {
  readonly #fd: number;
  readonly bytes: number;
  readonly #chunks = new Map<number, Buffer>();
  /** Blocks that the disk does not read. They are asked for once: a disk may take seconds to say so. */
  readonly #bad = new Set<number>();

  constructor(path: string) {
    this.#fd = openSync(path, 'r');
    this.bytes = fstatSync(this.#fd).size;
  }

  /** `undefined` where not all of it is there. A sector that cannot be read is not there. */
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

  /** Reads a part of a chunk; `undefined` where the disk does not. Gives the bytes up to its end that are there. */
  #fill(buffer: Buffer, start: number, from: number, length: number): number | undefined {
    try {
      return from + readSync(this.#fd, buffer, from, length, start + from);
    } catch {
      return undefined;
    }
  }

  /** EIO: sector by sector, and a bad one block by block, so that nothing but what stands there is lost. */
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

/** Whether something of a file reads: a bad sector is lost for good, a disk that reads nothing may come back. */
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

/** Spread over the file. */
const PROBES = 16;

export class SqlitePages {
  readonly #file: Source;
  readonly #wal: Source | undefined;
  readonly #pageBytes: number;
  /** Offsets of pages in the WAL. */
  readonly #frames = new Map<number, number>();
  readonly #pages: number;
  /** Pages on the free list, as far as it reads: where a pointer map does not. */
  #freeList: ReadonlySet<number> | undefined;
  /** Leaf pages or cells that do not read. */
  broken = 0;
  /** Pages in use that the disk does not read, whatever stood on them. */
  unreadPages = 0;

  /** `pageBytes` is what such a file has; its own header may be the broken part. */
  constructor(path: string, pageBytes: number) {
    this.#pageBytes = pageBytes;
    this.#file = new Source(path);
    try {
      this.#wal = new Source(`${path}-wal`);
    } catch {}
    let pages = Math.ceil(this.#file.bytes / pageBytes);
    if (this.#wal) {
      // No more pages than both files have room for: a number that is larger is garbage.
      readFrames(this.#wal, pageBytes, this.#frames, pages + Math.ceil(this.#wal.bytes / pageBytes));
      for (const page of this.#frames.keys()) pages = Math.max(pages, page);
    }
    this.#pages = pages;
  }

  close(): void {
    this.#file.close();
    this.#wal?.close();
  }

  /** Every row of every leaf page that is in use, and what is left of those that break off. */
  *rows(): Generator<RawRow> {
    for (const rows of this.pages()) yield* rows;
  }

  /** The same page by page, of other pages none: who reads a large file can rest between them. */
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

  /** Where neither map nor list reads, the page is looked at: a row too many is posted again, a row too few is lost. */
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

  /** The payload of a cell with what has run over into other pages, as far as these read. */
  #payload(page: Buffer, at: number, size: number): Uint8Array | undefined {
    const usable = this.#pageBytes;
    if (size <= usable - 35) return at + size <= usable ? page.subarray(at, at + size) : undefined;
    const min = Math.floor(((usable - 12) * 32) / 255) - 23;
    const wanted = min + ((size - min) % (usable - 4));
    const local = wanted <= usable - 35 ? wanted : min;
    if (at + local + 4 > usable) return undefined;
    // Gathered before anything of that size is made: a garbled size would ask for memory that nobody has.
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

/** Fills in where each page stands as of the last commit. */
function readFrames(wal: Source, pageBytes: number, frames: Map<number, number>, maxPages: number): void {
  const header = wal.read(0, WAL_HEADER);
  const size = FRAME_HEADER + pageBytes;
  const first = wal.read(WAL_HEADER, FRAME_HEADER);
  if (!header || !first) return;
  // The salts stand in every frame too: a header that was zeroed says nothing against them.
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

/** A big-endian varint; `undefined` behind the end or beyond 2^53, which takes eight bytes. */
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

/** `isCut`: the payload breaks off, and so does its last field. */
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
