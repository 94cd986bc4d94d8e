/**
 * Measures the cost of a mostly idle agent: memory with 500 tags and an empty buffer, CPU at 100 values/s, and time to
 * READY, compared with a bare Node process with the same modules, alternating in one run. Then memory under load within
 * the bounds of `systemd/examples/bounds.conf` (requires root): at 1,000 values/s with a backlog, and at the maximum
 * rate.
 * `node scripts/bench/footprint.ts [--rounds N] [--seconds N] [--millions N] [--only load]`.
 *
 * All programs are built, and run with the flags and variables of the installed agent (`scripts/deb/wrapper`). The
 * bare process loads the modules that the idle agent has loaded, in the same order, as recorded by a hook. Its worker
 * thread does the same and opens an SQLite database in memory. It runs with and without tagferry's own modules. The
 * platform is an HTTP server on loopback that accepts everything.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { MemoryBounds } from '../../test/host/memory-bounds.ts';
import { asPackaged } from '../../test/host/packaged.ts';
import { machine, median, memoryOf, processUsage, resetPeak, table } from './measure.ts';

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
/** Time after READY until startup garbage is collected. */
const SETTLE_MS = 12_000;

const root = join(import.meta.dirname, '../..');
const folder = mkdtempSync(join(tmpdir(), 'tagferry-footprint-'));
const dist = join(root, 'dist');
const config = join(folder, 'config');
const notes = { main: join(folder, 'main.notes'), thread: join(folder, 'thread.notes') };
/** Flags and variables of the package's command. */
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
/** The same with tagferry's own modules loaded but not run. */
const BARE_WITH_OURS = bare('');

interface Started {
  child: ChildProcess;
  readyMs: number;
  /** Port of `ingest.listening`. */
  port: number;
}

/** Starts a program, optionally in a control group, and waits for READY. */
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

/** Starts a platform that accepts every login and post. */
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

/** Records the modules that the agent and its thread load. */
async function noteModules(): Promise<void> {
  const hook = ['--import', join(import.meta.dirname, 'footprint-modules.mjs')];
  process.env.FOOTPRINT_OURS = OURS;
  process.env.FOOTPRINT_NOTES = notes.main;
  const { child, port } = await start([...hook, ...DAEMON]);
  // Some modules are loaded with the first values and posts.
  await push(port, 100, 0);
  await delay(3000);
  await end(child, 'SIGTERM');
  process.env.FOOTPRINT_NOTES = notes.thread;
  execFileSync(process.execPath, [...hook, join(dist, 'store-thread.js')]);
  delete process.env.FOOTPRINT_OURS;
  delete process.env.FOOTPRINT_NOTES;
}

/** A response may wait up to one second for the next commit, so several connections are used. */
const agent = new Agent({ keepAlive: true, maxSockets: 20 });

/** Sends one request with `count` values, starting at a tag. */
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

/** Pushes `perSecond` values in requests of `each`, without waiting for responses. */
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
    { name: 'bare Node, third-party modules', args: BARE, starts: [] as number[][] },
    { name: 'bare Node, all modules', args: BARE_WITH_OURS, starts: [] as number[][] },
    { name: 'tagferry', args: DAEMON, starts: [] as number[][] },
  ];
  for (let round = 0; round < ROUNDS; round++) {
    for (const { args, starts } of contenders) {
      const { child, readyMs } = await start(args);
      const cpuMs = processUsage(child.pid!).cpuWithChildren * 1000;
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
  const compared = (name: string, figures: number[]) => [
    name,
    ...[0, 1].map((i) => `+${number(daemon[i]! - figures[i]!)}`),
    ...[2, 3].map((i) => `${number(daemon[i]! / figures[i]!, 2)} ×`),
  ];
  console.log(`Idle, ${TAGS} tags, empty buffer, platform available; medians of ${ROUNDS} alternating starts`);
  console.log(
    table(
      ['', 'resident MB', 'own MB', 'READY ms', 'CPU ms until READY'],
      [
        row(contenders[0]!.name, others),
        row(contenders[1]!.name, same),
        row('tagferry', daemon),
        compared('compared with third-party modules', others),
        compared('compared with all modules', same),
      ],
    ),
  );
}

async function measureCpu(): Promise<void> {
  const { child: bare } = await start(BARE);
  const { child: daemon, port } = await start(DAEMON);
  // The first minute is not counted, because code is still being compiled.
  await pushFor(60, port, 100);
  await delay(SETTLE_MS);
  const rows: string[][] = [];
  const during = async (what: string, work: () => Promise<unknown>) => {
    const before = [processUsage(bare.pid!).cpuWithChildren, processUsage(daemon.pid!).cpuWithChildren] as const;
    const startedAt = performance.now();
    await work();
    const seconds = (performance.now() - startedAt) / 1000;
    const used = [
      processUsage(bare.pid!).cpuWithChildren - before[0],
      processUsage(daemon.pid!).cpuWithChildren - before[1],
    ];
    rows.push([what, ...used.map((cpu) => percent((cpu / seconds) * 100)), number(memoryOf(daemon.pid!).rss)]);
  };
  await during('no values', () => delay(SECONDS * 1000));
  await during('100 values/s, one request per second', () => pushFor(SECONDS, port, 100));
  await during('100 values/s, ten requests per second', () => pushFor(SECONDS, port, 10));
  await end(bare);
  await end(daemon);
  console.log(
    `\nCPU usage of one core, ${SECONDS} s each after a minute of load; default settings: one commit per second, posts to 50 assets every 10 s`,
  );
  console.log(table(['', 'bare Node', 'tagferry', 'resident MB afterwards'], rows));
}

const REQUEST_VALUES = 5_000;
const SENDERS = 4;

/** Pushes at the maximum rate until `isOver`. Returns the number of values. */
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

/** Measures the agent under load. The platform remains unavailable, so that the backlog is filled and not drained. */
async function measureLoad(url: string): Promise<void> {
  const rows: string[][] = [];
  const bounds = new MemoryBounds();
  const during = async (what: string, bound: number, pid: number, work: () => Promise<unknown>) => {
    resetPeak(pid);
    await work();
    rows.push([what, number(memoryOf(pid).rss, 0), number(memoryOf(pid).peak, 0), String(bound)]);
  };
  configure(url, 'state-load');
  const there = await start(DAEMON, bounds);
  await delay(SETTLE_MS);
  await during(`no values, ${TAGS} tags`, 95, there.child.pid!, () => delay(5_000));
  const startedAt = performance.now();
  await during('maximum rate, platform available', 170, there.child.pid!, async () => {
    const sent = await pushAll(there.port, () => performance.now() - startedAt > SECONDS * 1000);
    rows.push([`(${number(sent / SECONDS / 1000, 0)} thousand values/s)`, '', '', '']);
  });
  await end(there.child);
  configure('http://127.0.0.1:1', 'state-away');
  const away = await start(DAEMON, bounds);
  await during(`${BACKLOG / 1e6} million ingested, platform unavailable`, 170, away.child.pid!, () =>
    pushAll(away.port, (sent) => sent >= BACKLOG),
  );
  await end(away.child);
  const steady = await start(DAEMON, bounds);
  await delay(SETTLE_MS);
  await during(`1,000 values/s with a backlog of ${BACKLOG / 1e6} million`, 130, steady.child.pid!, () =>
    pushFor(SECONDS, steady.port, 100, 1000),
  );
  await end(steady.child);
  const { kills } = bounds;
  await bounds.remove();
  console.log(`\nMemory under load: resident at the end, peak, and documented value; out-of-memory kills: ${kills}`);
  console.log(table(['', 'resident MB', 'peak MB', 'documented MB'], rows));
}

const platform = await startPlatform();
try {
  execFileSync(process.execPath, [join(root, 'scripts/build.ts')], { stdio: 'inherit' });
  configure(platform.url);
  if (options.only !== 'load') await noteModules();
  const started = [...Object.entries(variables).map((one) => one.join('=')), 'node', ...flags].join(' ');
  console.log(`Footprint; all processes are started with ${started}\n${machine()}\n`);
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
