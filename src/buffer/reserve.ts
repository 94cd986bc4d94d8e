import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, openSync, rmSync, statSync, writeSync } from 'node:fs';
import { codeOf } from '../errors.ts';
import type { BufferBounds } from './bounds.ts';

/** Some commits' worth of WAL: what settling and deleting need until SQLite has pages to use again. */
const RESERVE_BYTES = 2 * 1024 * 1024;
/** So much more must be free than the reserve takes before it is made (again). */
const ROOM_FACTOR = 4;

/**
 * A file that holds some space, so that on a full disk what makes room can still be written: deleting takes space
 * before it gives any. It is given up when the disk is full and made again when there is room. It holds chance, not
 * zeros, so that no file system stores it in less than it takes.
 */
export class Reserve {
  readonly #path: string;
  readonly #bytes: number;
  #isThere = false;

  constructor(path: string, bounds: BufferBounds) {
    this.#path = `${path}.reserve`;
    // Within the room for one more commit that the bound keeps.
    this.#bytes = bounds.maxBytes > 0 ? Math.min(RESERVE_BYTES, Math.floor(bounds.maxBytes / 8)) : RESERVE_BYTES;
  }

  /** Makes the file where it is missing and there is room. Never throws: a store without it only lacks a comfort. */
  ensure(freeBytes: number): void {
    if (this.#isThere || freeBytes < this.#bytes * ROOM_FACTOR) return;
    if (statSync(this.#path, { throwIfNoEntry: false })?.size !== this.#bytes) this.#make();
    else this.#isThere = true;
  }

  #make(): void {
    try {
      const fd = openSync(this.#path, 'w', 0o600);
      try {
        const piece = randomBytes(64 * 1024);
        for (let at = 0; at < this.#bytes; ) at += writeSync(fd, piece, 0, Math.min(piece.length, this.#bytes - at));
        fsyncSync(fd);
      } finally {
        closeSync(fd);
      }
      this.#isThere = true;
    } catch {
      this.giveUp();
    }
  }

  /** Gives the space back to the file system. `false` where there was none to give. */
  giveUp(): boolean {
    const had = this.#isThere;
    this.#isThere = false;
    rmSync(this.#path, { force: true });
    return had;
  }
}

/** Whether an error says that the disk is full, as SQLite and its shared memory put it. */
export function saysFull(error: unknown): boolean {
  const code = codeOf(error);
  return code === 'SQLITE_FULL' || code === 'SQLITE_IOERR_SHMSIZE' || code === 'ENOSPC';
}
