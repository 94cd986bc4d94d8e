/**
 * The store's dealings with the space on its disk: how much there is, whether new values may take of it, and what makes
 * room where there is none. Lives in the store thread beside the store, on the same connection.
 *
 * SQLite cannot move a WAL into a database that has no room to grow, nor let go of the WAL before: so near the end of the
 * disk only as much is begun as fits twice, and the WAL is kept small.
 *
 * Once the disk was full the reserve is owed, and what it left is for deleting and settling alone: new values are taken
 * only into pages of the database that hold nothing, which deleting and settling make. So a purge always finds room,
 * and what it frees is of use at once, though somebody else keeps the disk full. When the disk has room for the reserve
 * again, or would have with those pages, it is made, and all is as before.
 */
import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Database } from '../../base/database.ts';
import { StoreError } from '../../base/errors.ts';
import type { FlushSpace } from '../compaction/maintenance.ts';
import type { ReadLeases } from '../read-leases.ts';
import { type BufferBounds, DiskGauge, type DiskUse, excessBytes, minFreeBytes } from './bounds.ts';
import { Reserve } from './reserve.ts';

/** Free pages above this, and above a tenth of the file, are given back in quiet moments. */
const SPARE_BYTES = 1_000_000;
/** While the reserve is owed a commit needs so many free pages beside what its values take, about. */
const PAGES_BESIDE_BYTES = 64_000;
const BYTES_A_VALUE = 12;
/** What taking or flushing a value writes at most: in the WAL, and then in the database. */
const BYTES_TO_WRITE = 24;
/** With less free than this, every commit looks at the disk, and nothing large is begun. */
const NARROW_BYTES = 16 * 1024 * 1024;
const FLUSH_BESIDE_BYTES = 128 * 1024;
/** Well below the headroom that the bound on bytes keeps. */
const GAUGE_BYTES = 128 * 1024;
const GAUGE_MS = 500;
/** 512 KiB: some milliseconds, and the WAL stays below its automatic checkpoint. */
const PAGES_GIVEN_BACK = 512;
/** On a full disk, where moving a page takes room first. */
const PAGES_GIVEN_BACK_SHORT = 64;
/** A reserve that could not be made though there seemed to be room is tried again after this. */
const MAKE_EVERY_MS = 5_000;
/** The WAL of a small file system is moved into the database before it outgrows half of the reserve. */
const CHECKPOINT_SHARE = 2;
/** A WAL smaller than this is not worth the syncs of a checkpoint. */
const MIN_WAL_BYTES = 64 * 1024;
/** Of a small bound: less than the room that is kept for the WAL below it. */
const WAL_SHARE = 1 / 16;

export class DiskSpaceGuard {
  readonly #database: Database;
  readonly #path: string;
  readonly #bounds: BufferBounds;
  readonly #gauge: DiskGauge;
  readonly #reserve: Reserve;
  #use: DiskUse;
  /** Of the WAL, before SQLite moves them into the database. */
  readonly #maxPages: number;
  #bytesSinceGauge = 0;
  #gaugedMs = Number.NEGATIVE_INFINITY;
  /** So many values came last, and there was no room for them. */
  #refused = 0;
  #madeMs = Number.NEGATIVE_INFINITY;
  #nowMs = 0;
  readonly #readers: ReadLeases;

  /** `database` is open and has its tables; `path` is its file. */
  constructor(database: Database, path: string, bounds: BufferBounds, readers: ReadLeases) {
    this.#readers = readers;
    this.#database = database;
    this.#path = path;
    this.#bounds = bounds;
    this.#gauge = new DiskGauge(database, path);
    this.#use = this.#gauge.read();
    this.#reserve = new Reserve(path, bounds);
    this.#reserve.open(this.#use);
    this.#maxPages = database.pragma('wal_autocheckpoint', { simple: true }) as number;
    this.#setCheckpoints();
  }

  /** The bounds are others now. */
  boundsChanged(monotonicMs: number): void {
    this.#reserve.resize(this.#use);
    this.#setCheckpoints();
    this.lookNow(monotonicMs);
  }

  #setCheckpoints(): void {
    const pageBytes = this.#database.pragma('page_size', { simple: true }) as number;
    const wanted = Math.floor(this.#reserve.bytes / CHECKPOINT_SHARE / pageBytes);
    this.#database.pragma(`wal_autocheckpoint = ${Math.max(32, Math.min(this.#maxPages, wanted))}`);
  }

  get use(): DiskUse {
    return this.#use;
  }

  /** The disk was full, and there is no room for the reserve yet: small steps, new values into free pages alone. */
  get isShort(): boolean {
    return this.#reserve.isOwed;
  }

  /** There are no such pages either: new values are refused. */
  get isFull(): boolean {
    return this.#lacksRoomFor(this.#refused);
  }

  /**
   * What may be flushed at once: it takes space before it gives more. `undefined`: all there is. On a full disk flushing is what
   * frees what was deleted of the log, so it does not wait; compaction does.
   */
  get flushSpace(): FlushSpace | undefined {
    if (!this.#isNarrow) return undefined;
    const maxValues = Math.max(0, Math.floor((this.#use.freeBytes - FLUSH_BESIDE_BYTES) / BYTES_TO_WRITE));
    return { maxValues, atOnce: this.isFull };
  }

  get #isNarrow(): boolean {
    return this.isShort || (this.#use.freeBytes < NARROW_BYTES && this.#use.totalBytes > 0);
  }

  /** Whether what stands in a file that was set aside may be written here too: it waits where new values would be refused. */
  get hasRoomToCarry(): boolean {
    if (this.#isNarrow || excessBytes(this.#use, this.#bounds) > 0) return false;
    return this.#use.totalBytes === 0 || this.#use.freeBytes >= minFreeBytes(this.#use, this.#bounds);
  }

  /** The file takes more than the bound allows, and there are pages in it that it can give back. */
  get isOversized(): boolean {
    const { bytes, reusableBytes } = this.#use;
    const { maxBytes } = this.#bounds;
    return maxBytes > 0 && bytes > maxBytes && reusableBytes > 0;
  }

  /** Whether free pages had better go back to the file system: many of them, too many, or enough for the reserve that is owed. */
  get hasSpare(): boolean {
    const { bytes, freeBytes, reusableBytes } = this.#use;
    if (this.isOversized) return true;
    if (!this.isShort) return reusableBytes > Math.max(SPARE_BYTES, bytes / 10);
    return !this.#reserve.hasRoom(freeBytes) && this.#reserve.hasRoom(freeBytes + reusableBytes - PAGES_BESIDE_BYTES);
  }

  /** The reserve may be made again: a quiet moment is asked for. */
  mayRecover(monotonicMs: number): boolean {
    if (monotonicMs - this.#madeMs < MAKE_EVERY_MS) return false;
    return this.#reserve.isOwed && this.#reserve.hasRoom(this.#use.freeBytes);
  }

  /** So many bytes were written. */
  note(bytes: number): void {
    this.#bytesSinceGauge += bytes;
  }

  /** Looks after so many bytes or so much time: cheap, but not as cheap as a small commit. */
  look(monotonicMs: number, isNow = false): void {
    this.#nowMs = monotonicMs;
    // Near the end of the disk every page counts.
    if (!isNow && !this.#isNarrow && this.#bytesSinceGauge < GAUGE_BYTES && monotonicMs - this.#gaugedMs < GAUGE_MS)
      return;
    this.lookNow(monotonicMs);
  }

  lookNow(monotonicMs: number): void {
    this.#nowMs = monotonicMs;
    this.#use = this.#gauge.read();
    if (this.#emptyLargeWal()) this.#use = this.#gauge.read();
    this.#bytesSinceGauge = 0;
    this.#gaugedMs = monotonicMs;
  }

  /** Why so many new values are not taken in now, or `undefined`. */
  refusal(values: number): StoreError | undefined {
    const bounds = this.#bounds;
    const isFull = this.#lacksRoomFor(values);
    this.#refused = isFull ? values : 0;
    if (isFull) return full();
    if (bounds.full === 'refuse-new' && excessBytes(this.#use, bounds) > 0) {
      return new StoreError('the buffer is full', { code: 'buffer.full', retryable: true });
    }
    if (this.#use.freeBytes < minFreeBytes(this.#use, bounds)) {
      return new StoreError('the file system has too little space left', { code: 'buffer.low-space', retryable: true });
    }
    return undefined;
  }

  #lacksRoomFor(values: number): boolean {
    const { freeBytes, reusableBytes } = this.#use;
    if (!this.#isNarrow || reusableBytes >= pagesFor(values)) return false;
    // While the reserve is owed what is free is not for values, unless there is so much that it only has not been made yet.
    return this.isShort ? !this.#reserve.hasRoom(freeBytes) : freeBytes < values * BYTES_TO_WRITE;
  }

  /** A commit is on disk. While the reserve is owed the WAL is emptied at once: it must not eat what the reserve left. */
  committed(): void {
    if (this.isShort) this.#emptyWal();
  }

  /** The disk is full: the reserve goes, and what the WAL holds moves into the database, which gives the WAL's room too. */
  makeRoom(): void {
    this.#reserve.giveUp();
    this.#emptyWal();
  }

  /** Makes the reserve where it is missing and there is room beside what is to stay free. For quiet moments: it syncs. */
  keepReserve(monotonicMs: number): void {
    this.look(monotonicMs);
    if (this.#reserve.isThere || monotonicMs - this.#madeMs < MAKE_EVERY_MS) return;
    const roomBytes = this.#use.freeBytes - (this.isShort ? 0 : minFreeBytes(this.#use, this.#bounds));
    if (!this.#reserve.hasRoom(roomBytes)) return;
    this.#madeMs = monotonicMs;
    this.#reserve.make();
  }

  /** Gives free pages back to the file system, some hundred at a time. Costs a transaction: for quiet moments. */
  giveBack(monotonicMs: number): void {
    // By `exec`: a prepared statement would step once and give back a single page.
    this.#database.exec(`PRAGMA incremental_vacuum(${this.isShort ? PAGES_GIVEN_BACK_SHORT : PAGES_GIVEN_BACK})`);
    // The file itself shrinks with a checkpoint; on a full disk it is waited for.
    if (this.isShort || this.isOversized) this.#emptyWal();
    this.lookNow(monotonicMs);
    if (this.isShort) this.keepReserve(monotonicMs);
  }

  /** The database is closed. Never throws. */
  close(): void {
    try {
      const { bavail, bsize } = statfsSync(dirname(this.#path));
      this.#reserve.leave(bavail * bsize);
    } catch {
      // The reserve is a comfort.
    }
  }

  /** The bound is passed, and the WAL may be why: nothing is dropped for what a checkpoint gives back. */
  #emptyLargeWal(): boolean {
    const { maxBytes } = this.#bounds;
    const { bytes, walBytes } = this.#use;
    if (maxBytes === 0 || bytes <= maxBytes || walBytes < Math.min(MIN_WAL_BYTES, maxBytes * WAL_SHARE)) return false;
    this.#emptyWal();
    return true;
  }

  #emptyWal(): void {
    // A reader of the files keeps the WAL from being emptied: the checkpoint must not wait for it.
    const mode = this.#readers.isAny(this.#nowMs, 'files') ? 'PASSIVE' : 'TRUNCATE';
    try {
      this.#database.pragma(`wal_checkpoint(${mode})`);
    } catch {
      // What cannot be moved now stays in the WAL: nothing is lost by it, and the next checkpoint tries again.
    }
  }
}

/** Bytes in free pages that a commit needs while the reserve is owed. */
function pagesFor(values: number): number {
  return PAGES_BESIDE_BYTES + values * BYTES_A_VALUE;
}

/** New values while the reserve is owed. What was pending has been written all the same. */
export function full(): StoreError {
  return new StoreError('the disk is full', {
    code: 'buffer.disk-full',
    retryable: true,
    hint: 'Free space on the file system of STATE_DIR, or delete values with `tagferry buffer purge`.',
  });
}
