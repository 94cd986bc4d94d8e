/**
 * Messages of QoS 1 from a broker, confirmed on disk: the daemon beside a bare subscriber, with a window of 20 and with none, turn
 * by turn in one run. `node scripts/bench/sources/mqtt.ts [--messages N] [--rounds N]`. The clock stops with the last confirmation.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { StrictBroker } from '../../../test/broker/strict-broker.ts';
import { AgentProcess } from '../../../test/process/agent-process.ts';
import { machine, median, table } from '../measure.ts';

const { values: options } = parseArgs({
  options: { messages: { type: 'string', default: '40000' }, rounds: { type: 'string', default: '3' } },
});
const ROUNDS = Number(options.rounds);
/** Of a window of 20 commits come ten times a second: so many take some seconds. */
const WINDOWS = [
  { name: 'window of 20', window: 20, messages: 2_000 },
  { name: 'no window', window: 65_535, messages: Number(options.messages) },
];
const TOPICS = 10;

/** A subscriber that is to confirm everything that is published. */
interface Subscriber {
  name: string;
  start(port: number): Promise<void>;
  stop(): Promise<void>;
}

function bare(): Subscriber {
  let child: ChildProcess | undefined;
  return {
    name: 'bare subscriber (MQTT.js)',
    async start(port) {
      child = spawn(process.execPath, [join(import.meta.dirname, '../bare-subscriber.ts'), String(port), 'site/+'], {
        stdio: ['ignore', 'inherit', 'inherit'],
      });
    },
    async stop() {
      child?.kill('SIGKILL');
    },
  };
}

function daemon(sandbox: Sandbox): Subscriber {
  let agent: AgentProcess | undefined;
  return {
    name: 'tagferry, on disk',
    async start(port) {
      const values = Array.from({ length: TOPICS }, (_, at) => `      k${at}: { from: b, topic: "site/t${at}" }\n`);
      const tags = `sources: { b: { mqtt: "mqtt://127.0.0.1:${port}" } }\ntags:\n  T:\n    asset: 881\n    values:\n${values.join('')}`;
      // As shipped, but for the sockets.
      agent = new AgentProcess(sandbox.url, { tags, env: { COMMIT_INTERVAL: '1s', POST_INTERVAL: '10s' } });
      await agent.start();
    },
    async stop() {
      await agent?.dispose();
    },
  };
}

const until = async (holds: () => boolean) => {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
};

/** Messages confirmed a second. */
async function run(subscriber: Subscriber, window: number, messages: number): Promise<number> {
  const broker = new StrictBroker({ window });
  const port = await broker.start();
  try {
    await subscriber.start(port);
    await until(() => broker.filters.length > 0 && broker.connected > 0);
    await new Promise((resolve) => setTimeout(resolve, 300));
    const startMs = performance.now();
    for (let sent = 0; sent < messages; ) {
      for (let n = 0; n < 200 && sent < messages; n++, sent++) broker.publish(`site/t${sent % TOPICS}`, String(sent));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await until(() => broker.pending === 0);
    return messages / ((performance.now() - startMs) / 1000);
  } finally {
    await subscriber.stop();
    await broker.stop();
  }
}

const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
await sandbox.start();
const rows: string[][] = [];
for (const { name, window, messages } of WINDOWS) {
  const rates = new Map<string, number[]>();
  for (let round = 0; round < ROUNDS; round++) {
    for (const subscriber of [bare(), daemon(sandbox)]) {
      const rate = await run(subscriber, window, messages);
      rates.set(subscriber.name, [...(rates.get(subscriber.name) ?? []), rate]);
    }
  }
  const [first] = [...rates.values()].map(median);
  for (const [subscriber, all] of rates) {
    rows.push([name, subscriber, Math.round(median(all)).toLocaleString('en'), (median(all) / first!).toFixed(2)]);
  }
}
await sandbox.stop();
console.log(machine());
console.log(table(['', 'subscriber', 'messages/s', 'of the bare one'], rows));
