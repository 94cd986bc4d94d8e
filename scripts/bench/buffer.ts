/**
 * Compares the buffer with bare loops of the same design in one run: bytes, syncs and values per second. `node
 * scripts/bench/buffer.ts [--values N]`; default: three million values.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { Pool } from 'undici';
import { bareDrain, bareLog, type Loop, rowAValue } from './bare-loops.ts';
import { benchStore } from './bench-store.ts';
import { commitDelays } from './commit-delays.ts';
import { type Cost, costOf, machine, millions, storedBytes, table } from './measure.ts';
import { ASSETS, Plant, SERIES } from './plant.ts';

const { values: options } = parseArgs({ options: { values: { type: 'string', default: '3000000' } } });
const VALUES = Number(options.values);
const folder = mkdtempSync(join(tmpdir(), 'tagferry-bench-'));
const pathOf = (name: string) => join(folder, `${name}.db`);

interface Taken {
  /** Seconds spent in commits and maintenance, excluding the generation of readings. */
  seconds: number;
  writtenBytes: number;
  storedBytes: number;
  commits: number;
}

/** Ingests `total` readings, `perCommit` at a time. */
async function takeIn(
  total: number,
  perCommit: number,
  commit: (values: ReturnType<Plant['next']>) => void,
  kind?: 'doubles',
) {
  const plant = new Plant(kind);
  let seconds = 0;
  const cost = await costOf(() => {
    for (let done = 0; done < total; done += perCommit) {
      const values = plant.next(perCommit);
      const start = performance.now();
      commit(values);
      seconds += (performance.now() - start) / 1000;
    }
  });
  return { seconds, writtenBytes: cost.writtenBytes };
}

async function measureStore(name: string, total: number, perCommit: number, kind?: 'doubles'): Promise<Taken> {
  const { store, commit } = benchStore(pathOf(name));
  const { seconds, writtenBytes } = await takeIn(total, perCommit, commit, kind);
  commit();
  const stored = storedBytes(pathOf(name));
  store.close();
  return { seconds, writtenBytes, storedBytes: stored, commits: total / perCommit };
}

async function measureLoop(
  name: string,
  make: (path: string) => Loop,
  total: number,
  perCommit: number,
  kind?: 'doubles',
) {
  const loop = make(pathOf(name));
  const { seconds, writtenBytes } = await takeIn(total, perCommit, (values) => loop.commit(values), kind);
  const stored = storedBytes(pathOf(name));
  loop.close();
  return { seconds, writtenBytes, storedBytes: stored, commits: total / perCommit } satisfies Taken;
}

/** Rounds alternate between the contenders, so that a temporary slowdown of the machine affects both. */
const ROUNDS = 3;
const middle = (all: Taken[]) => all.toSorted((a, b) => a.seconds - b.seconds)[all.length >> 1]!;

const row = (name: string, taken: Taken, total: number, base?: Taken) => [
  name,
  millions(total / taken.seconds),
  base ? `${((100 * base.seconds) / taken.seconds).toFixed(0)} %` : '',
  (taken.storedBytes / total).toFixed(2),
  (taken.writtenBytes / total).toFixed(1),
];

/** Starts a platform in a worker thread that responds with 204 to everything. */
async function startSink(): Promise<{ url: string; stop(): Promise<unknown> }> {
  const worker = new Worker(
    `const { createServer } = require('node:http');
     const { parentPort } = require('node:worker_threads');
     const server = createServer((q, s) => { q.resume(); q.on('end', () => { s.writeHead(204); s.end(); }); });
     server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));`,
    { eval: true },
  );
  const port = await new Promise<number>((resolve) => worker.once('message', resolve));
  return { url: `http://127.0.0.1:${port}`, stop: () => worker.terminate() };
}

/** Keeps up to four posts pending, as the agent does. */
function poster(url: string) {
  const pool = new Pool(url, { connections: 4, pipelining: 1 });
  const underWay = new Set<Promise<void>>();
  return {
    async post(body: Uint8Array, settled?: () => void) {
      if (underWay.size >= 4) await Promise.race(underWay);
      const one: Promise<void> = pool
        .request({ path: '/', method: 'POST', body, headers: { 'content-type': 'application/json' } })
        .then(async (answer) => {
          await answer.body.dump();
          settled?.();
        })
        .finally(() => underWay.delete(one));
      underWay.add(one);
    },
    async end() {
      await Promise.all(underWay);
      await pool.close();
    },
  };
}

async function drainStore(url: string): Promise<{ cost: Cost; values: number }> {
  const { store, commit } = benchStore(pathOf('tagferry'));
  const sender = poster(url);
  let values = 0;
  let posts = 0;
  const cost = await costOf(async () => {
    for (let empty = 0, asset = 1; empty < 2 * ASSETS; asset = (asset % ASSETS) + 1) {
      const taken = store.take({ asset, lane: 'backlog', maxValues: 5000, maxBytes: 480_000 });
      const { batch } = taken.batch ? taken : store.take({ asset, lane: 'live', maxValues: 5000, maxBytes: 480_000 });
      if (!batch) {
        empty++;
        if (empty === ASSETS) await new Promise((resolve) => setTimeout(resolve, 20));
        continue;
      }
      empty = 0;
      values += batch.values;
      await sender.post(batch.body, () => {
        store.settle(batch.id);
        if (++posts % 10 === 0) commit();
      });
    }
    await sender.end();
    commit();
  });
  store.close();
  return { cost, values };
}

async function drainLoop(
  name: string,
  make: (path: string) => Loop,
  url: string,
): Promise<{ cost: Cost; values: number }> {
  const loop = make(pathOf(name));
  const sender = poster(url);
  const plant = new Plant();
  for (let done = 0; done < VALUES; done += 1000) loop.commit(plant.next(1000));
  let values = 0;
  const cost = await costOf(async () => {
    values = await loop.drain!((body) => sender.post(body));
    await sender.end();
  });
  loop.close();
  return { cost, values };
}

/** Returns the number of syncs per commit in a separate process, counted by a preloaded library. */
function syncsPerCommit(): string {
  const library = join(folder, 'disk-layer.so');
  const source = join(import.meta.dirname, '../../test/host/faults/disk-layer.c');
  try {
    execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', library, source, '-ldl', '-lpthread'], { stdio: 'ignore' });
  } catch {
    return 'not measured: no C compiler';
  }
  const counts = join(folder, 'counts');
  execFileSync(process.execPath, [join(import.meta.dirname, 'take-in.ts'), join(folder, 'synced.db'), '1000000'], {
    env: { ...process.env, LD_PRELOAD: library, DISK_LAYER_PATH: 'synced.db', DISK_LAYER_COUNTS: counts },
  });
  return (Number(readFileSync(counts).readBigUInt64LE(8)) / 1000).toFixed(3);
}

const HEAD = ['design', 'ingest', 'vs. bare log', 'B stored per value', 'B written per value'];

console.log(
  `Buffer, ${VALUES.toLocaleString('en')} readings of ${SERIES} interleaved series; medians of ${ROUNDS} rounds\n${machine()}\n`,
);
for (const [title, perCommit, kind, total] of [
  ['1,000 values per commit, slowly varying decimals', 1000, undefined, VALUES],
  ['100 values per commit', 100, undefined, VALUES / 4],
  ['10 values per commit', 10, undefined, VALUES / 40],
  ['bursts of 10,000 values per commit', 10_000, undefined, VALUES],
  ['1,000 values per commit, random doubles', 1000, 'doubles', VALUES],
] as const) {
  const bares: Taken[] = [];
  const all: Taken[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    bares.push(await measureLoop(`log-${round}-${perCommit}-${kind}`, bareLog, total, perCommit, kind));
    // The most recent store of the first kind is drained below.
    const isDrained = title.startsWith('1,000 values per commit, slowly') && round === ROUNDS - 1;
    const name = isDrained ? 'tagferry' : `tagferry-${round}-${perCommit}-${kind}`;
    all.push(await measureStore(name, total, perCommit, kind));
  }
  const [bare, ours] = [middle(bares), middle(all)];
  const rows = await measureLoop(`rows-${perCommit}-${kind}`, rowAValue, Math.min(total, 500_000), perCommit, kind);
  console.log(`${title}, platform unavailable`);
  console.log(
    table(HEAD, [
      row('bare log', bare, total),
      row('tagferry (log and segments)', ours, total, bare),
      row('one row per value', rows, Math.min(total, 500_000)),
    ]),
    '\n',
  );
}

/** Simulated seconds, long enough for flush and compaction. */
const DAY_SECONDS = 1800;
const DAY_RATE = 500;

/** Projects the bytes written in a day at 500 values/s, with one commit per second and posts per asset every 10 s. */
async function dayOfBytes(online: boolean): Promise<number> {
  const { store, catalogue } = benchStore(pathOf(`day-${online}`));
  const plant = new Plant();
  const cost = await costOf(() => {
    for (let second = 0; second < DAY_SECONDS; second++) {
      const monotonicMs = second * 1000;
      const columns = plant.next(DAY_RATE);
      let facts = store.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs });
      // One asset in ten is due each second.
      for (let asset = 1 + (second % 10); online && asset <= ASSETS; asset += 10) {
        const { batch } = store.take({ asset, lane: 'live', maxValues: 5000, maxBytes: 480_000 });
        if (batch) facts = store.settle(batch.id);
      }
      while (facts.maintenanceDue) facts = store.maintain({ monotonicMs });
    }
  });
  store.close();
  return (cost.writtenBytes / DAY_SECONDS) * 86_400;
}

const gigabytes = (bytes: number) => `${(bytes / 1e9).toFixed(2)} GB`;
console.log(
  `written per day at ${DAY_RATE} values/s with the default configuration: ${gigabytes(await dayOfBytes(true))} online, ` +
    `${gigabytes(await dayOfBytes(false))} with the platform unavailable (from ${DAY_SECONDS} s)\n`,
);
console.log(`syncs per commit at 1,000 values, flushing and checkpoints included: ${syncsPerCommit()}\n`);

console.log(`${commitDelays(pathOf)}\n`);

const sink = await startSink();
const bare = await drainLoop('segments', bareDrain, sink.url);
const ours = await drainStore(sink.url);
const rows = await drainLoop('rows-drain', rowAValue, sink.url);
console.log('drain: read, serialised, posted to a local sink that responds with 204, settled');
console.log(
  table(
    ['design', 'drain', 'vs. bare drain', 'B written per value', 'complete'],
    [
      ['bare drain (segments of 1,000)', bare] as const,
      ['tagferry', ours] as const,
      ['one row per value', rows] as const,
    ].map(([name, { cost, values }]) => [
      name,
      millions(values / cost.seconds),
      `${((100 * (values / cost.seconds)) / (bare.values / bare.cost.seconds)).toFixed(0)} %`,
      (cost.writtenBytes / values).toFixed(1),
      String(values === VALUES),
    ]),
  ),
);
await sink.stop();
rmSync(folder, { recursive: true });
process.exitCode = ours.values === VALUES ? 0 : 1;
