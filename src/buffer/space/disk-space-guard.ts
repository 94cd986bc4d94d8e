/**
 * Manages disk space: measures it, decides whether new values are accepted, and frees space. Uses the store's database
 * connection, in the store thread.
 *
 * SQLite cannot checkpoint a WAL into a database without space to grow, and cannot truncate the WAL until then. If the
 * disk is nearly full, an operation is started only if twice the required space is available, and the WAL is kept
 * small.
 *
 * After the disk was full, the reserve is missing, and the space it freed is used only for deleting and settling. New
 * values are written only into free pages of the database. A purge therefore always works, and its space is usable
 * immediately even if other programs fill the disk. The reserve is recreated as soon as there is enough space,
 * including those pages.
 */
import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Database } from '../../base/database.ts';
import { StoreError } from '../../base/errors.ts';
import type { FlushSpace } from '../compaction/maintenance.ts';
import type { ReadLeases } from '../read-leases.ts';
import { type BufferBounds, DiskGauge, type DiskUse, excessBytes, minFreeBytes } from './bounds.ts';
import { Reserve } from './reserve.ts';

/** Free pages are returned to the file system if they exceed this size and one tenth of the file. */
const SPARE_BYTES = 1_000_000;
/** Free pages that a commit requires in addition to its values while the reserve is missing. */
const EXTRA_COMMIT_BYTES = 64_000;
const BYTES_A_VALUE = 12;
/** Maximum bytes written per accepted or flushed value, in the WAL and then in the database. */
const BYTES_TO_WRITE = 24;
/** Free space below which every commit measures the disk. */
const NEARLY_FULL_BYTES = 16 * 1024 * 1024;
const EXTRA_FLUSH_BYTES = 128 * 1024;
/**
 * The disk is measured after this number of written bytes and this time. The number of bytes is less than the margin of
 * the bound.
 */
const GAUGE_BYTES = 128 * 1024;
const GAUGE_MS = 500;
/** 512 KiB, which takes a few milliseconds and keeps the WAL below the automatic checkpoint. */
const VACUUM_PAGES = 512;
/** Reduced number of pages for a full disk, because moving a page requires space first. */
const VACUUM_PAGES_SHORT = 64;
/** Interval between attempts to recreate the reserve. */
const MAKE_EVERY_MS = 5_000;
/** The WAL is checkpointed before it exceeds this fraction of the reserve. */
const CHECKPOINT_SHARE = 2;
/** WAL size below which a checkpoint is not worth its syncs. */
const MIN_WAL_BYTES = 64 * 1024;
/** Minimum WAL size for a small bound, as a share of the bound. */
const WAL_SHARE = 1 / 16;

export class DiskSpaceGuard {
  readonly #database: Database;
  readonly #path: string;
  readonly #bounds: BufferBounds;
  readonly #gauge: DiskGauge;
  readonly #reserve: Reserve;
  #use: DiskUse;
  /** WAL size that triggers an automatic checkpoint by default, in pages. */
  readonly #maxPages: number;
  #bytesSinceGauge = 0;
  #gaugedMs = Number.NEGATIVE_INFINITY;
  /** Number of values in the latest rejected commit. */
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

  boundsChanged(monotonicMs: number): void {
    this.#reserve.resize(this.#use);
    this.#setCheckpoints();
    this.measureNow(monotonicMs);
  }

  #setCheckpoints(): void {
    const pageBytes = this.#database.pragma('page_size', { simple: true }) as number;
    const wanted = Math.floor(this.#reserve.bytes / CHECKPOINT_SHARE / pageBytes);
    this.#database.pragma(`wal_autocheckpoint = ${Math.max(32, Math.min(this.#maxPages, wanted))}`);
  }

  get use(): DiskUse {
    return this.#use;
  }

  /**
   * Whether the disk was full and there is no space for the reserve yet. New values are written only into free pages.
   */
  get isShort(): boolean {
    return this.#reserve.isOwed;
  }

  /** Whether there are also no free pages, so that new values are rejected. */
  get isFull(): boolean {
    return this.#lacksRoomFor(this.#refused);
  }

  /**
   * Limits of a flush, because a flush requires space before it frees any; `undefined` for no limit. On a full disk,
   * flushing frees the space of deleted log values, so it is not delayed.
   */
  get flushSpace(): FlushSpace | undefined {
    if (!this.#isNearlyFull) return undefined;
    const maxValues = Math.max(0, Math.floor((this.#use.freeBytes - EXTRA_FLUSH_BYTES) / BYTES_TO_WRITE));
    return { maxValues, atOnce: this.isFull };
  }

  get #isNearlyFull(): boolean {
    return this.isShort || (this.#use.freeBytes < NEARLY_FULL_BYTES && this.#use.totalBytes > 0);
  }

  /**
   * Whether segments of a file that was set aside may be copied. Copying is suspended while new values would be
   * rejected.
   */
  get hasRoomToCarry(): boolean {
    if (this.#isNearlyFull || excessBytes(this.#use, this.#bounds) > 0) return false;
    return this.#use.totalBytes === 0 || this.#use.freeBytes >= minFreeBytes(this.#use, this.#bounds);
  }

  /** Whether the file exceeds its bound and has free pages. */
  get isOversized(): boolean {
    const { bytes, reusableBytes } = this.#use;
    const { maxBytes } = this.#bounds;
    return maxBytes > 0 && bytes > maxBytes && reusableBytes > 0;
  }

  /**
   * Whether free pages should be returned to the file system: there are many, the file is too large, or the reserve
   * requires their space.
   */
  get hasSpare(): boolean {
    const { bytes, freeBytes, reusableBytes } = this.#use;
    if (this.isOversized) return true;
    if (!this.isShort) return reusableBytes > Math.max(SPARE_BYTES, bytes / 10);
    return !this.#reserve.hasRoom(freeBytes) && this.#reserve.hasRoom(freeBytes + reusableBytes - EXTRA_COMMIT_BYTES);
  }

  /** Whether the reserve can be recreated in an idle moment. */
  mayRecover(monotonicMs: number): boolean {
    if (monotonicMs - this.#madeMs < MAKE_EVERY_MS) return false;
    return this.#reserve.isOwed && this.#reserve.hasRoom(this.#use.freeBytes);
  }

  /** Counts written bytes. */
  countWritten(bytes: number): void {
    this.#bytesSinceGauge += bytes;
  }

  /** Measures the disk if enough bytes were written or enough time has passed. */
  measureIfDue(monotonicMs: number, isNow = false): void {
    this.#nowMs = monotonicMs;
    if (!isNow && !this.#isNearlyFull && this.#bytesSinceGauge < GAUGE_BYTES && monotonicMs - this.#gaugedMs < GAUGE_MS)
      return;
    this.measureNow(monotonicMs);
  }

  measureNow(monotonicMs: number): void {
    this.#nowMs = monotonicMs;
    this.#use = this.#gauge.read();
    if (this.#emptyLargeWal()) this.#use = this.#gauge.read();
    this.#bytesSinceGauge = 0;
    this.#gaugedMs = monotonicMs;
  }

  /** Returns the reason why new values are rejected, or `undefined`. */
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
    if (!this.#isNearlyFull || reusableBytes >= pagesFor(values)) return false;
    // While the reserve is missing, free space is not used for values.
    return this.isShort ? !this.#reserve.hasRoom(freeBytes) : freeBytes < values * BYTES_TO_WRITE;
  }

  /** While the reserve is missing, the WAL is emptied after each commit. */
  committed(): void {
    if (this.isShort) this.#emptyWal();
  }

  /** Deletes the reserve and checkpoints the WAL, because the disk is full. */
  freeReserve(): void {
    this.#reserve.delete();
    this.#emptyWal();
  }

  /** Recreates a missing reserve if there is space. Requires a sync, so it is called in idle moments. */
  restoreReserve(monotonicMs: number): void {
    this.measureIfDue(monotonicMs);
    if (this.#reserve.exists || monotonicMs - this.#madeMs < MAKE_EVERY_MS) return;
    const roomBytes = this.#use.freeBytes - (this.isShort ? 0 : minFreeBytes(this.#use, this.#bounds));
    if (!this.#reserve.hasRoom(roomBytes)) return;
    this.#madeMs = monotonicMs;
    this.#reserve.create();
  }

  /** Returns a few hundred free pages to the file system, in one transaction. */
  vacuum(monotonicMs: number): void {
    // Uses `exec`, because a prepared statement would release only one page.
    this.#database.exec(`PRAGMA incremental_vacuum(${this.isShort ? VACUUM_PAGES_SHORT : VACUUM_PAGES})`);
    // The file shrinks with the checkpoint.
    if (this.isShort || this.isOversized) this.#emptyWal();
    this.measureNow(monotonicMs);
    if (this.isShort) this.restoreReserve(monotonicMs);
  }

  /** Called after the database was closed. Never throws. */
  close(): void {
    try {
      const { bavail, bsize } = statfsSync(dirname(this.#path));
      this.#reserve.createPartial(bavail * bsize);
    } catch {
      // The reserve is optional.
    }
  }

  /** A checkpoint can bring the buffer below its bound, so it is tried before values are dropped. */
  #emptyLargeWal(): boolean {
    const { maxBytes } = this.#bounds;
    const { bytes, walBytes } = this.#use;
    if (maxBytes === 0 || bytes <= maxBytes || walBytes < Math.min(MIN_WAL_BYTES, maxBytes * WAL_SHARE)) return false;
    this.#emptyWal();
    return true;
  }

  #emptyWal(): void {
    // A process that reads the files keeps the WAL in use, and the checkpoint must not wait for that reader.
    const mode = this.#readers.isAny(this.#nowMs, 'files') ? 'PASSIVE' : 'TRUNCATE';
    try {
      this.#database.pragma(`wal_checkpoint(${mode})`);
    } catch {
      // The WAL is unchanged, and the next checkpoint retries.
    }
  }
}

/** Returns the number of bytes in free pages that a commit requires while the reserve is missing. */
function pagesFor(values: number): number {
  return EXTRA_COMMIT_BYTES + values * BYTES_A_VALUE;
}

/** Returns the error for new values while the reserve is missing. Pending changes have been written. */
export function full(): StoreError {
  return new StoreError('the disk is full', {
    code: 'buffer.disk-full',
    retryable: true,
    hint: 'Free up space on the file system of STATE_DIR, or delete values with `tagferry buffer purge`.',
  });
}
