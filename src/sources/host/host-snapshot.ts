/** Readings of the gateway, listed in contract/host-readings.ts. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TagferryError } from '../../base/errors.ts';
import { parseHostReading } from '../../contract/host-readings.ts';
import type { Space } from './file-systems.ts';

/**
 * Snapshot of the gateway's state, read from /proc and /sys. Each file is read at most once, and only if a reading
 * requires it. Numbers are in the units of the kernel: bytes, seconds and degrees Celsius.
 */
export class HostSnapshot {
  readonly #root: string;
  readonly #space: (path: string) => Promise<Space>;
  readonly #parts = new Map<string, Promise<unknown>>();
  /** Monotonic time of the snapshot. */
  readonly atMs: number;

  /** `root` is `/`, or a test folder. `space` reads the usage of the file system that contains a path. */
  constructor(root: string, atMs: number, space: (path: string) => Promise<Space>) {
    this.#root = root;
    this.atMs = atMs;
    this.#space = space;
  }

  /** Load averages over 1, 5 and 15 minutes. */
  load(): Promise<number[]> {
    return this.#once('load', async () => numbersOf(await this.#read('proc/loadavg')).slice(0, 3));
  }

  uptime(): Promise<number> {
    return this.#once('uptime', async () => numbersOf(await this.#read('proc/uptime'))[0] ?? Number.NaN);
  }

  /** Bytes by field name of /proc/meminfo. */
  memory(): Promise<Map<string, number>> {
    return this.#once('memory', async () => {
      const found = new Map<string, number>();
      for (const [, name, kibibytes] of (await this.#read('proc/meminfo')).matchAll(/^(\w+):\s+(\d+) kB$/gm)) {
        found.set(name!, Number(kibibytes) * 1024);
      }
      return found;
    });
  }

  /** Ticks of all processors since boot: idle ticks (including I/O wait) and total ticks. */
  processors(): Promise<{ idle: number; all: number }> {
    return this.#once('processors', async () => {
      const [line = ''] = (await this.#read('proc/stat')).split('\n', 1);
      // user nice system idle iowait irq softirq steal; user time includes guest time.
      const ticks = numbersOf(line.replace(/^cpu/, '')).slice(0, 8);
      if (ticks.length < 5) throw new Error('/proc/stat has no cpu line');
      return { idle: ticks[3]! + ticks[4]!, all: ticks.reduce((sum, each) => sum + each, 0) };
    });
  }

  /** Bytes transferred since boot, by interface. */
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

  /** Temperatures of the readable thermal zones in degrees Celsius, by zone number. */
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
      // An inactive sensor returns EAGAIN or ENODATA; the other zones are still valid.
      const settled = await Promise.allSettled(zones.map(read));
      return settled.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    });
  }

  #read(path: string): Promise<string> {
    return readFile(join(this.#root, path), 'latin1');
  }

  #once<T>(name: string, read: () => Promise<T>): Promise<T> {
    const known = this.#parts.get(name) as Promise<T> | undefined;
    const part = known ?? read();
    this.#parts.set(name, part);
    return part;
  }
}

function numbersOf(text: string): number[] {
  return (text.match(/-?\d+(\.\d+)?/g) ?? []).map(Number);
}

/** Returns `undefined` if a rate requires a second snapshot. Rejects if the gateway does not provide the reading. */
export async function readHost(
  text: string,
  snapshot: HostSnapshot,
  previous: HostSnapshot | undefined,
): Promise<number | undefined> {
  const parsed = parseHostReading(text);
  if (parsed === undefined) throw new TagferryError(`unknown reading ${text}`, { code: 'host.unknown_reading' });
  const value = await read(parsed.reading.name, parsed.argument, snapshot, previous);
  if (value !== undefined && !Number.isFinite(value)) {
    throw new TagferryError(`${text} is not available on this machine`, { code: 'host.missing_reading' });
  }
  return value;
}

async function read(
  name: string,
  argument: string | undefined,
  snapshot: HostSnapshot,
  previous: HostSnapshot | undefined,
): Promise<number | undefined> {
  const [family, part = ''] = name.split('_');
  switch (family) {
    case 'load1':
    case 'load5':
    case 'load15':
      return (await snapshot.load())[['load1', 'load5', 'load15'].indexOf(family)] ?? Number.NaN;
    case 'cpu':
      // Also read in the first snapshot, because the rate in the next snapshot requires it.
      await snapshot.processors();
      return previous && (await cpuShare(snapshot, previous));
    case 'memory':
      return memoryPart(part, await snapshot.memory());
    case 'disk':
      return diskPart(part, await snapshot.disk(argument ?? '/'));
    case 'network':
      await snapshot.network();
      return previous && (await bytesPerSecond(part as 'rx' | 'tx', argument, snapshot, previous));
    case 'temperature':
      return celsius(argument, await snapshot.zones());
    case 'uptime':
      return await snapshot.uptime();
    case 'agent':
      return process.memoryUsage.rss();
    default:
      return Number.NaN;
  }
}

async function cpuShare(snapshot: HostSnapshot, previous: HostSnapshot): Promise<number | undefined> {
  const [now, before] = await Promise.all([snapshot.processors(), previous.processors()]);
  const all = now.all - before.all;
  if (all <= 0) return undefined;
  const busy = 1 - (now.idle - before.idle) / all;
  return rounded(Math.min(1, Math.max(0, busy)), 4);
}

function memoryPart(part: string, memory: ReadonlyMap<string, number>): number {
  const total = memory.get('MemTotal') ?? Number.NaN;
  const available = memory.get('MemAvailable') ?? Number.NaN;
  if (part === 'total') return total;
  if (part === 'available') return available;
  return part === 'used' ? total - available : rounded((total - available) / total, 4);
}

function diskPart(part: string, disk: { used: number; free: number }): number {
  if (part === 'used') return disk.used;
  if (part === 'free') return disk.free;
  // As in `df`, space reserved for root counts as neither used nor free.
  return rounded(disk.used / (disk.used + disk.free), 4);
}

async function bytesPerSecond(
  part: 'rx' | 'tx',
  name: string | undefined,
  snapshot: HostSnapshot,
  previous: HostSnapshot,
): Promise<number | undefined> {
  const [now, before] = await Promise.all([snapshot.network(), previous.network()]);
  const sum = (counters: Map<string, { rx: number; tx: number }>) => {
    if (name !== undefined) return counters.get(name)?.[part] ?? Number.NaN;
    return [...counters].reduce((all, [one, counter]) => (one === 'lo' ? all : all + counter[part]), 0);
  };
  const bytes = sum(now) - sum(before);
  const seconds = (snapshot.atMs - previous.atMs) / 1000;
  if (Number.isNaN(sum(now))) return Number.NaN;
  return bytes >= 0 && seconds > 0 ? rounded(bytes / seconds, 1) : undefined;
}

function celsius(zone: string | undefined, zones: { number: string; type: string; celsius: number }[]): number {
  const wanted = zone === undefined ? zones : zones.filter((each) => each.number === zone || each.type === zone);
  return wanted.length === 0 ? Number.NaN : Math.max(...wanted.map((each) => each.celsius));
}

/** Rounds a value, because insignificant digits waste space in the buffer and on the wire. */
function rounded(value: number, decimals: number): number {
  const scale = 10 ** decimals;
  return Math.round(value * scale) / scale;
}
