import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { parseArgs } from 'node:util';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { sign } from '../../src/webhook/signature.ts';
import { AgentProcess } from '../../test/e2e/harness/agent-process.ts';
import { Mosquitto } from '../../test/e2e/harness/mosquitto.ts';
import { NatsServers } from '../../test/e2e/harness/nats-servers.ts';

/**
 * Measures the time from a delivery to its reaction: directly, and by a relay over Mosquitto and NATS. Goal: p99 of the
 * relay under 100 ms.
 */
const { values } = parseArgs({
  options: { events: { type: 'string', default: '500' }, 'per-second': { type: 'string', default: '20' } },
});
const EVENTS = Number(values.events);
const EVERY_MS = 1_000 / Number(values['per-second']);
const SECRET = 'bench';

/** Start of each event's reaction, by number. */
const begun = new Map<number, number>();
const target = createServer((request, response) => {
  const atMs = performance.now();
  let text = '';
  request.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  request.on('end', () => {
    begun.set((JSON.parse(text) as { content: { data: { value: number } } }).content.data.value, atMs);
    response.writeHead(204).end();
  });
});
await new Promise<void>((resolve) => target.listen(0, '127.0.0.1', () => resolve()));
const { port } = target.address() as AddressInfo;

const sandbox = new Sandbox();
await sandbox.start();
const mosquitto = await Mosquitto.make();
await mosquitto.start();
const nats = await NatsServers.make();
await nats.start();
await (await nats.manager()).streams.add({ name: 'EVENTS', subjects: ['platform.events'] });
const ways = [
  { name: 'direct', source: `{ mqtt: "mqtt://127.0.0.1:${mosquitto.port}" }`, topic: undefined },
  { name: 'relay, Mosquitto', source: `{ mqtt: "mqtt://127.0.0.1:${mosquitto.port}" }`, topic: 'platform/events' },
  { name: 'relay, NATS', source: `{ nats: "${nats.url}" }`, topic: 'platform.events' },
];
try {
  for (const { name, source, topic } of ways)
    console.log(JSON.stringify({ way: name, ...(await measure(source, topic)) }));
} finally {
  target.close();
  await mosquitto.dispose();
  await nats.dispose();
  await sandbox.stop();
}

async function measure(source: string, topic: string | undefined) {
  const taking = await agentOf(source, topic === undefined ? {} : { WEBHOOK_FROM: `broker ${topic}` }, 881);
  const reached = topic === undefined ? taking : await agentOf(source, { WEBHOOK_TO: `broker ${topic}` }, 1);
  try {
    begun.clear();
    await taking.until(async () => {
      await deliver(reached, 0);
      return begun.has(0);
    }, 'the relay path is ready');
    const tookMs: number[] = [];
    for (let number = 1; number <= EVENTS; number++) {
      const sinceMs = performance.now();
      await deliver(reached, number);
      await taking.until(() => begun.has(number), 'the reaction has run');
      tookMs.push(begun.get(number)! - sinceMs);
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, EVERY_MS - (performance.now() - sinceMs))));
    }
    const sorted = tookMs.toSorted((a, b) => a - b);
    const at = (share: number) =>
      Math.round(10 * sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!) / 10;
    return { events: EVENTS, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1) };
  } finally {
    await taking.dispose();
    if (reached !== taking) await reached.dispose();
  }
}

async function agentOf(source: string, env: Record<string, string>, asset: number): Promise<AgentProcess> {
  const agent = new AgentProcess(sandbox.url, {
    env: { WEBHOOK_SECRET: SECRET, LOG_LEVEL: 'warn', ...env },
    tags: `sources: { broker: ${source} }\ntags:\n  T: { asset: ${asset}, values: { flow: {} } }\n`,
    reactions: `reactions:\n  - { name: post, on: threshold_reached, do: [{ post: "http://127.0.0.1:${port}/" }] }\n`,
  });
  agent.launch();
  await agent.until(
    async () => (await agent.call(agent.ops, '/readyz').catch(() => ({ status: 0 }))).status === 200,
    'ready',
  );
  return agent;
}

async function deliver(agent: AgentProcess, value: number): Promise<void> {
  const content = { asset: { id: 881 }, threshold: { id: 1, type: 'high' }, data: { key: 'flow', value } };
  const body = JSON.stringify({ event_type: 'threshold_reached', occurred_at: new Date().toISOString(), content });
  const headers = { 'X-Hub-Signature-Sha256': sign(Buffer.from(body), SECRET) };
  await agent.call(agent.webhook, '/webhook', { method: 'POST', headers, body });
}
