/**
 * What the daemon costs when it has little to do: memory at 500 tags and an empty buffer, CPU at 100 values a second, the
 * time until READY. Beside it, turn by turn in the same run, a bare Node process with the same modules loaded.
 * And memory under load, within the bounds of `systemd/examples/bounds.conf` (which takes root): at a thousand values a second beside a
 * backlog, and at as many as it takes.
 * `node scripts/bench/footprint.ts [--rounds N] [--seconds N] [--millions N] [--only load]`.
 *
 * All run built, with the flags and variables of the installed daemon (`scripts/deb/wrapper`). The bare process loads, in the same order,
 * every module which the idle daemon has loaded (noted by a hook, not listed by hand), and has one worker thread that has
 * done the same and opened an SQLite database in memory; once without tagferry's own modules, once with them.
 * The platform is an HTTP server on loopback that takes everything; 50 assets with ten tags each, one value a tag.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { MemoryBounds } from '../../test/process/memory-bounds.ts';
import { asPackaged } from '../../test/process/packaged.ts';
import { machine, median, table } from './measure.ts';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '7' },
    seconds: { type: 'string', default: '40' },
    millions: { type: 'string', default: '10' },
    only: { type: 'string' },
  },
});
const ROUNDS = Number(options.rounds);
const SECONDS = Number(options.seconds);
const BACKLOG = Number(options.millions) * 1_000_000;
const TAGS = 500;
const TAGS_AN_ASSET = 10;
/** After READY: what starting left behind has been collected by then. */
const SETTLE_MS = 12_000;
const CLOCK_TICKS = 100;

const root = join(import.meta.dirname, '../..');
const folder = mkdtempSync(join(tmpdir(), 'tagferry-footprint-'));
const dist = join(root, 'dist');
const config = join(folder, 'config');
const notes = { main: join(folder, 'main.notes'), thread: join(folder, 'thread.notes') };
/** As the package's command starts the daemon. */
const { flags, variables } = asPackaged();

const DAEMON = [...flags, join(dist, 'main.js'), 'run', '--config', config];
const OURS = `${pathToFileURL(dist)}/`;
const bare = (leftOut: string) => [
  ...flags,
  join(import.meta.dirname, 'footprint-bare.mjs'),
  notes.main,
  notes.thread,
  leftOut,
];
const BARE = bare(OURS);
/** The same with the modules of tagferry itself: loaded, and nothing of them run. */
const BARE_WITH_OURS = bare('');

interface Started {
  child: ChildProcess;
  readyMs: number;
  /** Of `ingest.listening`. */
  port: number;
}

/** Starts a program, in a control group or in none, and waits for its line. */
function start(args: string[], bounds?: MemoryBounds): Promise<Started> {
  const startedAt = performance.now();
  const [file, ...rest] = [...(bounds?.surroundings ?? []), process.execPath, ...args];
  const child = spawn(file!, rest, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...variables },
  });
  return new Promise((resolve, reject) => {
    let output = '';
    child.once('exit', (code) => reject(new Error(`${args.join(' ')} ended with ${code}\n${output}`)));
    child.stdout!.on('data', (chunk) => {
      output += chunk;
      if (!output.includes('"agent.ready"')) return;
      const readyMs = performance.now() - startedAt;
      child.removeAllListeners('exit');
      child.stdout!.removeAllListeners('data').resume();
      const port = Number(/"ingest.listening"[^\n]*"port":(\d+)/.exec(output)?.[1]);
      resolve({ child, readyMs, port });
    });
  });
}

async function end(child: ChildProcess, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill(signal);
  await ended;
}

/** Megabytes of a process: resident, and of them those that are its own alone. */
function memoryOf(pid: number): { rss: number; own: number } {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  const megabytes = (name: string) => Number(new RegExp(`^${name}: +(\\d+) kB`, 'm').exec(rollup)![1]) / 1024;
  return { rss: megabytes('Rss'), own: megabytes('Private_Clean') + megabytes('Private_Dirty') };
}

/** CPU seconds of a process so far, with those of children that it has waited for. */
function cpuOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / CLOCK_TICKS;
}

/** A platform that signs everybody in and takes everything. */
async function startPlatform(): Promise<{ url: string; close(): void }> {
  const token = { access_token: 'a', refresh_token: 'r', token_type: 'Bearer', expires_in: 3600 };
  const server = createServer((incoming, answer) => {
    incoming.resume().on('end', () => {
      if (!incoming.url?.includes('token')) answer.writeHead(204).end();
      else answer.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(token));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}

function configure(platform: string, state = 'state'): void {
  mkdirSync(config, { recursive: true });
  const env = [
    `PLATFORM_URL=${platform}`,
    ...['CLIENT_ID', 'CLIENT_SECRET', 'TECHNICAL_USERNAME', 'TECHNICAL_PASSWORD'].map((key) => `${key}=bench`),
    ...['INGEST_LISTEN', 'OPS_LISTEN', 'WEBHOOK_LISTEN'].map((key) => `${key}=127.0.0.1:0`),
    'LOG_FORMAT=json',
    `STATE_DIR=${join(folder, state)}`,
  ];
  writeFileSync(join(config, 'agent.env'), `${env.join('\n')}\n`, { mode: 0o600 });
  const tags = Array.from({ length: TAGS }, (_, i) => {
    const asset = 1 + Math.floor(i / TAGS_AN_ASSET);
    return `  T-${i}:\n    asset: ${asset}\n    instrumentation: ${1000 + i}\n    values:\n      k${i % TAGS_AN_ASSET}: { unit: 12, group: process }\n`;
  });
  writeFileSync(join(config, 'tags.yaml'), `tags:\n${tags.join('')}`);
}

/** Notes what the daemon and its thread load. */
async function noteModules(): Promise<void> {
  const hook = ['--import', join(import.meta.dirname, 'footprint-modules.mjs')];
  process.env.FOOTPRINT_OURS = OURS;
  process.env.FOOTPRINT_NOTES = notes.main;
  const { child, port } = await start([...hook, ...DAEMON]);
  // Some parts are loaded with the first values and posts.
  await push(port, 100, 0);
  await delay(3000);
  await end(child, 'SIGTERM');
  process.env.FOOTPRINT_NOTES = notes.thread;
  execFileSync(process.execPath, [...hook, join(dist, 'store-thread.js')]);
  delete process.env.FOOTPRINT_OURS;
  delete process.env.FOOTPRINT_NOTES;
}

/** A request is answered with the commit that holds it, which may be the next second's: others are under way meanwhile. */
const agent = new Agent({ keepAlive: true, maxSockets: 20 });

/** One request with so many values, of the tags from the given one on. */
function push(port: number, count: number, from: number): Promise<void> {
  const values = Array.from({ length: count }, (_, i) => {
    const tag = (from + i) % TAGS;
    return { tag: `T-${tag}`, key: `k${tag % TAGS_AN_ASSET}`, value: Math.round(Math.random() * 10_000) / 100 };
  });
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json' };
    const call = request({ port, host: '127.0.0.1', path: '/v1/values', method: 'POST', headers, agent }, (answer) => {
      answer
        .resume()
        .on('end', () => (answer.statusCode === 204 ? resolve() : reject(new Error(`${answer.statusCode}`))));
    });
    call.on('error', reject).end(JSON.stringify({ values }));
  });
}

/** Pushes `perSecond` values in requests of `each`, without waiting for an answer before the next is due. */
async function pushFor(seconds: number, port: number, each: number, perSecond = 100): Promise<void> {
  const pauseMs = (each / perSecond) * 1000;
  const rounds = Math.round((seconds * 1000) / pauseMs);
  const startedAt = performance.now();
  const answers: Promise<void>[] = [];
  for (let round = 0; round < rounds; round++) {
    answers.push(push(port, each, round * each));
    await delay(Math.max(0, startedAt + (round + 1) * pauseMs - performance.now()));
  }
  await Promise.all(answers);
}

const number = (value: number, digits = 1) => value.toFixed(digits);
const percent = (value: number) => `${number(value, 2)} %`;

async function measureStarts(): Promise<void> {
  const contenders = [
    { name: "bare Node, others' modules", args: BARE, starts: [] as number[][] },
    { name: 'bare Node, same modules', args: BARE_WITH_OURS, starts: [] as number[][] },
    { name: 'tagferry', args: DAEMON, starts: [] as number[][] },
  ];
  for (let round = 0; round < ROUNDS; round++) {
    for (const { args, starts } of contenders) {
      const { child, readyMs } = await start(args);
      const cpuMs = cpuOf(child.pid!) * 1000;
      await delay(SETTLE_MS);
      const { rss, own } = memoryOf(child.pid!);
      await end(child);
      starts.push([rss, own, readyMs, cpuMs]);
    }
  }
  const [others, same, daemon] = contenders.map(({ starts }) =>
    [0, 1, 2, 3].map((i) => median(starts.map((one) => one[i]!))),
  ) as [number[], number[], number[]];
  const row = (name: string, [rss, own, ready, cpu]: number[]) => [
    name,
    number(rss!),
    number(own!),
    number(ready!, 0),
    number(cpu!, 0),
  ];
  const beside = (name: string, figures: number[]) => [
    name,
    ...[0, 1].map((i) => `+${number(daemon[i]! - figures[i]!)}`),
    ...[2, 3].map((i) => `${number(daemon[i]! / figures[i]!, 2)} ×`),
  ];
  console.log(`Idle, ${TAGS} tags, empty buffer, platform there; medians of ${ROUNDS} starts, turn by turn`);
  console.log(
    table(
      ['', 'resident MB', 'own MB', 'READY ms', 'CPU ms until then'],
      [
        row(contenders[0]!.name, others),
        row(contenders[1]!.name, same),
        row('tagferry', daemon),
        beside("beside others' modules", others),
        beside('beside the same modules', same),
      ],
    ),
  );
}

async function measureCpu(): Promise<void> {
  const { child: bare } = await start(BARE);
  const { child: daemon, port } = await start(DAEMON);
  // What runs all day is compiled once: the first minute is not counted.
  await pushFor(60, port, 100);
  await delay(SETTLE_MS);
  const rows: string[][] = [];
  const during = async (what: string, work: () => Promise<unknown>) => {
    const before = [cpuOf(bare.pid!), cpuOf(daemon.pid!)] as const;
    const startedAt = performance.now();
    await work();
    const seconds = (performance.now() - startedAt) / 1000;
    const used = [cpuOf(bare.pid!) - before[0], cpuOf(daemon.pid!) - before[1]];
    rows.push([what, ...used.map((cpu) => percent((cpu / seconds) * 100)), number(memoryOf(daemon.pid!).rss)]);
  };
  await during('nothing is pushed', () => delay(SECONDS * 1000));
  await during('100 values/s, one request a second', () => pushFor(SECONDS, port, 100));
  await during('100 values/s, ten requests a second', () => pushFor(SECONDS, port, 10));
  await end(bare);
  await end(daemon);
  console.log(
    `\nCPU of one core over ${SECONDS} s each, default settings: a commit a second, posts to 50 assets in 10 s; after a minute of it`,
  );
  console.log(table(['', 'bare Node', 'tagferry', 'resident MB then'], rows));
}

const REQUEST_VALUES = 5_000;
const SENDERS = 4;

/** As fast as it is taken, until `isOver`. Gives how many. */
async function pushAll(port: number, isOver: (sent: number) => boolean): Promise<number> {
  let sent = 0;
  const sender = async () => {
    while (!isOver(sent)) {
      sent += REQUEST_VALUES;
      await push(port, REQUEST_VALUES, sent).catch(() => delay(50));
    }
  };
  await Promise.all(Array.from({ length: SENDERS }, sender));
  return sent;
}

/** The most that was resident from now on, in MB, as the kernel notes it. */
function forgetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
}
const peakOf = (pid: number) =>
  Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024;

/** The same daemon with much to do. The platform is away while the backlog comes in, and while it stands. */
async function measureLoad(url: string): Promise<void> {
  const rows: string[][] = [];
  const bounds = new MemoryBounds();
  const during = async (what: string, bound: number, pid: number, work: () => Promise<unknown>) => {
    forgetPeak(pid);
    await work();
    rows.push([what, number(memoryOf(pid).rss, 0), number(peakOf(pid), 0), String(bound)]);
  };
  configure(url, 'state-load');
  const there = await start(DAEMON, bounds);
  await delay(SETTLE_MS);
  await during(`nothing is pushed, ${TAGS} tags`, 95, there.child.pid!, () => delay(5_000));
  const startedAt = performance.now();
  await during('as many as it takes, platform there', 170, there.child.pid!, async () => {
    const sent = await pushAll(there.port, () => performance.now() - startedAt > SECONDS * 1000);
    rows.push([`(${number(sent / SECONDS / 1000, 0)} thousand values/s)`, '', '', '']);
  });
  await end(there.child);
  configure('http://127.0.0.1:1', 'state-away');
  const away = await start(DAEMON, bounds);
  await during(`${BACKLOG / 1e6} million come in, platform away`, 170, away.child.pid!, () =>
    pushAll(away.port, (sent) => sent >= BACKLOG),
  );
  await end(away.child);
  const steady = await start(DAEMON, bounds);
  await delay(SETTLE_MS);
  await during(`1,000 values/s beside ${BACKLOG / 1e6} million`, 130, steady.child.pid!, () =>
    pushFor(SECONDS, steady.port, 100, 1000),
  );
  await end(steady.child);
  const { kills } = bounds;
  await bounds.remove();
  console.log(
    `\nMemory under load: resident at the end and at most, and what is stated; ended for memory: ${kills} times`,
  );
  console.log(table(['', 'resident MB', 'at most MB', 'stated MB'], rows));
}

const platform = await startPlatform();
try {
  execFileSync(process.execPath, [join(root, 'scripts/build.ts')], { stdio: 'inherit' });
  configure(platform.url);
  if (options.only !== 'load') await noteModules();
  const started = [...Object.entries(variables).map((one) => one.join('=')), 'node', ...flags].join(' ');
  console.log(`Footprint; both are started by ${started}\n${machine()}\n`);
  if (options.only !== 'load') {
    await measureStarts();
    await measureCpu();
  }
  await measureLoad(platform.url);
} finally {
  agent.destroy();
  platform.close();
  rmSync(folder, { recursive: true, force: true });
}
