/**
 * Measures the agent, and optionally a second build in the same run: `scripts/bench/run gates MODE [--base COMMIT]
 * [--seconds N] [--rounds N] [--minutes N]`. Modes:
 *
 * - `latency`: time until a 204, 20 clients that push 10 values at a time; platform available.
 * - `mqtt`: commits per COMMIT_INTERVAL, ten topics at 1 Hz with QoS 1; platform available.
 * - `outage`: bytes stored and written per value, 500 tags every 10 s; platform unavailable. The run is not accelerated,
 *   because an interval that is not scaled, for example that of a note, would count several times.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import mqtt from 'mqtt';
import { Pool } from 'undici';
import { freePort } from '../../src/base/port-claim.ts';
import { Mosquitto } from '../../test/e2e/harness/mosquitto.ts';
import { BenchAgent, type Build, buildAgents, CACHE } from './bench-agent.ts';
import { bytesBelow, machine, median, table, treeUsage } from './measure.ts';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    base: { type: 'string' },
    /** Duration of one measurement of `latency` and `mqtt`. */
    seconds: { type: 'string', default: '60' },
    rounds: { type: 'string', default: '3' },
    /** Duration of `outage`. The gate applies to 60. */
    minutes: { type: 'string', default: '10' },
  },
});
const SECONDS = Number(options.seconds);
const MINUTES = Number(options.minutes);
const FOLDER = join(CACHE, `run-${process.pid}`);

/** Figures of one round by column. */
type Figures = Record<string, number>;
type Settings = { port: number; tags?: string };

/** Runs an agent with default settings in a folder of its own. */
async function withAgent(build: Build, { port, tags }: Settings, measure: (agent: BenchAgent) => Promise<Figures>) {
  const folder = join(FOLDER, build.name);
  mkdirSync(folder, { recursive: true });
  const agent = await BenchAgent.start(build, folder, port, [], tags);
  try {
    return await measure(agent);
  } finally {
    await agent.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs a platform that accepts every post. */
async function withPlatform(measure: (port: number) => Promise<Figures>): Promise<Figures> {
  const port = await freePort();
  const platform = fork(join(import.meta.dirname, 'peers-sink.ts'), ['http', String(port)]);
  try {
    await once(platform, 'message');
    return await measure(port);
  } finally {
    platform.kill('SIGKILL');
  }
}

/** Pushes one value for each tag number. */
async function push(pool: Pool, tags: readonly number[]): Promise<void> {
  const values = tags.map((tag) => {
    const key = `k${tag % 10}`;
    return { asset: 1 + Math.floor(tag / 10), key, unit: 12, value: Math.round(Math.random() * 1e4) / 100 };
  });
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ values });
  const response = await pool.request({ path: '/v1/values', method: 'POST', headers, body });
  await response.body.dump();
  if (response.statusCode !== 204) throw new Error(`the agent responded with ${response.statusCode}`);
}

const range = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);

const CLIENTS = 20;

function latency(build: Build): Promise<Figures> {
  return withPlatform((port) =>
    withAgent(build, { port }, async ({ url }) => {
      const pool = new Pool(url, { connections: CLIENTS, pipelining: 1 });
      const endMs = performance.now() + SECONDS * 1000;
      const times: number[] = [];
      const client = async (number: number) => {
        // Clients are not synchronised at first. After that, each pushes as soon as it receives a response.
        await delay((number * 1000) / CLIENTS);
        while (performance.now() < endMs) {
          const startMs = performance.now();
          await push(pool, range(number * 10, 10));
          times.push(performance.now() - startMs);
        }
      };
      await Promise.all(range(0, CLIENTS).map(client));
      await pool.close();
      const sorted = times.toSorted((a, b) => a - b);
      const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
      return { requests: times.length, 'p50, ms': at(0.5), 'p99, ms': at(0.99), 'max, ms': at(1) };
    }),
  );
}

const TOPICS = range(0, 10);

/** Publishes one message per topic and second. Returns the number of commits per second. */
async function commitsPerSecond(agent: BenchAgent, broker: Mosquitto, spread: boolean): Promise<number> {
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${broker.port}`);
  const commitsBefore = await agent.metric('tagferry_commits_total');
  const startMs = performance.now();
  for (let second = 0; second < SECONDS; second++) {
    const sent = TOPICS.map(async (topic) => {
      await delay(Math.max(0, startMs + second * 1000 + (spread ? topic * 100 : 0) - performance.now()));
      await client.publishAsync(`site/t${topic}`, `{"v":${second + topic / 8},"t":${Date.now()}}`, { qos: 1 });
    });
    await Promise.all(sent);
    await delay(Math.max(0, startMs + (second + 1) * 1000 - performance.now()));
  }
  const commits = (await agent.metric('tagferry_commits_total')) - commitsBefore;
  await client.endAsync();
  return commits / ((performance.now() - startMs) / 1000);
}

function mqttCommits(build: Build): Promise<Figures> {
  return withPlatform(async (port) => {
    const broker = await Mosquitto.make();
    await broker.start();
    const values = TOPICS.map((topic) => `      k${topic}: { from: b, topic: site/t${topic}, at: /v, time: /t }\n`);
    const tags = `sources: { b: { mqtt: "mqtt://127.0.0.1:${broker.port}" } }\ntags:\n  T:\n    asset: 1\n    values:\n`;
    try {
      return await withAgent(build, { port, tags: tags + values.join('') }, async (agent) => {
        await agent.until('the broker is connected', () => agent.output.includes('"event":"broker.connected"'));
        await delay(1_000);
        const together = await commitsPerSecond(agent, broker, false);
        const spread = await commitsPerSecond(agent, broker, true);
        const ingested = () => agent.metric('tagferry_values_ingested_total');
        await agent.until('all values are committed', async () => (await ingested()) >= 2 * SECONDS * TOPICS.length);
        return { 'commits/s, messages together': together, 'commits/s, messages spread evenly': spread };
      });
    } finally {
      await broker.dispose();
    }
  });
}

const TAGS = 500;

async function outage(build: Build): Promise<Figures> {
  return withAgent(build, { port: await freePort() }, async ({ url, state, pid }) => {
    const pool = new Pool(url, { connections: 2, pipelining: 1 });
    const [storedBefore, writtenBefore] = [bytesBelow(state), treeUsage(pid).writtenBytes];
    const startMs = performance.now();
    const seconds = MINUTES * 60;
    for (let second = 0; second < seconds; second++) {
      // One tag in ten is due each second.
      await push(pool, range(((second % 10) * TAGS) / 10, TAGS / 10));
      await delay(Math.max(0, startMs + (second + 1) * 1000 - performance.now()));
    }
    await pool.close();
    const values = (seconds * TAGS) / 10;
    return {
      values,
      'B stored per value': (bytesBelow(state) - storedBefore) / values,
      'B written per value': (treeUsage(pid).writtenBytes - writtenBefore) / values,
    };
  });
}

function shown(name: string, figures: Figures[]): string[] {
  const columns = Object.keys(figures[0]!).map((column) => median(figures.map((round) => round[column]!)));
  return [name, ...columns.map((figure) => figure.toLocaleString('en', { maximumFractionDigits: 2 }))];
}

process.once('exit', () => rmSync(FOLDER, { recursive: true, force: true }));
const modes: Record<string, (build: Build) => Promise<Figures>> = { latency, mqtt: mqttCommits, outage };
const measure = modes[positionals[0] ?? ''];
if (measure === undefined) throw new Error(`the mode must be one of ${Object.keys(modes).join(', ')}`);
const builds = buildAgents(options.base);
const results = new Map<Build, Figures[]>(builds.map((build) => [build, []]));
console.log(`${positionals[0]}\n${machine()}\n`);
if (measure === outage) {
  // Bytes do not depend on the load, so the builds run at the same time.
  await Promise.all(builds.map(async (build) => results.get(build)!.push(await outage(build))));
} else {
  for (let round = 0; round < Number(options.rounds); round++) {
    for (const build of round % 2 === 0 ? builds : builds.toReversed()) {
      results.get(build)!.push(await measure(build));
    }
  }
}
const columns = Object.keys(results.get(builds[0]!)![0]!);
const rows = [...results].map(([{ name }, figures]) => shown(name, figures));
console.log(table(['', ...columns], rows));
