import { statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Database, Statement } from '../../base/database.ts';

/** What the buffer may take, as configured; 0 is no bound. */
export interface BufferBounds {
  /** Of `DiskUse.bytes`: database, WAL and quarantine. */
  maxBytes: number;
  maxAgeMs: number;
  /** What must stay free on the file system, below which new values are refused and nothing is dropped. */
  minFree: { bytes: number } | { share: number };
  full: 'drop-oldest' | 'refuse-new';
}

/** Bytes on disk, and how much of them is in use. */
export interface DiskUse {
  /** Database and WAL: what `tagferry_buffer_bytes` shows, and what BUFFER_MAX_BYTES bounds. */
  bytes: number;
  /** Of these, the WAL: a checkpoint gives them back. */
  walBytes: number;
  /** Pages of the database that hold something. */
  usedBytes: number;
  /** Pages of the database that hold nothing and are used before the file grows. */
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
    const walBytes = statSync(`${this.#path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
    const pageBytes = (this.#pages.get() ?? 0) * this.#pageBytes;
    const reusableBytes = (this.#freePages.get() ?? 0) * this.#pageBytes;
    return {
      // Pages that stand in the WAL alone will be in the file at the next checkpoint, and those that it gave back will not.
      bytes: Math.max(pageBytes, statSync(this.#path).size) + walBytes,
      walBytes,
      usedBytes: pageBytes - reusableBytes,
      reusableBytes,
      freeBytes: fileSystem.bavail * fileSystem.bsize,
      totalBytes: fileSystem.blocks * fileSystem.bsize,
    };
  }
}

/** Room for the WAL, which is emptied before it outgrows this: so the bound itself is hardly ever passed. */
function headroom(maxBytes: number): number {
  return Math.min(4_000_000, maxBytes / 8);
}

/**
 * Bytes of rows that must go so that the bound holds; 0 where it does. Free pages are room: the file does not grow while there
 * are any, and gives them back where it is too large. So is the WAL within its headroom, and a larger one once a checkpoint
 * has emptied it.
 */
export function excessBytes(use: DiskUse, { maxBytes }: Pick<BufferBounds, 'maxBytes'>): number {
  if (maxBytes === 0) return 0;
  const walBeyond = Math.max(0, use.walBytes - headroom(maxBytes));
  return Math.max(0, use.usedBytes + walBeyond - (maxBytes - headroom(maxBytes)));
}

export function minFreeBytes(use: DiskUse, bounds: BufferBounds): number {
  return 'bytes' in bounds.minFree ? bounds.minFree.bytes : bounds.minFree.share * use.totalBytes;
}
