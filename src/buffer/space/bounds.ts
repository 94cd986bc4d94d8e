import { statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Database, Statement } from '../../base/database.ts';

/** Configured buffer bounds; 0 means no bound. */
export interface BufferBounds {
  /** Maximum of `DiskUse.bytes`: database, WAL and quarantine. */
  maxBytes: number;
  maxAgeMs: number;
  /** Free space on the file system below which new values are rejected; no values are dropped to restore it. */
  minFree: { bytes: number } | { share: number };
  full: 'drop-oldest' | 'refuse-new';
}

/** Disk use, in bytes. */
export interface DiskUse {
  /** Database and WAL: `tagferry_buffer_bytes`, bounded by BUFFER_MAX_BYTES. */
  bytes: number;
  /** The WAL, which a checkpoint empties. */
  walBytes: number;
  /** Used pages of the database. */
  usedBytes: number;
  /** Free pages of the database, which are reused before the file grows. */
  reusableBytes: number;
  /** Free space that is available to this user, and size of the file system. */
  freeBytes: number;
  totalBytes: number;
}

/** Measures disk use after commits; statements are prepared once. */
export class DiskGauge {
  readonly #path: string;
  readonly #pageBytes: number;
  readonly #freePages: Statement<[], number>;
  readonly #pages: Statement<[], number>;

  constructor(database: Database, path: string) {
    this.#path = path;
    this.#pageBytes = database.pragma('page_size', { simple: true }) as number;
    this.#freePages = database.prepare<[], number>('PRAGMA freelist_count').pluck();
    this.#pages = database.prepare<[], number>('PRAGMA page_count').pluck();
  }

  read(): DiskUse {
    const fileSystem = statfsSync(dirname(this.#path));
    const walBytes = statSync(`${this.#path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
    const pageBytes = (this.#pages.get() ?? 0) * this.#pageBytes;
    const reusableBytes = (this.#freePages.get() ?? 0) * this.#pageBytes;
    return {
      // Pages that are only in the WAL are added to the file by the next checkpoint, which also removes freed pages.
      bytes: Math.max(pageBytes, statSync(this.#path).size) + walBytes,
      walBytes,
      usedBytes: pageBytes - reusableBytes,
      reusableBytes,
      freeBytes: fileSystem.bavail * fileSystem.bsize,
      totalBytes: fileSystem.blocks * fileSystem.bsize,
    };
  }
}

/**
 * Returns the space reserved for the WAL. The WAL is checkpointed before it exceeds this size, so the bound itself is
 * rarely exceeded.
 */
function headroom(maxBytes: number): number {
  return Math.min(4_000_000, maxBytes / 8);
}

/**
 * Returns the number of row bytes to drop to comply with the bound, or 0. Free pages do not count as used: the file
 * reuses them before it grows, and returns them if it is too large. The WAL counts only above the space reserved for
 * it; after a checkpoint, its space can be reused.
 */
export function excessBytes(use: DiskUse, { maxBytes }: Pick<BufferBounds, 'maxBytes'>): number {
  if (maxBytes === 0) return 0;
  const walBeyond = Math.max(0, use.walBytes - headroom(maxBytes));
  return Math.max(0, use.usedBytes + walBeyond - (maxBytes - headroom(maxBytes)));
}

export function minFreeBytes(use: DiskUse, bounds: BufferBounds): number {
  return 'bytes' in bounds.minFree ? bounds.minFree.bytes : bounds.minFree.share * use.totalBytes;
}
