/**
 * The sandbox at speed: so many posts a second to a site of 2,000 assets, each told to one of 200 webhooks, with the sandbox held to one
 * core. Beside it, in the same run, a bare node:http server that parses, answers 204, signs and delivers. `[--rate N] [--seconds N]`.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { stringify } from 'yaml';
import { machine, median, table } from './measure.ts';

const { values: options } = parseArgs({
  options: { rate: { type: 'string', default: '500' }, seconds: { type: 'string', default: '20' } },
});
const RATE = Number(options.rate);
const SECONDS = Number(options.seconds);
const ASSETS = 2_000;
const WEBHOOKS = 200;
const CORE = '0';
const OTHER_CORE = '1';
const CLOCK_TICKS = 100;
const POLL_MS = 100;

/** One gateway that posts to all assets; 200 subscriptions, whose technical users each read ten. */
function seed(): string {
  const assets = Array.from({ length: ASSETS }, (_, i) => ({ id: 1_000 + i, serial_number: `S${i}` }));
  const instrumentations = assets.map(({ id }, i) => ({ id: 100_000 + i, tag: `T-${i}`, assets: [id] }));
  const readers = Array.from({ length: WEBHOOKS }, (_, i) => i);
  return stringify({
    users: [
      { id: 1, email: 'gateway@bench.example', password: 'p', technical: true },
      ...readers.map((i) => ({ id: 10 + i, email: `reader${i}@bench.example`, password: 'p', technical: true })),
    ],
    client_applications: [
      { id: 3, name: 'gateway', client_id: 'gateway', client_secret: 's', technical_user: 'gateway@bench.example' },
      ...readers.map((i) => ({
        id: 500 + i,
        name: `reader ${i}`,
        client_id: `reader${i}`,
        client_secret: 's',
        technical_user: `reader${i}@bench.example`,
      })),
    ],
    units: [{ id: 12, code: 'cubic_meter_per_hour', symbol: 'm³/h' }],
    assets,
    instrumentations,
    permissions: [
      ...assets.map(({ id }) => ({ user: 'gateway@bench.example', on: { Asset: id }, types: ['can_update'] })),
      ...assets.map(({ id }, i) => ({
        user: `reader${i % WEBHOOKS}@bench.example`,
        on: { Asset: id },
        types: ['can_read'],
      })),
    ],
  });
}

interface Server {
  name: string;
  child: ChildProcess;
  url: string;
  /** Headers of a post. */
  headers: Record<string, string>;
}

function launch(args: string[], pattern: RegExp): Promise<{ child: ChildProcess; url: string }> {
  const child = spawn('taskset', ['-c', CORE, process.execPath, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  return new Promise((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`${args[0]} ended with ${code}\n${output}`)));
    child.stdout!.on('data', (chunk) => {
      output += chunk;
      const found = pattern.exec(output);
      if (found) resolve({ child, url: found[1]! });
    });
  });
}

async function startSandbox(file: string): Promise<Server> {
  const main = join(import.meta.dirname, '../../src/sandbox/main.ts');
  const flags = ['--listen', '127.0.0.1:0', '--quiet', '--per-minute', '0', '--values', 'count', '--seed', file];
  const { child, url } = await launch([main, ...flags], /PLATFORM_URL=(\S+)/);
  const tokenOf = async (user: string, client: string) => {
    const body = new URLSearchParams({
      grant_type: 'password',
      username: `${user}@bench.example`,
      password: 'p',
      client_id: client,
      client_secret: 's',
    });
    const answer = await fetch(`${url}/oauth/token`, { method: 'POST', body });
    return ((await answer.json()) as { access_token: string }).access_token;
  };
  for (let i = 0; i < WEBHOOKS; i++) {
    const token = await tokenOf(`reader${i}`, `reader${i}`);
    const answer = await fetch(`${url}/v1/client_applications/${500 + i}/webhooks`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ url: receiverUrl, event_types: ['asset_values_created'] }),
    });
    if (answer.status !== 201) throw new Error(`a webhook was answered ${answer.status}: ${await answer.text()}`);
  }
  return { name: 'sandbox', child, url, headers: { authorization: `Bearer ${await tokenOf('gateway', 'gateway')}` } };
}

async function startBare(): Promise<Server> {
  const file = join(import.meta.dirname, 'bare-platform.ts');
  const { child, url } = await launch([file, receiverUrl], /listening (\S+)/);
  return { name: 'bare server', child, url, headers: {} };
}

/** When a delivery of a post came, by the number that it carries. */
const arrivedMs = new Map<number, number>();
const receiver = createServer((request, response) => {
  let text = '';
  request.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  request.on('end', () => {
    arrivedMs.set(Number(/"value":(\d+)/.exec(text)?.[1]), performance.now());
    response.writeHead(204).end();
  });
});
await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
const receiverUrl = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;

/** CPU seconds of another process, so far. */
function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS;
}

interface Run {
  perSecond: number;
  cpuShare: number;
  answers: number[];
  deliveries: number[];
  undelivered: number;
  /** How far its clock's telling of the time is behind ours at most, milliseconds: it answers late what it is asked. */
  behindMs: number;
}

let serial = 1_000_000;

async function feed(server: Server): Promise<Run> {
  const pool = new Pool(server.url, { connections: 64, pipelining: 1 });
  const answers: number[] = [];
  const sentMs = new Map<number, number>();
  const polls: Promise<number>[] = [];
  const cpu = cpuSeconds(server.child.pid!);
  const start = performance.now();
  const under: Promise<void>[] = [];
  const post = async (): Promise<void> => {
    const number = serial++;
    const at = performance.now();
    sentMs.set(number, at);
    const data = [0, 1, 2, 3, 4].map((i) => ({
      timestamp: new Date(Date.now() - i * 1000).toISOString(),
      value: number,
    }));
    const body = JSON.stringify({ values: [{ key: 'flow', unit: { id: 12 }, data }] });
    const path = `/v1/assets/${1_000 + (number % ASSETS)}/values`;
    const headers = { ...server.headers, 'content-type': 'application/json' };
    const answer = await pool.request({ path, method: 'POST', body, headers });
    await answer.body.dump();
    if (answer.statusCode !== 204) throw new Error(`${server.name} answered ${answer.statusCode}`);
    answers.push(performance.now() - at);
  };
  const poll = async (): Promise<number> => {
    const at = performance.now();
    await (await fetch(`${server.url}/`)).arrayBuffer();
    return performance.now() - at;
  };
  let nextPoll = 0;
  // By the clock and not by the answers: who falls behind is asked all the same.
  for (let sent = 0; sent < RATE * SECONDS; ) {
    const due = Math.min(RATE * SECONDS, Math.floor(((performance.now() - start) / 1000) * RATE));
    for (; sent < due; sent++) under.push(post());
    if (performance.now() - start >= nextPoll) {
      polls.push(poll());
      nextPoll += POLL_MS;
    }
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  await Promise.all(under);
  const seconds = (performance.now() - start) / 1000;
  const cpuShare = (cpuSeconds(server.child.pid!) - cpu) / seconds;
  const behindMs = Math.max(...(await Promise.all(polls)));
  for (let i = 0; i < 100 && [...sentMs.keys()].some((number) => !arrivedMs.has(number)); i++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await pool.close();
  const deliveries = [...sentMs].flatMap(([number, at]) =>
    arrivedMs.has(number) ? [arrivedMs.get(number)! - at] : [],
  );
  return {
    perSecond: answers.length / seconds,
    cpuShare,
    answers,
    deliveries,
    undelivered: sentMs.size - deliveries.length,
    behindMs,
  };
}

const percentile = (numbers: number[], share: number) =>
  [...numbers].sort((a, b) => a - b)[Math.min(numbers.length - 1, Math.floor(numbers.length * share))] ?? Number.NaN;
const ms = (number: number) => `${number.toFixed(1)} ms`;

spawn('taskset', ['-p', '-c', OTHER_CORE, String(process.pid)], { stdio: 'ignore' });
const folder = mkdtempSync(join(tmpdir(), 'sandbox-bench-'));
const servers: Server[] = [];
try {
  const file = join(folder, 'site.yaml');
  writeFileSync(file, seed());
  console.log(
    `${RATE} posts a second of 5 values to ${ASSETS} assets for ${SECONDS} s, each told to one of ${WEBHOOKS} webhooks; one core\n${machine()}\n`,
  );
  servers.push(await startBare(), await startSandbox(file));
  const rows: string[][] = [];
  let bare: Run | undefined;
  for (const server of servers) {
    await feed(server);
    const run = await feed(server);
    bare ??= run;
    rows.push([
      server.name,
      run.perSecond.toFixed(0),
      `${(100 * run.cpuShare).toFixed(0)} %`,
      (run.cpuShare / run.perSecond / (bare.cpuShare / bare.perSecond)).toFixed(2),
      ms(median(run.answers)),
      ms(percentile(run.answers, 0.99)),
      ms(percentile(run.deliveries, 0.99)),
      ms(run.behindMs),
      String(run.undelivered),
    ]);
  }
  console.log(
    table(
      [
        'server',
        'posts/s',
        'of the core',
        'of bare',
        'answer',
        '99 %',
        'delivered 99 %',
        'slowest look',
        'undelivered',
      ],
      rows,
    ),
  );
} finally {
  for (const { child } of servers) child.kill('SIGKILL');
  receiver.closeAllConnections();
  receiver.close();
  rmSync(folder, { recursive: true, force: true });
}
