/**
 * Two builds of the agent at once, fed the same: what each takes of a core, and how much is resident. So a busy machine is as busy for one
 * as for the other. `node scripts/bench/beside.ts [--seconds N] [--rounds N] [--warm N] TREE TREE`, two checkouts in which
 * `scripts/build.ts` ran. Both are fed for `--warm` seconds before anything is measured: in its first minutes V8 compiles what turns out to
 * be used often, the more the more code there is, and a gateway runs for months.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { machine, table } from './measure.ts';

const { values: options, positionals: trees } = parseArgs({
  options: {
    seconds: { type: 'string', default: '40' },
    rounds: { type: 'string', default: '3' },
    warm: { type: 'string', default: '420' },
  },
  allowPositionals: true,
});
const SECONDS = Number(options.seconds);
const TAGS = 500;
const PER_SECOND = 100;
const WARM_SECONDS = Number(options.warm);

interface Running {
  child: ChildProcess;
  port: number;
}

/** A platform that signs everybody in and takes everything. */
const platform = createServer((incoming, answer) => {
  const token = { access_token: 'a', refresh_token: 'r', token_type: 'Bearer', expires_in: 3600 };
  incoming.resume().on('end', () => {
    if (!incoming.url?.includes('token')) answer.writeHead(204).end();
    else answer.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(token));
  });
});
await new Promise<void>((resolve) => platform.listen(0, '127.0.0.1', resolve));
const folder = mkdtempSync(join(tmpdir(), 'tagferry-beside-'));

/** Started as the package's command of that tree starts it. */
async function start(tree: string, name: string): Promise<Running> {
  const wrapper = readFileSync(join(tree, 'scripts/deb/wrapper'), 'utf8');
  const flags = /bin\/node ((?:--\S+ )+)\S*main\.js/.exec(wrapper)![1]!.trim().split(' ');
  const variables = Object.fromEntries(
    [...wrapper.matchAll(/export (\w+)=(\S+)/g)].map(([, key, value]) => [key, value]),
  );
  const config = join(folder, name);
  mkdirSync(config);
  const env = [
    `PLATFORM_URL=http://127.0.0.1:${(platform.address() as AddressInfo).port}`,
    ...['CLIENT_ID', 'CLIENT_SECRET', 'TECHNICAL_USERNAME', 'TECHNICAL_PASSWORD'].map((key) => `${key}=bench`),
    ...['INGEST_LISTEN', 'OPS_LISTEN', 'WEBHOOK_LISTEN'].map((key) => `${key}=127.0.0.1:0`),
    'LOG_FORMAT=json',
    `STATE_DIR=${join(folder, `${name}-state`)}`,
  ];
  writeFileSync(join(config, 'agent.env'), `${env.join('\n')}\n`, { mode: 0o600 });
  const tags = Array.from({ length: TAGS }, (_, at) => {
    const members = `asset: ${1 + Math.floor(at / 10)}, instrumentation: ${1000 + at}`;
    return `  T-${at}: { ${members}, values: { k${at % 10}: { unit: 12, group: process } } }`;
  });
  writeFileSync(join(config, 'tags.yaml'), `tags:\n${tags.join('\n')}\n`);
  const args = [...flags, join(tree, 'dist/main.js'), 'run', '--config', config];
  const child = spawn(join(tree, 'node_modules/.bin/node'), args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...variables },
  });
  let output = '';
  await new Promise<void>((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`${tree} ended with ${code}\n${output}`)));
    child.stdout!.on('data', (chunk) => {
      output += chunk;
      if (output.includes('"agent.ready"')) resolve();
    });
  });
  child.removeAllListeners('exit');
  child.stdout!.removeAllListeners('data').resume();
  return { child, port: Number(/"ingest.listening"[^\n]*"port":(\d+)/.exec(output)![1]) };
}

const agent = new Agent({ keepAlive: true, maxSockets: 20 });

function push(port: number, count: number, from: number): Promise<void> {
  const values = Array.from({ length: count }, (_, at) => {
    const tag = (from + at) % TAGS;
    return { tag: `T-${tag}`, key: `k${tag % 10}`, value: ((from + at) % 1_000) / 8 };
  });
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json' };
    const call = request({ port, host: '127.0.0.1', path: '/v1/values', method: 'POST', headers, agent }, (answer) => {
      const end = () => (answer.statusCode === 204 ? resolve() : reject(new Error(`${answer.statusCode}`)));
      answer.resume().on('end', end);
    });
    call.on('error', reject).end(JSON.stringify({ values }));
  });
}

/** The same to both, without waiting for an answer before the next is due. */
async function pushFor(seconds: number, each: number): Promise<void> {
  const startedAt = performance.now();
  const answers: Promise<void>[] = [];
  for (let round = 0; round < (seconds * PER_SECOND) / each; round++) {
    for (const { port } of running) answers.push(push(port, each, round * each));
    await delay(Math.max(0, startedAt + ((round + 1) * each * 1000) / PER_SECOND - performance.now()));
  }
  await Promise.all(answers);
}

/** CPU seconds of all threads that live, as the scheduler counted them. */
function cpuOf({ child }: Running): number {
  const tasks = `/proc/${child.pid}/task`;
  const ns = readdirSync(tasks).map((task) =>
    Number(readFileSync(join(tasks, task, 'schedstat'), 'utf8').split(' ')[0]),
  );
  return ns.reduce((sum, one) => sum + one, 0) / 1e9;
}

function residentOf({ child }: Running): number {
  return Number(/^Rss: +(\d+) kB/m.exec(readFileSync(`/proc/${child.pid}/smaps_rollup`, 'utf8'))![1]) / 1024;
}

const running: Running[] = [];
try {
  if (trees.length !== 2) throw new Error('name two built trees');
  for (const [at, tree] of trees.entries()) running.push(await start(tree, `tree-${at}`));
  const rows: string[][] = [];
  const during = async (what: string, work: () => Promise<unknown>) => {
    const before = running.map(cpuOf);
    const startedAt = performance.now();
    await work();
    const seconds = (performance.now() - startedAt) / 1000;
    const [first, second] = running.map((one, at) => ((cpuOf(one) - before[at]!) / seconds) * 100) as [number, number];
    const resident = running.map((one) => residentOf(one).toFixed(0));
    rows.push([what, `${first.toFixed(2)} %`, `${second.toFixed(2)} %`, (second / first).toFixed(2), ...resident]);
  };
  await pushFor(WARM_SECONDS, PER_SECOND);
  for (let round = 0; round < Number(options.rounds); round++) {
    await during('nothing is pushed', () => delay(SECONDS * 1000));
    await during(`${PER_SECOND} values/s, one request a second`, () => pushFor(SECONDS, PER_SECOND));
    await during(`${PER_SECOND} values/s, ten requests a second`, () => pushFor(SECONDS, PER_SECOND / 10));
  }
  console.log(`Two trees at once, ${SECONDS} s each, after ${WARM_SECONDS} s\n${machine()}\n`);
  console.log(table(['', 'first', 'second', 'ratio', 'MB', 'MB'], rows));
} finally {
  for (const { child } of running) child.kill('SIGKILL');
  platform.close();
  agent.destroy();
  rmSync(folder, { recursive: true, force: true });
}
