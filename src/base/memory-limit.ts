/**
 * Determines the memory limit of the process: the smallest limit of its control group, the parent groups and the
 * machine. `MemoryHigh` counts as a limit, because the kernel throttles a process above it.
 *
 * Node's `process.constrainedMemory()` ignores parent groups in some versions and cannot be tested with another root
 * folder.
 */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { dirname, join } from 'node:path';

export interface MemoryPlace {
  /** Folder that contains `proc` and `sys`. Default: `/`. */
  root?: string;
  /** The machine's memory. Default: as reported by the system. */
  totalBytes?: number;
}

/** Mount points of control groups version 2, alone or in addition to version 1. */
const V2_MOUNTS = ['sys/fs/cgroup', 'sys/fs/cgroup/unified'];
const V2_FILES = ['memory.max', 'memory.high'];
const V1_MOUNTS = ['sys/fs/cgroup/memory'];
const V1_FILES = ['memory.limit_in_bytes'];

/**
 * Returns the limit in bytes. Reads it on each call, because `systemctl set-property` can change it at runtime. Never
 * throws.
 */
export function memoryLimitBytes({ root = '/', totalBytes = totalmem() }: MemoryPlace = {}): number {
  let limit = totalBytes;
  for (const line of readText(join(root, 'proc/self/cgroup')).split('\n')) {
    const [number, controllers, path] = splitInThree(line);
    if (path === undefined) continue;
    const isV2 = number === '0' && controllers === '';
    if (!isV2 && !controllers!.split(',').includes('memory')) continue;
    const mounts = isV2 ? V2_MOUNTS : V1_MOUNTS;
    for (const mount of mounts) limit = Math.min(limit, limitOf(join(root, mount), path, isV2 ? V2_FILES : V1_FILES));
  }
  return limit;
}

/** Splits `4:memory:/a:b` into three fields. The path may contain colons. */
function splitInThree(line: string): (string | undefined)[] {
  return line.match(/^(\d+):([^:]*):(.*)$/)?.slice(1) ?? [];
}

/**
 * Returns the smallest limit from the group up to the mount. In a container, the path may be a path on the host, so
 * missing folders are skipped and the mount itself is always checked.
 */
function limitOf(mount: string, path: string, files: readonly string[]): number {
  let limit = Number.POSITIVE_INFINITY;
  for (let group = join('/', path); ; group = dirname(group)) {
    for (const file of files) limit = Math.min(limit, boundIn(join(mount, group, file)));
    if (group === '/') return limit;
  }
}

/** `max`, a missing file and an invalid number mean no limit. */
function boundIn(file: string): number {
  const text = readText(file).trim();
  return /^\d+$/.test(text) && Number(text) > 0 ? Number(text) : Number.POSITIVE_INFINITY;
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
