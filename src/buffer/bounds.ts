import { statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Database, Statement } from '../database.ts';

/** What the buffer may take, as configured; 0 is no bound. */
export interface BufferBounds {
  maxBytes: number;
  maxAgeMs: number;
  /** What must stay free on the file system, below which new values are refused and nothing is dropped. */
  minFree: { bytes: number } | { share: number };
  full: 'drop-oldest' | 'refuse-new';
}

/** Bytes on disk, and how much of them is in use. */
export interface DiskUse {
  /** Database and WAL: what `tagferry_buffer_bytes` shows. */
  bytes: number;
  /** Of these, pages of the database that hold nothing and are used before the file grows. */
  reusableBytes: number;
  /** Free for this user on the file system, and its size. */
  freeBytes: number;
  totalBytes: number;
}

/** Measures what the buffer takes. Statements are prepared once: this runs after every commit. */
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
    const wal = statSync(`${this.#path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
    return {
      // Pages that stand in the WAL alone will be in the file at the next checkpoint.
      bytes: Math.max((this.#pages.get() ?? 0) * this.#pageBytes, statSync(this.#path).size) + wal,
      reusableBytes: (this.#freePages.get() ?? 0) * this.#pageBytes,
      freeBytes: fileSystem.bavail * fileSystem.bsize,
      totalBytes: fileSystem.blocks * fileSystem.bsize,
    };
  }
}

/** Room for one more commit with its WAL, kept below the bound so that the bound itself is never passed. */
function headroom(maxBytes: number): number {
  return Math.min(4_000_000, maxBytes / 4);
}

/** Whether the store is at its bound. Free pages count as room: the file does not grow while there are any. */
export function overfull(use: DiskUse, bounds: BufferBounds, freedLater = 0): boolean {
  if (bounds.maxBytes === 0) return false;
  return use.bytes - use.reusableBytes - freedLater > bounds.maxBytes - headroom(bounds.maxBytes);
}

export function minFreeBytes(use: DiskUse, bounds: BufferBounds): number {
  return 'bytes' in bounds.minFree ? bounds.minFree.bytes : bounds.minFree.share * use.totalBytes;
}
