import { readdir, readFile } from 'node:fs/promises';
import { freemem, loadavg, totalmem, uptime } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '../../base/errors.ts';
import { parseHostReading } from '../../contract/host-readings.ts';
import type { Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import { Poller } from '../poller.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { FileSystems } from './file-systems.ts';

export type HostSpec = true;

export interface HostValue {
  reading: string;
}

const THERMAL = 'sys/class/thermal';
/** Plausible temperatures, in °C. A zone without a sensor can return any number, such as -274 or 3,892,314. */
const COLDEST = -100;
const HOTTEST = 250;

/**
 * Reads values of the gateway itself (see contract/host-readings.ts) from /proc and /sys. Rates require two readings, so
 * the first one has no value. A counter that has decreased, because its interface was recreated, begins again.
 */
export class HostSource implements RunningSource {
  readonly #context: SourceContext<HostSpec, HostValue>;
  readonly #trouble: TroubleLog;
  readonly #root: string;
  readonly #fileSystems: FileSystems;
  /** One poller per path of `disk` readings and one for all others, so that an unresponsive share does not delay them. */
  readonly #pollers: Poller<HostValue>[];
  /** Counters of the previous reading: counted events by interface, and the time or all events since boot. */
  readonly #counters = new WeakMap<Point<HostValue>, { counts: ReadonlyMap<string, number>; all: number }>();

  /** `root`: file system root, replaced in tests. */
  constructor(context: SourceContext<HostSpec, HostValue>, root = '/') {
    this.#context = context;
    const { points, clock, log } = context;
    this.#trouble = new TroubleLog(log, clock, 'values');
    this.#root = root;
    this.#fileSystems = new FileSystems();
    const pathOf = ({ spec }: Point<HostValue>) => {
      const { reading, argument } = parseHostReading(spec.reading)!;
      return reading.argument?.what === 'path' ? (argument ?? '/') : undefined;
    };
    const read = (due: readonly Point<HostValue>[], signal: AbortSignal) => this.#read(due, signal);
    this.#pollers = [...Map.groupBy(points, pathOf).values()].map(
      (group) => new Poller({ ...context, points: group, read }),
    );
  }

  start(): void {
    for (const poller of this.#pollers) poller.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#pollers.map((poller) => poller.stop()));
  }

  /** Reads all points concurrently. Failures are logged. */
  async #read(points: readonly Point<HostValue>[], signal: AbortSignal): Promise<Reading[]> {
    const readings = await Promise.all(points.map((point) => this.#readPoint(point, signal)));
    return readings.filter((reading) => reading !== undefined);
  }

  async #readPoint(point: Point<HostValue>, signal: AbortSignal): Promise<Reading | undefined> {
    const { reading } = point.spec;
    const fields = { value: point.name, reading };
    try {
      const raw = await this.#valueOf(point, signal);
      if (raw !== undefined && !Number.isFinite(raw)) throw new Error(`${reading} is not available on this machine`);
      this.#trouble.recovered('host.unreadable', fields, 'reading restored', point.name);
      return raw === undefined ? undefined : { point, raw };
    } catch (error) {
      if (signal.aborted) return undefined;
      this.#context.status.errors++;
      const trouble = { event: 'host.unreadable', ...fields, error: messageOf(error) };
      this.#trouble.report(trouble, 'failed to read a value from the host', point.name);
      return { point, failure: messageOf(error) };
    }
  }

  /** Returns NaN if this machine does not provide the reading, and `undefined` if a rate requires a second one. */
  async #valueOf(point: Point<HostValue>, signal: AbortSignal): Promise<number | undefined> {
    const { reading, argument } = parseHostReading(point.spec.reading)!;
    const { name } = reading;
    const file = (path: string) => readFile(join(this.#root, path), 'latin1');
    switch (name.split('_')[0]) {
      case 'load1':
      case 'load5':
      case 'load15':
        return loadavg()[['load1', 'load5', 'load15'].indexOf(name)];
      case 'uptime':
        return uptime();
      case 'agent':
        return process.memoryUsage.rss();
      case 'memory':
        return memoryValue(name);
      case 'cpu': {
        // user nice system idle iowait irq softirq steal; user time includes guest time.
        const ticks = numbersIn(/^cpu .*/.exec(await file('proc/stat'))?.[0] ?? '').slice(0, 8);
        const all = ticks.reduce((sum, each) => sum + each, 0);
        const busy = all - (ticks[3] ?? Number.NaN) - (ticks[4] ?? Number.NaN);
        return Number.isNaN(busy) ? busy : this.#rate(point, new Map([['cpu', busy]]), all, 4);
      }
      case 'network': {
        const bytes = networkBytes(name === 'network_rx' ? 0 : 8, argument, await file('proc/net/dev'));
        if (argument !== undefined && bytes.size === 0) return Number.NaN;
        return this.#rate(point, bytes, this.#context.clock.monotonicMs() / 1_000, 1);
      }
      case 'disk': {
        const path = argument ?? '/';
        const { used, free } = await this.#fileSystems.space(path, signal);
        // As in `df`, space reserved for root counts as neither used nor free.
        return { disk_used: used, disk_free: free }[name] ?? rounded(used / (used + free), 4);
      }
      default:
        return await celsius(argument, await readdir(join(this.#root, THERMAL)).catch(() => []), file);
    }
  }

  /**
   * Returns the increase of the counters since the previous reading, divided by that of `all`. A new or decreased
   * counter does not count; if there is no other, the rate is unknown.
   */
  #rate(
    point: Point<HostValue>,
    counts: ReadonlyMap<string, number>,
    all: number,
    decimals: number,
  ): number | undefined {
    const previous = this.#counters.get(point);
    this.#counters.set(point, { counts, all });
    if (previous === undefined || all <= previous.all) return undefined;
    const increases = [...counts]
      .map(([name, count]) => count - (previous.counts.get(name) ?? Number.POSITIVE_INFINITY))
      .filter((increase) => increase >= 0);
    if (increases.length === 0 && counts.size > 0) return undefined;
    return rounded(increases.reduce((sum, each) => sum + each, 0) / (all - previous.all), decimals);
  }
}

function memoryValue(name: string): number {
  // On Linux, `freemem` returns the available memory.
  const [total, available] = [totalmem(), freemem()];
  const used = total - available;
  return { memory_total: total, memory_available: available, memory_used: used }[name] ?? rounded(used / total, 4);
}

/** Returns the bytes transferred since boot by one interface, or by each one except loopback. */
function networkBytes(column: number, wanted: string | undefined, text: string): ReadonlyMap<string, number> {
  const counters = [...text.matchAll(/^\s*(\S+):(.*)$/gm)]
    .filter(([, name]) => (wanted === undefined ? name !== 'lo' : name === wanted))
    .map(([, name, numbers]) => [name!, numbersIn(numbers!)[column]!] as const);
  return new Map(counters);
}

/** Returns the temperature of a zone, by number or type, or of the hottest one. */
async function celsius(
  wanted: string | undefined,
  names: readonly string[],
  file: (path: string) => Promise<string>,
): Promise<number> {
  const zones = names.flatMap((name) => /^thermal_zone(\d+)$/.exec(name)?.[1] ?? []);
  const read = async (zone: string) => {
    const type = (await file(`${THERMAL}/thermal_zone${zone}/type`)).trim();
    const [milli = Number.NaN] = numbersIn(await file(`${THERMAL}/thermal_zone${zone}/temp`));
    const isWanted = wanted === undefined || wanted === zone || wanted === type;
    const degrees = milli / 1000;
    return isWanted && degrees >= COLDEST && degrees <= HOTTEST ? [degrees] : [];
  };
  // An inactive sensor returns EAGAIN or ENODATA; the other zones are still valid.
  const settled = await Promise.allSettled(zones.map(read));
  const found = settled.flatMap((each) => (each.status === 'fulfilled' ? each.value : []));
  return found.length === 0 ? Number.NaN : Math.max(...found);
}

function numbersIn(text: string): number[] {
  return (text.match(/-?\d+(\.\d+)?/g) ?? []).map(Number);
}

/** Rounds a value, because insignificant digits waste space in the buffer and on the wire. */
function rounded(value: number, decimals: number): number {
  const scale = 10 ** decimals;
  return Math.round(value * scale) / scale;
}
