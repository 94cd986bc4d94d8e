import type * as files from 'node:fs';

/** What a test says of the file system: what is free of it, and so many writes that it still takes. */
export const fileSystem = { freeBytes: 0, totalBytes: 0, fails: false, writes: Number.POSITIVE_INFINITY };

export const has = (freeBytes: number, totalBytes = 1e12) => Object.assign(fileSystem, { freeBytes, totalBytes });

/** What stands in the place of `node:fs`. Nothing here imports it, for it would wait for itself. */
export function pretended(real: typeof files) {
  const statfsSync = () => {
    if (fileSystem.fails) throw Object.assign(new Error('EIO: i/o error, statfs'), { code: 'EIO' });
    const bsize = 2;
    return { bavail: fileSystem.freeBytes / bsize, bsize, blocks: fileSystem.totalBytes / bsize };
  };
  const writeSync = (fd: number, piece: Buffer, offset: number, length: number) => {
    if (fileSystem.writes-- <= 0) throw Object.assign(new Error('ENOSPC: no space left, write'), { code: 'ENOSPC' });
    return real.writeSync(fd, piece, offset, length);
  };
  return { ...real, statfsSync, writeSync };
}
