import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Send } from './feeds.ts';

/** One way to do the job: what it is started with, and what its acknowledgement is worth. */
export interface Contender {
  name: string;
  /** For the table: who says that a value was taken, and when. */
  acknowledges: string;
  /** Values a round; fewer for one that syncs each. */
  values: number;
  /** Files of its own in `folder`, the destination on `sinkPort` of 127.0.0.1, which is away at first; `env` for the program. */
  start(folder: string, sinkPort: number, env: NodeJS.ProcessEnv): Promise<Running>;
}

export interface Running {
  child: ChildProcess;
  /** The folder in which it keeps values. */
  files: string;
  /** Gives what hands the readings over, each the JSON text of a value; done when all are acknowledged, or known to be taken. */
  feed(readings: readonly string[], connections: number): Send;
  /** So long without a write, and it has finished what it does with stored values. */
  quietMs: number;
  /** Tells it that the destination is back, where it would not look within a second. */
  destinationBack?(): void;
}

const CLOCK_TICKS = 100;
const PATIENCE_MS = 120_000;

/** CPU seconds, bytes written and the largest resident memory of a process, so far. */
export function usage(pid: number) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const written = /^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1];
  const peak = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return {
    cpuSeconds: (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS,
    writtenBytes: Number(written),
    peakMegabytes: Number(peak) / 1000,
  };
}

/** The two counters of sync-counter.c. */
export function syncCounts(path: string): { syncs: number; syncedFiles: number } {
  const counts = readFileSync(path);
  return { syncs: Number(counts.readBigUInt64LE(0)), syncedFiles: Number(counts.readBigUInt64LE(8)) };
}

/** Bytes of all files in a folder. */
export function bytesBelow(folder: string): number {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return files.reduce((sum, file) => sum + statSync(join(file.parentPath, file.name)).size, 0);
}

/** Waits for a condition; throws when it does not come, or when the program that it waits for has ended. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  { everyMs, child }: { everyMs: number; child?: ChildProcess },
): Promise<void> {
  const giveUpAt = performance.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (child && (child.exitCode !== null || child.signalCode !== null)) throw new Error(`${what}: the program ended`);
    if (performance.now() > giveUpAt) throw new Error(`${what}: not within ${PATIENCE_MS / 1000} s`);
    await sleep(everyMs);
  }
}

/** Starts a program in the foreground, its output kept for the case that it ends. */
export function launch(
  command: string,
  args: string[],
  env: NodeJS.ProcessEnv,
): { child: ChildProcess; output(): string } {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  let output = '';
  const keep = (chunk: Buffer) => {
    if (output.length < 100_000) output += chunk;
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  // However the run ends: a program that has no turn is stopped, and would stay.
  process.once('exit', () => child.kill('SIGKILL'));
  child.once('exit', (code, signal) => {
    if (signal === null) console.error(`${command} ended with ${code}\n${output.slice(-2000)}`);
  });
  return { child, output: () => output };
}

/** Ends a program that was started here. */
export async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await gone;
}
