import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const TOOLS = { env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` }, stdio: 'pipe' } as const;

/** Small file system in a file, for tests that fill it or make it read-only. Mounting requires root. */
export class SmallDisk {
  readonly folder: string;
  readonly mount: string;

  constructor(megabytes: number) {
    this.folder = mkdtempSync(join(tmpdir(), 'tagferry-full-'));
    this.mount = join(this.folder, 'disk');
    mkdirSync(this.mount);
    const image = join(this.folder, 'disk.img');
    try {
      execFileSync('truncate', ['-s', `${megabytes}M`, image], TOOLS);
      execFileSync('mkfs.ext4', ['-q', '-m', '0', image], TOOLS);
      execFileSync('mount', ['-o', 'loop', image, this.mount], TOOLS);
    } catch (error) {
      throw new Error(
        `the test of a small disk mounts one: it needs root, e2fsprogs and loop devices (${String(error)})`,
      );
    }
  }

  get state(): string {
    return join(this.mount, 'state');
  }

  get freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.mount);
    return bavail * bsize;
  }

  /** Fills the disk with another file, except for the given number of bytes. */
  fill(leaveBytes = 0): void {
    const file = openSync(join(this.mount, 'ballast'), 'a');
    for (const size of [1 << 20, 1 << 16, 1 << 12, 1 << 10]) {
      const piece = Buffer.alloc(size, 1);
      try {
        while (leaveBytes === 0 || this.freeBytes > leaveBytes) writeSync(file, piece);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    }
    closeSync(file);
  }

  /** Deletes that file. */
  free(): void {
    rmSync(join(this.mount, 'ballast'));
  }

  remount(mode: 'ro' | 'rw'): void {
    execFileSync('mount', ['-o', `remount,${mode}`, this.mount], TOOLS);
  }

  /** Corrupts the inode of a file, or repairs it as fsck does. Until then, every access fails with EUCLEAN. */
  spoilInode(name: string, isSpoiled: boolean): void {
    const image = join(this.folder, 'disk.img');
    // In this file system, 32 bytes belong to an inode beyond its first 128.
    const field = `set_inode_field /${name} extra_isize ${isSpoiled ? 9_999 : 32}`;
    execFileSync('umount', [this.mount], TOOLS);
    execFileSync('debugfs', ['-w', '-R', field, image], TOOLS);
    execFileSync('mount', ['-o', 'loop', image, this.mount], TOOLS);
  }

  dispose(): void {
    execFileSync('umount', ['-l', this.mount], TOOLS);
    rmSync(this.folder, { recursive: true, force: true });
  }
}
