/**
 * Values by HTTP, acknowledged after the commit: compares the agent with a bare server, with the same requests and
 * options of the runtime, alternating in one run. `node scripts/bench/ingest.ts [--values N] [--rounds N]`.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { BenchAgent, type Build, buildAgents, Program } from './bench-agent.ts';
import { machine, median, processUsage, storedBytes, table } from './measure.ts';
import { Plant } from './plant.ts';

const { values: options } = parseArgs({
  options: { values: { type: 'string', default: '400000' }, rounds: { type: 'string', default: '3' } },
});
const VALUES = Number(options.values);
const ROUNDS = Number(options.rounds);
/**
 * Pending requests: enough values for two commits at COMMIT_VALUES, because otherwise all requests wait for
 * COMMIT_INTERVAL.
 */
const connectionsFor = (perRequest: number) => Math.max(8, 2_000 / perRequest);
const folder = mkdtempSync(join(tmpdir(), 'tagferry-ingest-'));

/** JSON, or the same values in InfluxDB line protocol. */
type Format = 'JSON' | 'line protocol';

interface Server {
  name: string;
  format: Format;
  program: Program;
  url: string;
  database: string;
}

async function startBare({ node, flags, variables }: Build): Promise<Server> {
  const database = join(folder, 'bare.db');
  const program = new Program(node, [...flags, join(import.meta.dirname, 'bare-server.ts'), database], variables);
  const port = () => /listening (\d+)/.exec(program.output)?.[1];
  await program.until('the bare server listens', () => port() !== undefined);
  return { name: 'bare server', format: 'JSON', program, url: `http://127.0.0.1:${port()}`, database };
}

async function startAgent(build: Build): Promise<Server> {
  // Both formats use the same series; line protocol names assets by their tags.
  const keys = Array.from({ length: 10 }, (_, key) => `k${key}: { unit: 12 }`).join(', ');
  const tags = Array.from({ length: 50 }, (_, at) => `  T-${at + 1}: { asset: ${at + 1}, values: { ${keys} } }`);
  // No program listens on the platform's port, so the platform is unavailable.
  const agent = await BenchAgent.start(build, folder, 9, [], `tags:\n${tags.join('\n')}\n`);
  return {
    name: 'tagferry',
    format: 'JSON',
    program: agent,
    url: agent.url,
    database: join(agent.state, 'buffer.db'),
  };
}

function bodies(perRequest: number, format: Format): Buffer[] {
  const plant = new Plant();
  return Array.from({ length: VALUES / perRequest }, () => {
    const columns = plant.next(perRequest);
    const rows = Array.from({ length: perRequest }, (_, i) => {
      const series = columns.series[i]! - 1;
      const [asset, key] = [1 + Math.floor(series / 10), `k${series % 10}`];
      const value = columns.value[i]!;
      const timeMs = columns.timeMs[i]!;
      if (format === 'line protocol') return `T-${asset} ${key}=${value} ${timeMs}000000`;
      return { asset, key, unit: 12, value, timestamp: new Date(timeMs).toISOString() };
    });
    return Buffer.from(format === 'JSON' ? JSON.stringify({ values: rows }) : rows.join('\n'));
  });
}

interface Round {
  perSecond: number;
  cpuSeconds: number;
  writtenBytes: number;
}

async function feed(server: Server, requests: Buffer[], connections: number): Promise<Round> {
  const isJson = server.format === 'JSON';
  const path = isJson ? '/v1/values' : '/api/v2/write?precision=ns';
  const headers = { 'content-type': isJson ? 'application/json' : 'text/plain' };
  const pool = new Pool(server.url, { connections, pipelining: 1 });
  const before = processUsage(server.program.pid);
  const start = performance.now();
  let next = 0;
  let acknowledged = 0;
  let perSecond = 0;
  const worker = async () => {
    while (next < requests.length) {
      const body = requests[next++]!;
      const answer = await pool.request({ path, method: 'POST', body, headers });
      await answer.body.dump();
      if (answer.statusCode !== 204) throw new Error(`${server.name} responded with ${answer.statusCode}`);
      acknowledged++;
      // Measured until the last request is sent. After that, few requests are pending and the commits wait for
      // COMMIT_INTERVAL.
      if (next === requests.length && perSecond === 0) {
        perSecond = (acknowledged * (VALUES / requests.length)) / ((performance.now() - start) / 1000);
      }
    }
  };
  await Promise.all(Array.from({ length: connections }, worker));
  const after = processUsage(server.program.pid);
  await pool.close();
  return {
    perSecond,
    cpuSeconds: after.cpuSeconds - before.cpuSeconds,
    writtenBytes: after.writtenBytes - before.writtenBytes,
  };
}

console.log(
  `Ingest over HTTP, ${VALUES.toLocaleString('en')} values per round, ${ROUNDS} rounds, platform unavailable\n${machine()}\n`,
);
const build = buildAgents()[0]!;
const agent = await startAgent(build);
const servers = [
  await startBare(build),
  agent,
  { ...agent, name: 'tagferry, line protocol', format: 'line protocol' as const },
];
try {
  for (const perRequest of [1000, 100]) {
    const requests = { JSON: bodies(perRequest, 'JSON'), 'line protocol': bodies(perRequest, 'line protocol') };
    const rounds = new Map<Server, Round[]>(servers.map((server) => [server, []]));
    for (let round = 0; round < ROUNDS; round++) {
      for (const server of servers)
        rounds.get(server)!.push(await feed(server, requests[server.format], connectionsFor(perRequest)));
    }
    const middle = (server: Server, of: (round: Round) => number) => median(rounds.get(server)!.map(of));
    const bare = middle(servers[0]!, (round) => round.perSecond);
    console.log(`${perRequest} values per request, ${connectionsFor(perRequest)} connections`);
    console.log(
      table(
        ['server', 'acknowledged values/s', 'vs. bare', 'CPU s per million', 'B written per value'],
        servers.map((server) => [
          server.name,
          Math.round(middle(server, (round) => round.perSecond)).toLocaleString('en'),
          `${((100 * middle(server, (round) => round.perSecond)) / bare).toFixed(0)} %`,
          (middle(server, (round) => round.cpuSeconds) * (1e6 / VALUES)).toFixed(2),
          (middle(server, (round) => round.writtenBytes) / VALUES).toFixed(1),
        ]),
      ),
      '\n',
    );
  }
  for (const server of servers.slice(0, 2)) {
    const total = 2 * ROUNDS * VALUES * servers.filter(({ program }) => program === server.program).length;
    console.log(
      `${server.name}: ${(storedBytes(server.database) / total).toFixed(2)} bytes stored per value, ${total.toLocaleString('en')} values`,
    );
  }
} finally {
  await Promise.all(servers.map(({ program }) => program.end()));
  rmSync(folder, { recursive: true, force: true });
}
