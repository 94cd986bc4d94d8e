/**
 * A hostile day in a minute: what befalls a gateway, in an order and a mixture that a seed decides. A plant pushes all the
 * while; in the end everything that was acknowledged is on the platform, and nothing else.
 *
 * `HOSTILE_SEED=7 vitest run test/process/hostile-day.test.ts` repeats a day.
 */
import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createConnection, type Socket } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { GatewayProcess } from './gateway-process.ts';
import { VALUE_TAGS, ValuePlant } from './value-plant.ts';

const SEED = Number(process.env.HOSTILE_SEED ?? 1 + (Date.now() % 1_000_000));
const HAPPENINGS = 36;
const MAX_SERIES = 3_000;
const MiB = 2 ** 20;
/** What stands in the platform's place at a hotel, a proxy, a plant's gateway. */
const PORTAL_ANSWERS = [
  { status: 200, body: '<html>please sign in</html>', contentType: 'text/html' },
  { status: 200, body: { errors: ['no'] } },
  { status: 202, body: { errors: ['later'] } },
  { status: 207, body: { errors: ['some'] } },
];

let sandbox: Sandbox;
let agent: GatewayProcess;
let chance: ManualClock;
const strangers = new Set<Socket>();

const env = (more: Record<string, string> = {}) => ({
  POST_INTERVAL: '100ms',
  POST_MAX_VALUES: '200',
  MAX_SERIES: String(MAX_SERIES),
  OPS_LISTEN: '127.0.0.1:0',
  ...more,
});
const tags = `tags:\n${VALUE_TAGS}`;

beforeEach(async () => {
  chance = new ManualClock(0, SEED);
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new GatewayProcess(sandbox.url, { tags, env: env() });
});
afterEach(async () => {
  for (const socket of strangers) socket.destroy();
  await agent.dispose();
  await sandbox.stop();
});

const upTo = (count: number) => Math.floor(chance.random() * count);

/** The wall clock moves as the file says; see `moved-clock.mjs`. */
const moveClock = (ms: number) => writeFileSync(join(agent.folder, 'moved'), String(ms));
const start = () =>
  agent.start({
    NODE_OPTIONS: `--import=${pathToFileURL(join(import.meta.dirname, 'moved-clock.mjs')).href}`,
    MOVED_CLOCK: join(agent.folder, 'moved'),
  });

/** A request to the operators' listener, whose port is another after each start. */
function ops(path: string, headers: Record<string, string> = {}): Promise<{ status: number; text: string }> {
  const address = JSON.stringify(agent.logged('ops.listening').at(-1)!.address);
  const port = Number(/(\d{2,5})\D*$/.exec(address)![1]);
  return new Promise((resolve, reject) => {
    request({ host: '127.0.0.1', port, path, headers, agent: false }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
    })
      .on('error', reject)
      .end();
  });
}

async function buffered(): Promise<number> {
  const { text } = await ops('/metrics');
  return Number(/^tagferry_buffer_values (\S+)$/m.exec(text)?.[1] ?? Number.NaN);
}

/** Answered, refused or cut off, all the same: the daemon is to live. */
async function offer(body: string | Buffer): Promise<number> {
  const headers = { 'Content-Type': 'application/json' };
  const answer = await agent.call(agent.ingest, '/v1/values', { body, headers }).catch(() => undefined);
  return answer?.status ?? 0;
}

async function kill(): Promise<void> {
  expect(await agent.end('SIGKILL')).toBe('SIGKILL');
  await start();
}

async function reload(files: { env: Record<string, string>; tags: string }): Promise<void> {
  const told = () => agent.logged('config.reloaded').length + agent.logged('config.refused').length;
  const before = told();
  agent.write(sandbox.url, files);
  agent.signal('SIGHUP');
  await agent.until(() => told() > before, 'the reload has its verdict');
}

let keys = 0;
const HAPPENING: Record<string, () => Promise<unknown> | unknown> = {
  portal: () => sandbox.faults.add({ path: '/v1/assets/*', ...PORTAL_ANSWERS[upTo(4)]!, times: 1 + upTo(20) }),
  'lost answers': () => sandbox.faults.add({ path: '/v1/assets/*', drop: 'after', times: 1 + upTo(5) }),
  outage: () => sandbox.goOffline(chance.random() < 0.5 ? 'refuse' : 'refuse'),
  return: () => sandbox.goOnline(),
  'smaller bound': () => reload({ env: env({ BUFFER_MAX_BYTES: '64MiB', MAX_SERIES: '100' }), tags }),
  'larger bound': () => reload({ env: env(), tags }),
  'hostile files': () => reload({ env: env(), tags: `${tags}  X: ${'a'.repeat(200_000)}\n` }),
  'unknown series': async () => {
    const values = Array.from({ length: 2_000 }, () => ({ asset: 881, key: `flood.${keys++}`, value: 1 }));
    expect([0, 204, 422, 503]).toContain(await offer(JSON.stringify({ values })));
  },
  'slow strangers': () => {
    for (const path of [agent.ingest, agent.webhook]) {
      for (let i = 0; i < 40; i++) {
        const socket = createConnection(path);
        strangers.add(socket);
        socket.on('error', () => {}).on('close', () => strangers.delete(socket));
        if (i % 2 === 0) socket.write('POST /v1/values HTTP/1.1\r\nHost: x\r\nContent-Le');
      }
    }
  },
  'kill -9': kill,
  'foreign Host': async () => {
    const { status, text } = await ops('/status', { Host: 'evil.example' });
    expect(status).toBe(421);
    expect(text).not.toContain('"buffer"');
  },
  'huge body': async () => {
    const bodies = [
      () => Buffer.alloc(9 * MiB, ' '),
      () => '['.repeat(7 * MiB),
      () => `{"values":[${'{},'.repeat(2 * MiB)}{}]}`,
      () => `{"values":${'{"a":'.repeat(MiB)}1${'}'.repeat(MiB)}}`,
    ];
    expect([0, 400, 413, 422, 503]).toContain(await offer(bodies[upTo(bodies.length)]!()));
  },
  'clock step': () => moveClock(Math.round((chance.random() - 0.5) * 2 * 6 * 3_600_000)),
};

it(`loses and invents nothing, whatever comes, seed ${SEED}`, { timeout: 240_000 }, async () => {
  moveClock(0);
  await start();
  const plant = new ValuePlant(agent, 5);
  const names = Object.keys(HAPPENING);
  const day: string[] = [];
  // Each once, the rest by chance, in an order by chance.
  const order = [...names, ...Array.from({ length: HAPPENINGS - names.length }, () => names[upTo(names.length)]!)];
  for (let i = order.length - 1; i > 0; i--) {
    const other = upTo(i + 1);
    [order[i], order[other]] = [order[other]!, order[i]!];
  }
  for (const name of order) {
    day.push(name);
    try {
      await HAPPENING[name]!();
    } catch (error) {
      throw new Error(`seed ${SEED}, after ${day.join(', ')}`, { cause: error });
    }
    // The length of a pause is part of the day, not waited for: the plant pushes meanwhile.
    await new Promise((resolve) => setTimeout(resolve, 50 + upTo(600)));
  }
  for (const socket of strangers) socket.destroy();
  sandbox.faults.clear();
  await sandbox.goOnline();
  await plant.stop();
  await reload({ env: env(), tags });
  await agent.until(
    async () => (await buffered()) === 0,
    `the buffer is empty, seed ${SEED}: ${day.join(', ')}`,
    90_000,
  );
  const { acknowledged, ...wrong } = plant.count(sandbox);
  expect(wrong, `seed ${SEED}: ${day.join(', ')}`).toEqual({ missing: 0, invented: 0, different: 0 });
  expect(acknowledged).toBeGreaterThan(500);
});
