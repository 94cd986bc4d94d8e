/** The readings of the machine: contract/host-readings.ts names them, `host-files.ts` looks. */
import { TagferryError } from '../../base/errors.ts';
import { parseHostReading } from '../../contract/host-readings.ts';
import type { HostLook } from './host-files.ts';

/** `undefined`: not yet. Rejects where the machine does not give it. */
export async function readOne(text: string, look: HostLook, last: HostLook | undefined): Promise<number | undefined> {
  const parsed = parseHostReading(text);
  if (parsed === undefined) throw new TagferryError(`no reading is called ${text}`, { code: 'host.unknown_reading' });
  const value = await read(parsed.reading.name, parsed.argument, look, last);
  if (value !== undefined && !Number.isFinite(value)) {
    throw new TagferryError(`this machine does not give ${text}`, { code: 'host.missing_reading' });
  }
  return value;
}

async function read(
  name: string,
  argument: string | undefined,
  look: HostLook,
  last: HostLook | undefined,
): Promise<number | undefined> {
  const [family, part = ''] = name.split('_');
  switch (family) {
    case 'load1':
    case 'load5':
    case 'load15':
      return (await look.load())[['load1', 'load5', 'load15'].indexOf(family)] ?? Number.NaN;
    case 'cpu':
      // Looked at in the first look too: the next one needs it.
      await look.processors();
      return last && (await cpuShare(look, last));
    case 'memory':
      return memoryPart(part, await look.memory());
    case 'disk':
      return diskPart(part, await look.disk(argument ?? '/'));
    case 'network':
      await look.network();
      return last && (await bytesPerSecond(part as 'rx' | 'tx', argument, look, last));
    case 'temperature':
      return celsius(argument, await look.zones());
    case 'uptime':
      return await look.uptime();
    case 'agent':
      return process.memoryUsage.rss();
    default:
      return Number.NaN;
  }
}

async function cpuShare(look: HostLook, last: HostLook): Promise<number | undefined> {
  const [now, before] = await Promise.all([look.processors(), last.processors()]);
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
  // As df shows it: what only root may still write counts as neither.
  return rounded(disk.used / (disk.used + disk.free), 4);
}

async function bytesPerSecond(
  part: 'rx' | 'tx',
  name: string | undefined,
  look: HostLook,
  last: HostLook,
): Promise<number | undefined> {
  const [now, before] = await Promise.all([look.network(), last.network()]);
  const sum = (counters: Map<string, { rx: number; tx: number }>) => {
    if (name !== undefined) return counters.get(name)?.[part] ?? Number.NaN;
    let all = 0;
    for (const [each, counter] of counters) if (each !== 'lo') all += counter[part];
    return all;
  };
  const bytes = sum(now) - sum(before);
  const seconds = (look.atMs - last.atMs) / 1000;
  if (Number.isNaN(sum(now))) return Number.NaN;
  return bytes >= 0 && seconds > 0 ? rounded(bytes / seconds, 1) : undefined;
}

function celsius(zone: string | undefined, zones: { number: string; type: string; celsius: number }[]): number {
  const wanted = zone === undefined ? zones : zones.filter((each) => each.number === zone || each.type === zone);
  return wanted.length === 0 ? Number.NaN : Math.max(...wanted.map((each) => each.celsius));
}

/** Digits that mean nothing cost bytes in the buffer and on the wire. */
function rounded(value: number, decimals: number): number {
  const scale = 10 ** decimals;
  return Math.round(value * scale) / scale;
}
