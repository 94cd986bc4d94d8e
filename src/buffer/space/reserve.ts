/**
 * File that reserves disk space. A deletion writes to the WAL before it frees any space, so on a full disk the file is
 * deleted first. It contains random bytes, because a file system could compress other content.
 *
 *   present ──► disk full: deleted, owed ──► enough free space: recreated
 *
 * While the reserve is owed, that is, deleted and not yet recreated, new values are stored only in free pages of the
 * database. The reserve is also owed if a store opens on a disk without space for it. If the file cannot be created for
 * another reason, the store operates without it. A crash can leave a partial file, which is accepted at the next
 * startup if it is large enough.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, fsyncSync, rmSync, statSync, writeSync } from 'node:fs';
import { codeOf } from '../../base/errors.ts';
import { openOwnFile } from '../../base/own-file.ts';
import type { BufferBounds, DiskUse } from './bounds.ts';

/** Maximum WAL size before a checkpoint, plus the same amount for the deletions of one commit. */
const MAX_BYTES = 2 * 1024 * 1024;
const MIN_BYTES = 256 * 1024;
/** Maximum share of a small file system: 1 MB of 16 MB. */
const SHARE_OF_DISK = 16;
/** Required free space as a multiple of the reserve, because the WAL grows too. */
const ROOM_FACTOR = 2;
/** Share of the free space used if a store closes without a reserve. */
const LEFT_SHARE = 0.9;
const MIN_LEFT_BYTES = 64 * 1024;
/** Minimum share of the size at which a partial file is accepted after a crash. */
const USEFUL_PART = 0.5;

export class Reserve {
  readonly #path: string;
  readonly #bounds: BufferBounds;
  #bytes = MAX_BYTES;
  #exists = false;
  #isOwed = false;

  constructor(path: string, bounds: BufferBounds) {
    this.#path = reservePath(path);
    this.#bounds = bounds;
  }

  /** Reserve size on this file system. */
  get bytes(): number {
    return this.#bytes;
  }

  get exists(): boolean {
    return this.#exists;
  }

  /** Whether the reserve is missing because the disk was full and there has been no space for it since. */
  get isOwed(): boolean {
    return this.#isOwed;
  }

  /** Uses an existing file, or creates the file if there is space. */
  open(disk: DiskUse): void {
    this.#bytes = reserveBytes(disk.totalBytes, this.#bounds.maxBytes);
    const found = statSync(this.#path, { throwIfNoEntry: false })?.size ?? 0;
    this.#exists = found >= this.#bytes * USEFUL_PART && found <= MAX_BYTES;
    if (!this.#exists && this.hasRoom(disk.freeBytes)) this.create();
    // A file system that does not report its size does not report free space either.
    this.#isOwed = !this.#exists && disk.totalBytes > 0 && !this.hasRoom(disk.freeBytes);
  }

  /** Applies a new bound; an existing file keeps its size. */
  resize(disk: DiskUse): void {
    this.#bytes = reserveBytes(disk.totalBytes, this.#bounds.maxBytes);
  }

  hasRoom(freeBytes: number): boolean {
    return freeBytes >= this.#bytes * ROOM_FACTOR;
  }

  /** Creates the file if it fits. Never throws. */
  create(bytes = this.#bytes): void {
    try {
      const fd = openOwnFile(this.#path, 'truncate');
      try {
        const piece = randomBytes(64 * 1024);
        for (let at = 0; at < bytes; ) at += writeSync(fd, piece, 0, Math.min(piece.length, bytes - at));
        fsyncSync(fd);
      } finally {
        closeSync(fd);
      }
      this.#exists = true;
      this.#isOwed = false;
    } catch {
      deleteReserve(this.#path);
    }
  }

  /** Leaves a partial reserve when the store closes, because opening the store also requires space. */
  createPartial(freeBytes: number): void {
    const bytes = Math.min(this.#bytes, Math.floor(freeBytes * LEFT_SHARE));
    if (!this.#exists && bytes >= MIN_LEFT_BYTES) this.create(bytes);
  }

  /** Deletes the reserve and returns its space to the file system, because the disk is full. */
  delete(): void {
    this.#exists = false;
    this.#isOwed = true;
    deleteReserve(this.#path);
  }
}

export function reservePath(path: string): string {
  return `${path}.reserve`;
}

/** Deletes the reserve of a store that is not open. Returns false if there was none or it cannot be deleted. */
export function deleteReserve(path: string): boolean {
  try {
    const had = existsSync(path);
    rmSync(path, { force: true });
    return had;
  } catch {
    return false;
  }
}

/** Returns the size of a reserve: a share of the file system, within the margin of the bound. */
function reserveBytes(totalBytes: number, maxBytes: number): number {
  const share = totalBytes > 0 ? Math.floor(totalBytes / SHARE_OF_DISK) : MAX_BYTES;
  const bytes = Math.min(MAX_BYTES, Math.max(MIN_BYTES, share));
  return maxBytes > 0 ? Math.min(bytes, Math.floor(maxBytes / 8)) : bytes;
}

/** Codes for a full disk from SQLite, its shared memory, the file system and the inbox. */
const FULL_CODES = new Set(['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE', 'ENOSPC', 'EDQUOT', 'inbox.disk_full']);

export function isDiskFull(error: unknown): boolean {
  return FULL_CODES.has(codeOf(error) ?? '');
}
