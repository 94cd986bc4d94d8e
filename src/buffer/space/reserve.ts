/**
 * A file that holds some space, so that on a full disk what makes room can still be written: deleting takes space
 * before it gives any. It holds chance, not zeros, so that no file system stores it in less than it takes.
 *
 *   standing ──► the disk is full: given up, and owed ──► there is room: standing again
 *
 * While it is owed no new values are taken in, because they would eat the room that deleting and settling need. Owed it
 * is too where a store opens on a disk that has no room for it. A disk that is not full and refuses the file for another
 * reason owes nothing: a store without a reserve lacks a comfort, no more. A crash leaves the file or a part of it;
 * opening counts what stands there.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, fsyncSync, rmSync, statSync, writeSync } from 'node:fs';
import { codeOf } from '../../base/errors.ts';
import { openOwnFile } from '../../base/own-file.ts';
import type { BufferBounds, DiskUse } from './bounds.ts';

/** A WAL up to its checkpoint, and as much again for what one commit deletes. */
const MAX_BYTES = 2 * 1024 * 1024;
const MIN_BYTES = 256 * 1024;
/** On a small file system no more than this share of it: 1 MB of 16. */
const SHARE_OF_DISK = 16;
/** What must be free for it, as a multiple: the WAL grows into the rest, and with less the disk would be full again at once. */
const ROOM_FACTOR = 2;
/** Of what is free when a store closes without a reserve; less than the fewest is of no use to the next start. */
const LEFT_SHARE = 0.9;
const MIN_LEFT_BYTES = 64 * 1024;
/** A part that a crash left helps as far as it goes. */
const USEFUL_PART = 0.5;

export class Reserve {
  readonly #path: string;
  readonly #bounds: BufferBounds;
  #bytes = MAX_BYTES;
  #isThere = false;
  #isOwed = false;

  constructor(path: string, bounds: BufferBounds) {
    this.#path = reservePath(path);
    this.#bounds = bounds;
  }

  /** How large it is, or is to be, on this file system. */
  get bytes(): number {
    return this.#bytes;
  }

  get isThere(): boolean {
    return this.#isThere;
  }

  /** It does not stand, because the disk was full, and there has been no room for it since. */
  get isOwed(): boolean {
    return this.#isOwed;
  }

  /** Counts what stands from before, and makes the file where it is missing and there is room. */
  open(disk: DiskUse): void {
    this.#bytes = reserveBytes(disk.totalBytes, this.#bounds.maxBytes);
    const found = statSync(this.#path, { throwIfNoEntry: false })?.size ?? 0;
    this.#isThere = found >= this.#bytes * USEFUL_PART && found <= MAX_BYTES;
    if (!this.#isThere && this.hasRoom(disk.freeBytes)) this.make();
    // A file system that does not say how large it is does not say what is free either.
    this.#isOwed = !this.#isThere && disk.totalBytes > 0 && !this.hasRoom(disk.freeBytes);
  }

  /** The bound is another: what stands is as good; the next one has the new size. */
  resize(disk: DiskUse): void {
    this.#bytes = reserveBytes(disk.totalBytes, this.#bounds.maxBytes);
  }

  hasRoom(freeBytes: number): boolean {
    return freeBytes >= this.#bytes * ROOM_FACTOR;
  }

  /** Makes the file; where it does not fit after all nothing of it stays. Never throws. */
  make(bytes = this.#bytes): void {
    try {
      const fd = openOwnFile(this.#path, 'truncate');
      try {
        const piece = randomBytes(64 * 1024);
        for (let at = 0; at < bytes; ) at += writeSync(fd, piece, 0, Math.min(piece.length, bytes - at));
        fsyncSync(fd);
      } finally {
        closeSync(fd);
      }
      this.#isThere = true;
      this.#isOwed = false;
    } catch {
      giveUpReserve(this.#path);
    }
  }

  /**
   * The store is closed, and its WAL gave some room: a part of the reserve is better than none, because opening takes space
   * too, and others may take what is left.
   */
  leave(freeBytes: number): void {
    const bytes = Math.min(this.#bytes, Math.floor(freeBytes * LEFT_SHARE));
    if (!this.#isThere && bytes >= MIN_LEFT_BYTES) this.make(bytes);
  }

  /** The disk is full: gives the space back to the file system. */
  giveUp(): void {
    this.#isThere = false;
    this.#isOwed = true;
    giveUpReserve(this.#path);
  }
}

export function reservePath(path: string): string {
  return `${path}.reserve`;
}

/** Takes a reserve away whose store is not open. `false` where there is none, or it cannot be. */
export function giveUpReserve(path: string): boolean {
  try {
    const had = existsSync(path);
    rmSync(path, { force: true });
    return had;
  } catch {
    return false;
  }
}

/** How large a reserve is on a file system of that size; within the room for one more commit that the bound keeps. */
function reserveBytes(totalBytes: number, maxBytes: number): number {
  const share = totalBytes > 0 ? Math.floor(totalBytes / SHARE_OF_DISK) : MAX_BYTES;
  const bytes = Math.min(MAX_BYTES, Math.max(MIN_BYTES, share));
  return maxBytes > 0 ? Math.min(bytes, Math.floor(maxBytes / 8)) : bytes;
}

/** The disk is full, as SQLite, its shared memory, the file system and the inbox put it. */
const FULL_CODES = new Set(['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE', 'ENOSPC', 'EDQUOT', 'inbox.disk_full']);

export function saysFull(error: unknown): boolean {
  return FULL_CODES.has(codeOf(error) ?? '');
}
