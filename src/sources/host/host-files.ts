import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Space } from './file-systems.ts';

/**
 * One look at the machine through /proc and /sys. Each file is read once a look, and only when a reading wants it; numbers are
 * as the kernel gives them, in bytes, seconds and degrees.
 */
export class HostLook {
  readonly #root: string;
  readonly #space: (path: string) => Promise<Space>;
  readonly #seen = new Map<string, Promise<unknown>>();
  /** When it was taken, monotonic. */
  readonly atMs: number;

  /** `root` is `/`, or the folder of a test. `space` reads the file system that contains a path. */
  constructor(root: string, atMs: number, space: (path: string) => Promise<Space>) {
    this.#root = root;
    this.atMs = atMs;
    this.#space = space;
  }

  /** Means over 1, 5 and 15 minutes. */
  load(): Promise<number[]> {
    return this.#once('load', async () => numbersOf(await this.#read('proc/loadavg')).slice(0, 3));
  }

  uptime(): Promise<number> {
    return this.#once('uptime', async () => numbersOf(await this.#read('proc/uptime'))[0] ?? Number.NaN);
  }

  /** Bytes by the names of /proc/meminfo. */
  memory(): Promise<Map<string, number>> {
    return this.#once('memory', async () => {
      const found = new Map<string, number>();
      for (const [, name, kibibytes] of (await this.#read('proc/meminfo')).matchAll(/^(\w+):\s+(\d+) kB$/gm)) {
        found.set(name!, Number(kibibytes) * 1024);
      }
      return found;
    });
  }

  /** Ticks of all processors since the start: idle (waiting for disks counts as idle) and all. */
  processors(): Promise<{ idle: number; all: number }> {
    return this.#once('processors', async () => {
      const [line = ''] = (await this.#read('proc/stat')).split('\n', 1);
      // user nice system idle iowait irq softirq steal; guest time is within user time already.
      const ticks = numbersOf(line.replace(/^cpu/, '')).slice(0, 8);
      if (ticks.length < 5) throw new Error('/proc/stat has no line of processors');
      return { idle: ticks[3]! + ticks[4]!, all: ticks.reduce((sum, each) => sum + each, 0) };
    });
  }

  /** Bytes since the start, by interface. */
  network(): Promise<Map<string, { rx: number; tx: number }>> {
    return this.#once('network', async () => {
      const found = new Map<string, { rx: number; tx: number }>();
      for (const line of (await this.#read('proc/net/dev')).split('\n').slice(2)) {
        const colon = line.lastIndexOf(':');
        if (colon < 0) continue;
        const counters = numbersOf(line.slice(colon + 1));
        found.set(line.slice(0, colon).trim(), { rx: counters[0]!, tx: counters[8]! });
      }
      return found;
    });
  }

  disk(path: string): Promise<Space> {
    return this.#once(`disk ${path}`, () => this.#space(path));
  }

  /** Degrees Celsius of each thermal zone that answers, by number. */
  zones(): Promise<{ number: string; type: string; celsius: number }[]> {
    return this.#once('zones', async () => {
      const folder = 'sys/class/thermal';
      const names = await readdir(join(this.#root, folder)).catch(() => []);
      const zones = names.flatMap((name) => /^thermal_zone(\d+)$/.exec(name)?.[1] ?? []);
      const read = async (number: string) => {
        const type = (await this.#read(`${folder}/thermal_zone${number}/type`)).trim();
        const [milli = Number.NaN] = numbersOf(await this.#read(`${folder}/thermal_zone${number}/temp`));
        return { number, type, celsius: milli / 1000 };
      };
      // A zone whose sensor sleeps answers EAGAIN or ENODATA: the others still count.
      const settled = await Promise.allSettled(zones.map(read));
      return settled.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    });
  }

  #read(path: string): Promise<string> {
    return readFile(join(this.#root, path), 'latin1');
  }

  #once<T>(name: string, look: () => Promise<T>): Promise<T> {
    const before = this.#seen.get(name) as Promise<T> | undefined;
    if (before !== undefined) return before;
    const now = look();
    this.#seen.set(name, now);
    return now;
  }
}

function numbersOf(text: string): number[] {
  return (text.match(/-?\d+(\.\d+)?/g) ?? []).map(Number);
}
