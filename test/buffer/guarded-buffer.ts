import { existsSync, statSync } from 'node:fs';
import { type Database, openDatabase } from '../../src/base/database.ts';
import { ReadLeases } from '../../src/buffer/read-leases.ts';
import type { BufferBounds } from '../../src/buffer/space/bounds.ts';
import { DiskSpaceGuard } from '../../src/buffer/space/disk-space-guard.ts';
import { prepareTables } from '../../src/buffer/tables.ts';
import { fileSystem, has } from './pretended-disk.ts';

export const KiB = 1024;
export const MiB = 1024 * KiB;
/** Twice the reserve of a large disk: with less it is not made. */
export const ROOM = 4 * MiB;
export const NARROW = 16 * MiB;

/** A buffer on a disk with room, until a test says else; and guards of that disk. */
export class GuardedBuffer {
  readonly path: string;
  readonly database: Database;
  readonly readers = new ReadLeases();

  constructor(path: string) {
    Object.assign(fileSystem, { freeBytes: 1e9, totalBytes: 1e12, fails: false });
    this.path = path;
    this.database = openDatabase(path);
    prepareTables(this.database);
    this.database.exec('CREATE TABLE t (x)');
  }

  guardOf(bounds: Partial<BufferBounds> = {}): DiskSpaceGuard {
    const all: BufferBounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest', ...bounds };
    return new DiskSpaceGuard(this.database, this.path, all, this.readers);
  }

  /** One whose disk was full, and has so much free since. */
  shortGuard(freeBytes: number, bounds: Partial<BufferBounds> = {}): DiskSpaceGuard {
    const guard = this.guardOf(bounds);
    guard.makeRoom();
    has(freeBytes);
    guard.lookNow(0);
    return guard;
  }

  write(bytes: number): void {
    this.database.exec(`INSERT INTO t VALUES (zeroblob(${bytes}))`);
  }

  /** Pages that hold nothing, of some bytes. */
  freePages(bytes: number): void {
    this.write(bytes);
    this.database.exec('DELETE FROM t');
  }

  freeCount(): number {
    return this.database.pragma('freelist_count', { simple: true }) as number;
  }

  walBytes(): number {
    return statSync(`${this.path}-wal`).size;
  }

  hasReserve(): boolean {
    return existsSync(`${this.path}.reserve`);
  }

  emptyWal(): void {
    this.database.pragma('wal_checkpoint(TRUNCATE)');
  }
}
