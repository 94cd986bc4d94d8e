/**
 * One contender through the whole job: values in while the destination is away, rest, the destination back, values out.
 * Contenders take turns, so that whatever else the machine does falls on all of them; who has no turn is stopped (SIGSTOP).
 */
import { fork } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../../src/base/port-claim.ts';
import { Plant } from '../plant.ts';
import { bytesBelow, type Contender, end, type Running, syncCounts, until, usage } from './contender.ts';
import type { Arrived } from './sink.ts';

export interface Result {
  contender: Contender;
  /** Values in altogether. */
  values: number;
  /** Values in a second of each round, by number of connections. */
  inPerSecond: ReadonlyMap<number, number[]>;
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
  await until('no more writes', still, { everyMs: 200 });
}

export class Entrant {
  readonly contender: Contender;
  readonly #folder: string;
  readonly #syncFile: string;
  readonly #rates = new Map<number, number[]>();
  readonly #plant = new Plant();
  #values = 0;
  #sinkPort = 0;
  #running!: Running;
  #before!: ReturnType<Entrant['state']>;

  constructor(contender: Contender, folder: string) {
    this.contender = contender;
    this.#folder = folder;
    this.#syncFile = join(folder, 'syncs');
  }

  /** `layer` is the path of sync-counter.so. */
  async start(layer: string): Promise<void> {
    for (const part of ['', 'buffer', 'queue']) mkdirSync(join(this.#folder, part), { recursive: true });
    this.#sinkPort = await freePort();
    const env = { LD_PRELOAD: layer, SYNC_COUNTS: this.#syncFile };
    this.#running = await this.contender.start(this.#folder, this.#sinkPort, env);
    this.#before = this.state();
    this.#running.child.kill('SIGSTOP');
  }

  /** What it has used so far. */
  state() {
    const { files, child } = this.#running;
    return { ...usage(child.pid!), ...syncCounts(this.#syncFile), storedBytes: bytesBelow(files) };
  }

  /** One round of values in. */
  async turn(connections: number): Promise<void> {
    const { values } = this.contender;
    const send = this.#running.feed(readings(this.#plant, values), connections);
    this.#running.child.kill('SIGCONT');
    const start = performance.now();
    await send();
    const rate = values / ((performance.now() - start) / 1000);
    this.#running.child.kill('SIGSTOP');
    this.#values += values;
    this.#rates.set(connections, [...(this.#rates.get(connections) ?? []), rate]);
  }

  /** Rest, the destination back, values out; then it is ended. */
  async finish(): Promise<Result> {
    const { child, quietMs } = this.#running;
    child.kill('SIGCONT');
    await quiet(child.pid!, quietMs);
    const before = this.#before;
    const full = this.state();
    const arrived = await drain(this.#sinkPort, this.#values, () => this.#running.destinationBack?.());
    await quiet(child.pid!, 1_000);
    const after = this.state();
    await this.end();
    return {
      contender: this.contender,
      values: this.#values,
      inPerSecond: this.#rates,
      cpuSecondsIn: full.cpuSeconds - before.cpuSeconds,
      storedBytes: full.storedBytes - before.storedBytes,
      writtenBytesIn: full.writtenBytes - before.writtenBytes,
      writtenBytesOut: after.writtenBytes - full.writtenBytes,
      syncs: full.syncs - before.syncs,
      syncedFiles: full.syncedFiles,
      drainPerSecond: this.#values / arrived.seconds,
      repeated: arrived.values - this.#values,
      posts: arrived.posts,
      peakMegabytes: after.peakMegabytes,
    };
  }

  /** Ends the program and removes its files. */
  async end(): Promise<void> {
    if (this.#running) await end(this.#running.child);
    rmSync(this.#folder, { recursive: true, force: true });
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
    await until('the destination listens', () => up, { everyMs: 20, child: sink });
    back();
    await until(`${values} values arrive`, () => arrived.values >= values, { everyMs: 50, child: sink });
    return arrived;
  } finally {
    await end(sink);
  }
}
