/**
 * Measures the cost of a backlog: time to READY, resident memory, append and drain rates at 0, 1, 10 and 50 million
 * values. `node scripts/bench/scale.ts [--millions 1,10,50]`. Uses the built agent, with the flags of the
 * package.
 */
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { asPackaged } from '../../test/old/agent/packaged.ts';
import { benchStore } from './bench-store.ts';
import { machine, memoryOf, millions, storedBytes, table } from './measure.ts';
import { ASSETS, Plant } from './plant.ts';

const { values: options } = parseArgs({ options: { millions: { type: 'string', default: '1,10,50' } } });
const SIZES = [0, ...options.millions.split(',').map((size) => Number(size) * 1e6)];
const PROBE = 500_000;
const RUNS = 3;
const root = join(import.meta.dirname, '../..');
const folder = mkdtempSync(join(tmpdir(), 'tagferry-scale-'));
const state = join(folder, 'state');
mkdirSync(state, { mode: 0o700 });
mkdirSync(join(folder, 'config'));
const settings = [
  'PLATFORM_URL=http://127.0.0.1:9',
  ...['CLIENT_ID', 'CLIENT_SECRET', 'TECHNICAL_USERNAME', 'TECHNICAL_PASSWORD'].map((key) => `${key}=bench`),
  ...['INGEST_LISTEN', 'OPS_LISTEN', 'WEBHOOK_LISTEN'].map((key) => `${key}=`),
  'BUFFER_MAX_BYTES=0',
  'BUFFER_MIN_FREE=0',
  'LOG_FORMAT=json',
  `STATE_DIR=${state}`,
];
writeFileSync(join(folder, 'config/agent.env'), `${settings.join('\n')}\n`, { mode: 0o600 });
writeFileSync(join(folder, 'config/tags.yaml'), 'tags: {}\n');
execFileSync(process.execPath, [join(root, 'scripts/build.ts')], { stdio: 'inherit' });

/** Starts the agent. Returns milliseconds to READY and the resident megabytes a few seconds later. */
function startDaemon(): Promise<{ readyMs: number; rss: number }> {
  const startedAt = performance.now();
  const { flags, variables } = asPackaged();
  const args = [...flags, join(root, 'dist/main.js'), 'run', '--config', join(folder, 'config')];
  const child = spawn(process.execPath, args, { env: { ...process.env, ...variables } });
  return new Promise((resolve, reject) => {
    let output = '';
    child.once('exit', () => reject(new Error(`the agent exited\n${output}`)));
    child.stdout.on('data', (chunk) => {
      output += chunk;
      if (!output.includes('"agent.ready"')) return;
      child.stdout.removeAllListeners('data').resume();
      const readyMs = performance.now() - startedAt;
      setTimeout(() => {
        const { rss } = memoryOf(child.pid!);
        child.removeAllListeners('exit').once('exit', () => resolve({ readyMs, rss }));
        child.kill('SIGKILL');
      }, 4_000);
    });
  });
}

/** Appends values until the backlog has `size` values. */
function fill(have: number, size: number): void {
  const bench = benchStore(join(state, 'buffer.db'));
  const plant = new Plant();
  for (let done = have; done < size; done += 1000) bench.commit(plant.next(1000));
  bench.commit();
  bench.store.close();
}

/** Measures the append and drain rates for half a million values; the backlog size stays about the same. */
function rates(): { append: number; drain: number } {
  const bench = benchStore(join(state, 'buffer.db'));
  const plant = new Plant();
  let seconds = 0;
  for (let done = 0; done < PROBE; done += 1000) {
    const values = plant.next(1000);
    const start = performance.now();
    bench.commit(values);
    seconds += (performance.now() - start) / 1000;
  }
  const start = performance.now();
  let drained = 0;
  let posts = 0;
  for (let asset = 1; drained < PROBE; asset = (asset % ASSETS) + 1) {
    const { batch } = bench.store.take({ asset, lane: 'backlog', maxValues: 5000, maxBytes: 480_000 });
    if (!batch) {
      if (++posts > 100_000) break;
      continue;
    }
    drained += batch.values;
    bench.store.settle(batch.id);
    if (++posts % 10 === 0) bench.commit();
  }
  bench.commit();
  const drain = drained / ((performance.now() - start) / 1000);
  bench.store.close();
  return { append: PROBE / seconds, drain };
}

console.log(`Large backlog, ${ASSETS} assets with ten series each\n${machine()}\n`);
const rows: string[][] = [];
let empty = 0;
let have = 0;
for (const size of SIZES) {
  fill(have, size);
  have = size;
  const starts: { readyMs: number; rss: number }[] = [];
  for (let run = 0; run < RUNS; run++) starts.push(await startDaemon());
  const middle = (of: (one: (typeof starts)[number]) => number) => starts.map(of).sort((a, b) => a - b)[RUNS >> 1]!;
  const rss = middle((one) => one.rss);
  if (size === 0) empty = rss;
  const { append, drain } = size === 0 ? { append: Number.NaN, drain: Number.NaN } : rates();
  rows.push([
    size.toLocaleString('en'),
    (middle((one) => one.readyMs) / 1000).toFixed(2),
    rss.toFixed(0),
    `+${(rss - empty).toFixed(0)}`,
    size === 0 ? '' : (storedBytes(join(state, 'buffer.db')) / size).toFixed(2),
    size === 0 ? '' : millions(append),
    size === 0 ? '' : millions(drain),
  ]);
}
console.log(
  table(['backlog, values', 'READY s', 'resident MB', 'vs. empty MB', 'B stored per value', 'append', 'drain'], rows),
);
rmSync(folder, { recursive: true });
