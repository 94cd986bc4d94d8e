/** One contender through the whole job: values in while the destination is away, rest, the destination back, values out. */
import { fork } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { median } from '../measure.ts';
import { Plant } from '../plant.ts';
import { bytesBelow, type Contender, end, freePort, syncCounts, until, usage } from './contender.ts';
import type { Arrived } from './sink.ts';

export interface Result {
  contender: Contender;
  /** Values in altogether. */
  values: number;
  /** Values in a second, by number of connections. */
  inPerSecond: Map<number, number>;
  cpuSecondsIn: number;
  storedBytes: number;
  writtenBytesIn: number;
  writtenBytesOut: number;
  syncs: number;
  syncedFiles: number;
  drainPerSecond: number;
  /** Values that came a second time. */
  repeated: number;
  posts: number;
  peakMegabytes: number;
}

export const CONNECTIONS = [1, 8];

/** The next readings as JSON texts: what every contender is handed, byte for byte. */
function readings(plant: Plant, count: number): string[] {
  const columns = plant.next(count);
  return Array.from({ length: count }, (_, i) => {
    const series = columns.series[i]! - 1;
    const asset = 1 + Math.floor(series / 10);
    const timestamp = new Date(columns.timeMs[i]!).toISOString();
    return JSON.stringify({ asset, key: `k${series % 10}`, unit: 12, value: columns.value[i]!, timestamp });
  });
}

/** Waits until the process has written nothing for so long. */
async function quiet(pid: number, forMs: number): Promise<void> {
  let written = -1;
  let since = performance.now();
  const still = () => {
    const now = usage(pid).writtenBytes;
    if (now !== written) since = performance.now();
    written = now;
    return performance.now() - since >= forMs;
  };
  await until('no more writes', still, 200);
}

/** `syncFile` is where the contender's environment tells sync-counter.c to count. */
export async function race(contender: Contender, rounds: number, folder: string, syncFile: string): Promise<Result> {
  for (const part of ['', 'buffer', 'queue']) mkdirSync(join(folder, part), { recursive: true });
  const sinkPort = await freePort();
  const running = await contender.start(folder, sinkPort);
  const pid = running.child.pid!;
  try {
    const plant = new Plant();
    const before = { ...usage(pid), ...syncCounts(syncFile), stored: bytesBelow(running.files) };
    const inPerSecond = new Map<number, number>();
    for (const connections of CONNECTIONS) {
      const rates: number[] = [];
      for (let round = 0; round < rounds; round++) {
        const texts = readings(plant, contender.values);
        const start = performance.now();
        await running.feed(texts, connections);
        rates.push(contender.values / ((performance.now() - start) / 1000));
      }
      inPerSecond.set(connections, median(rates));
    }
    await quiet(pid, running.quietMs);
    const values = contender.values * rounds * CONNECTIONS.length;
    const full = { ...usage(pid), ...syncCounts(syncFile), stored: bytesBelow(running.files) };
    const arrived = await drain(sinkPort, values, () => running.destinationBack?.());
    await quiet(pid, 1_000);
    const after = usage(pid);
    return {
      contender,
      values,
      inPerSecond,
      cpuSecondsIn: full.cpuSeconds - before.cpuSeconds,
      storedBytes: full.stored - before.stored,
      writtenBytesIn: full.writtenBytes - before.writtenBytes,
      writtenBytesOut: after.writtenBytes - full.writtenBytes,
      syncs: full.syncs - before.syncs,
      syncedFiles: full.syncedFiles,
      drainPerSecond: values / arrived.seconds,
      repeated: arrived.values - values,
      posts: arrived.posts,
      peakMegabytes: after.peakMegabytes,
    };
  } finally {
    await end(running.child);
  }
}

/** Brings the destination up and waits until all values were there. */
async function drain(port: number, values: number, back: () => void): Promise<Arrived> {
  const sink = fork(join(import.meta.dirname, 'sink.ts'), [String(port)]);
  try {
    let arrived: Arrived = { values: 0, posts: 0, seconds: 0 };
    let up = false;
    sink.on('message', (message: Arrived) => {
      arrived = message;
      up = true;
    });
    sink.send({ expect: values });
    await until('the destination listens', () => up, 20);
    back();
    await until(`${values} values arrive`, () => arrived.values >= values, 50);
    return arrived;
  } finally {
    await end(sink);
  }
}
