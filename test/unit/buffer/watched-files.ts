import type * as files from 'node:fs';

/** Replacement of node:fs for `vi.mock` that records which files are open and which were synced. */
export function watchedFiles(real: typeof files) {
  const open = new Map<number, string>();
  const synced: string[] = [];
  return {
    ...real,
    openSync: (...args: Parameters<typeof real.openSync>) => {
      const fd = real.openSync(...args);
      open.set(fd, String(args[0]));
      return fd;
    },
    closeSync: (fd: number) => {
      real.closeSync(fd);
      open.delete(fd);
    },
    fsyncSync: (fd: number) => {
      synced.push(open.get(fd) ?? 'unknown');
      real.fsyncSync(fd);
    },
    watched: { open, synced },
  };
}
