/**
 * Rules on local values, with the platform unavailable: the time from a push to the start of a reaction, compared with
 * a bare program that posts immediately, and the cost of 500 rules on other tags for ingest, compared with none. `node
 * scripts/bench/value-rules.ts [--seconds N] [--rounds N]`.
 */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { AgentProcess } from '../../test/e2e/harness/agent-process.ts';
import { machine, median, table } from './measure.ts';
import { awayPlatform, pause } from './on-disk.ts';

const { values: options } = parseArgs({
  options: { seconds: { type: 'string', default: '30' }, rounds: { type: 'string', default: '5' } },
});
const SECONDS = Number(options.seconds);
const ROUNDS = Number(options.rounds);
/** Values per second in addition to the watched one, in requests of 20. */
const LOAD = 1_000;
const PER_REQUEST = 20;
const CROSSING_MS = 250;
const RULES = 500;
const INGEST_VALUES = 200_000;

/** Receives the posts of reactions and records their arrival by value. */
class Receiver {
  readonly arrivals = new Map<number, number>();
  readonly #server: Server = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk) => {
      text += chunk;
    });
    request.on('end', () => {
      this.arrivals.set(Number(text), performance.now());
      response.writeHead(204).end();
    });
  });

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** A program that posts each value above the threshold immediately, without storing anything. */
async function startBare(target: string): Promise<{ url: string; stop(): void }> {
  const pool = new Pool(new URL(target).origin, { connections: 4 });
  const server = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk) => {
      text += chunk;
    });
    request.on('end', () => {
      response.writeHead(204).end();
      for (const { key, value } of (JSON.parse(text) as { values: { key: string; value: number }[] }).values) {
        if (key !== 'watched' || value <= 0) continue;
        void pool.request({ path: '/', method: 'POST', body: String(value) }).then(({ body }) => body.dump());
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () => {
      server.closeAllConnections();
      server.close();
      void pool.close();
    },
  };
}

const tagsWith = (count: number) =>
  `tags:\n  W: { asset: 1, values: { watched: {} } }\n${Array.from({ length: count }, (_, at) => `  T-${at}: { asset: ${at + 2}, values: { v: {} } }\n`).join('')}`;

async function startAgent(sandboxUrl: string, reactions: string): Promise<{ agent: AgentProcess; url: string }> {
  const agent = new AgentProcess(sandboxUrl, {
    tags: tagsWith(RULES),
    reactions,
    env: { INGEST_LISTEN: '127.0.0.1:0' },
  });
  await agent.start();
  const listening = agent.logged('ingest.listening')[0] as { port: number };
  return { agent, url: `http://127.0.0.1:${listening.port}` };
}

const valuesOf = (values: object[]) => JSON.stringify({ values });

/** Exceeds the threshold once per cycle, under load. Returns the latencies in milliseconds. */
async function latencies(url: string, receiver: Receiver): Promise<number[]> {
  const pool = new Pool(url, { connections: 8, pipelining: 1 });
  const post = async (body: string) => {
    const { body: answer } = await pool.request({
      path: '/v1/values',
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json' },
    });
    await answer.dump();
  };
  const sent = new Map<number, number>();
  const end = performance.now() + SECONDS * 1000;
  let serial = 0;
  const load = async () => {
    for (let due = performance.now(); due < end; due += (1000 * PER_REQUEST) / LOAD) {
      await pause(Math.max(0, due - performance.now()));
      const filler = Array.from({ length: PER_REQUEST }, (_, at) => ({ tag: `T-${at}`, key: 'v', value: serial + at }));
      void post(valuesOf(filler));
    }
  };
  const cross = async () => {
    while (performance.now() < end) {
      const value = ++serial;
      sent.set(value, performance.now());
      void post(valuesOf([{ tag: 'W', key: 'watched', value }]));
      await pause(CROSSING_MS / 2);
      void post(valuesOf([{ tag: 'W', key: 'watched', value: -value }]));
      await pause(CROSSING_MS / 2);
    }
  };
  await Promise.all([load(), cross()]);
  await pause(3_000);
  await pool.close();
  const missing = [...sent.keys()].filter((value) => !receiver.arrivals.has(value));
  if (missing.length > 0) throw new Error(`${missing.length} of ${sent.size} crossings caused no reaction`);
  return [...sent].map(([value, atMs]) => receiver.arrivals.get(value)! - atMs).sort((a, b) => a - b);
}

async function ingest(url: string): Promise<number> {
  const perRequest = 1_000;
  const pool = new Pool(url, { connections: 8, pipelining: 1 });
  const body = valuesOf(
    Array.from({ length: perRequest }, (_, at) => ({ asset: 10_000 + (at % 100), key: 'k', value: at })),
  );
  const begin = performance.now();
  let left = INGEST_VALUES / perRequest;
  const worker = async () => {
    while (left-- > 0) {
      const answer = await pool.request({
        path: '/v1/values',
        method: 'POST',
        body,
        headers: { 'content-type': 'application/json' },
      });
      await answer.body.dump();
      if (answer.statusCode !== 204) throw new Error(`response ${answer.statusCode}`);
    }
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  await pool.close();
  return INGEST_VALUES / ((performance.now() - begin) / 1000);
}

const at = (sorted: readonly number[], share: number) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!.toFixed(1);

console.log(`Rules on local values, ${LOAD} values/s, platform unavailable\n${machine()}\n`);
const sandbox = await awayPlatform();
const receiver = new Receiver();
const target = await receiver.start();
const rule = `  - { name: high, on: value, if: { tag: W, key: watched, above: 0 }, do: [{ post: "${target}", body: "{{content.data.value}}" }] }\n`;
try {
  const { agent, url } = await startAgent(sandbox.url, `reactions:\n${rule}`);
  const own = await latencies(url, receiver);
  await agent.dispose();
  receiver.arrivals.clear();
  const bare = await startBare(target);
  const other = await latencies(bare.url, receiver);
  bare.stop();
  const row = (name: string, sorted: number[]) => [
    name,
    String(sorted.length),
    at(sorted, 0.5),
    at(sorted, 0.99),
    at(sorted, 1),
  ];
  console.log(
    table(
      ['push to reaction', 'crossings', 'p50, ms', 'p99, ms', 'max, ms'],
      [row('tagferry', own), row('bare program', other)],
    ),
  );

  const others = Array.from(
    { length: RULES },
    (_, n) => `  - { name: r${n}, on: value, if: { tag: T-${n}, key: v, above: 5 }, do: [{ log: info }] }\n`,
  );
  const without = await startAgent(sandbox.url, 'reactions: []\n');
  const withRules = await startAgent(sandbox.url, `reactions:\n${others.join('')}`);
  const rates: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    rates[0].push(await ingest(without.url));
    rates[1].push(await ingest(withRules.url));
  }
  await without.agent.dispose();
  await withRules.agent.dispose();
  const [none, many] = rates.map(median) as [number, number];
  const perSecond = (rate: number) => `${(rate / 1000).toFixed(0)} k/s`;
  console.log(
    `\n${table(
      ['ingest', 'values', 'share'],
      [
        ['without rules', perSecond(none), '1.00'],
        [`${RULES} rules on other tags`, perSecond(many), (many / none).toFixed(2)],
      ],
    )}`,
  );
} finally {
  receiver.stop();
  await sandbox.stop();
}
