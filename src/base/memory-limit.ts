/**
 * How much memory this process may take: the smallest of the bounds that its control group and those above it have, and of
 * the machine's memory. `MemoryHigh` counts as `MemoryMax` does: beyond it the kernel slows the process down to a crawl.
 *
 * Node's own `process.constrainedMemory()` passes over groups above its own on some versions of its library, and
 * nobody can give it a folder to look into.
 */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import type { Clock } from './clock.ts';

export interface MemoryPlace {
  /** Where `proc` and `sys` are found; `/` unless told. */
  root?: string;
  /** The machine's memory; as the system tells unless told. */
  totalBytes?: number;
}

/** Where version 2 of the control groups is mounted: alone, or beside version 1. */
const V2_MOUNTS = ['sys/fs/cgroup', 'sys/fs/cgroup/unified'];
const V2_FILES = ['memory.max', 'memory.high'];
const V1_MOUNTS = ['sys/fs/cgroup/memory'];
const V1_FILES = ['memory.limit_in_bytes'];

/** In bytes. Asked anew each time: `systemctl set-property` changes it while the agent runs. Never throws. */
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

/** `4:memory:/a:b` has three fields: a path may hold colons. */
function splitInThree(line: string): (string | undefined)[] {
  return line.match(/^(\d+):([^:]*):(.*)$/)?.slice(1) ?? [];
}

/**
 * The smallest bound from the group up to the mount. A container may see the path of its group as the machine names it while
 * its mount begins with that group: folders that are not there are passed over, and the mount itself is always looked at.
 */
function limitOf(mount: string, path: string, files: readonly string[]): number {
  let limit = Number.POSITIVE_INFINITY;
  for (let group = join('/', path); ; group = dirname(group)) {
    for (const file of files) limit = Math.min(limit, boundIn(join(mount, group, file)));
    if (group === '/') return limit;
  }
}

/** `max`, an absent file and what is no number are no bound. */
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

const LOOK_EVERY_MS = 10_000;

/** The same for who asks with every commit: a dozen files of the kernel are read, on the main thread, and so only now and then. */
export class MemoryLimit {
  readonly #clock: Clock;
  readonly #place: MemoryPlace;
  #bytes = 0;
  #againMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, place: MemoryPlace = {}) {
    this.#clock = clock;
    this.#place = place;
  }

  /** As it was ten seconds ago at most. */
  bytes(): number {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs >= this.#againMs) {
      this.#bytes = memoryLimitBytes(this.#place);
      this.#againMs = nowMs + LOOK_EVERY_MS;
    }
    return this.#bytes;
  }
}
