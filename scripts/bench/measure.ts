import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';

/** Cost of one unit of work for this process. */
export interface Cost {
  seconds: number;
  cpuSeconds: number;
  /** Bytes that this process wrote to a disk (`/proc/self/io`). */
  writtenBytes: number;
}

function writtenBytes(pid: number | 'self' = 'self'): number {
  return Number(/^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1] ?? Number.NaN);
}

/** Runs `work` and returns its cost. */
export async function costOf(work: () => unknown): Promise<Cost> {
  const written = writtenBytes();
  const cpu = process.cpuUsage();
  const start = performance.now();
  await work();
  const seconds = (performance.now() - start) / 1000;
  const used = process.cpuUsage(cpu);
  return { seconds, cpuSeconds: (used.user + used.system) / 1e6, writtenBytes: writtenBytes() - written };
}

/**
 * Returns CPU time and written bytes of a process; `cpuWithChildren` includes child processes that it has waited for.
 */
export function processUsage(pid: number): {
  cpuSeconds: number;
  cpuWithChildren: number;
  writtenBytes: number;
} {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const seconds = (from: number, to: number) =>
    fields.slice(from, to).reduce((sum, ticks) => sum + Number(ticks), 0) / 100;
  return {
    cpuSeconds: seconds(11, 13),
    cpuWithChildren: seconds(11, 15),
    writtenBytes: writtenBytes(pid),
  };
}

/** Memory of a process in MB: resident, private, proportional share, and the peak since `resetPeak`. */
export function memoryOf(pid: number): { rss: number; own: number; pss: number; peak: number } {
  const read = (file: string, name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(readFileSync(`/proc/${pid}/${file}`, 'utf8'))?.[1] ?? 0) /
    1024;
  const rollup = (name: string) => read('smaps_rollup', name);
  return {
    rss: rollup('Rss'),
    own: rollup('Private_Clean') + rollup('Private_Dirty'),
    pss: rollup('Pss'),
    peak: read('status', 'VmHWM'),
  };
}

/** Returns a process and its descendants. */
export function family(pid: number): number[] {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
        return [[Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])] as const];
      } catch {
        return [];
      }
    });
  const found = [pid];
  for (const one of found) found.push(...parents.filter(([, parent]) => parent === one).map(([child]) => child));
  return found;
}

/** Returns these processes' CPU time in seconds. */
export function cpuSeconds(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + processUsage(pid).cpuSeconds, 0);
}

/** Returns CPU time, written bytes and peak resident memory of a process and its descendants. */
export function treeUsage(pid: number): { cpuSeconds: number; writtenBytes: number; peakMB: number } {
  const pids = family(pid);
  const sum = (of: (pid: number) => number) => pids.reduce((total, one) => total + of(one), 0);
  return {
    cpuSeconds: sum((one) => processUsage(one).cpuWithChildren),
    writtenBytes: sum((one) => processUsage(one).writtenBytes),
    peakMB: sum((one) => memoryOf(one).peak),
  };
}

/** Resets the peak resident memory. */
export function resetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
}

/** Returns the size of all files in a folder, in bytes. */
export function bytesBelow(folder: string): number {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
}

/** Returns the size of a database on disk in bytes, including its WAL. */
export function storedBytes(path: string): number {
  return statSync(path).size + (statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0);
}

export const median = (numbers: number[]) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1]!;
export const millions = (perSecond: number) => `${(perSecond / 1e6).toFixed(2)} M/s`;

/** Returns one line about the machine. */
export function machine(): string {
  const model = cpus()[0]?.model.replaceAll(/\s+/g, ' ') ?? 'unknown';
  return `${cpus().length} × ${model}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, Node ${process.versions.node}, ${new Date().toISOString().slice(0, 10)}`;
}

/** Formats a table for a terminal. */
export function table(head: string[], rows: string[][]): string {
  const all = [head, ...rows];
  const widths = head.map((_, i) => Math.max(...all.map((row) => row[i]?.length ?? 0)));
  return all
    .map((row) => row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  '))
    .join('\n');
}

export interface Contender {
  name: string;
  /** Returns the rate of one round, per second. */
  measure(): Promise<number>;
}

/**
 * Measures the contenders in turn, so that a temporary slowdown of the machine affects all of them. Returns rows with
 * medians and the ratio to the first.
 */
export async function race(
  contenders: readonly Contender[],
  rounds: number,
  shown = (rate: number) => Math.round(rate).toLocaleString('en'),
): Promise<string[][]> {
  const rates = contenders.map((): number[] => []);
  for (let round = 0; round < rounds; round++) {
    for (const [index, { measure }] of contenders.entries()) rates[index]!.push(await measure());
  }
  const medians = rates.map(median);
  return contenders.map(({ name }, index) => [
    name,
    shown(medians[index]!),
    (medians[index]! / medians[0]!).toFixed(2),
  ]);
}

export const thousands = (rate: number) => Math.round(rate / 1e3).toLocaleString('en');
