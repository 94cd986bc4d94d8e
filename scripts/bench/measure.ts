import { readFileSync, statSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';

/** What one piece of work cost this process. */
export interface Cost {
  seconds: number;
  cpuSeconds: number;
  /** Bytes this process caused to be written to a disk (`/proc/self/io`). */
  writtenBytes: number;
}

function writtenBytes(): number {
  return Number(/^write_bytes: (\d+)/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1] ?? Number.NaN);
}

/** Runs `work` and gives what it cost. */
export async function costOf(work: () => unknown): Promise<Cost> {
  const written = writtenBytes();
  const cpu = process.cpuUsage();
  const start = performance.now();
  await work();
  const seconds = (performance.now() - start) / 1000;
  const used = process.cpuUsage(cpu);
  return { seconds, cpuSeconds: (used.user + used.system) / 1e6, writtenBytes: writtenBytes() - written };
}

/** Bytes of a database on disk, with its WAL. */
export function storedBytes(path: string): number {
  return statSync(path).size + (statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0);
}

export const median = (numbers: number[]) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1]!;
export const millions = (perSecond: number) => `${(perSecond / 1e6).toFixed(2)} M/s`;

/** One line about the machine, for whoever reads the figures later. */
export function machine(): string {
  const model = cpus()[0]?.model.replaceAll(/\s+/g, ' ') ?? 'unknown';
  return `${cpus().length} × ${model}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, Node ${process.versions.node}, ${new Date().toISOString().slice(0, 10)}`;
}

/** A table for a terminal: columns as wide as they need. */
export function table(head: string[], rows: string[][]): string {
  const all = [head, ...rows];
  const widths = head.map((_, i) => Math.max(...all.map((row) => row[i]?.length ?? 0)));
  return all
    .map((row) => row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  '))
    .join('\n');
}
