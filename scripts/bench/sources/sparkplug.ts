/**
 * Messages of an edge node with ten metrics by alias, QoS 1: compares MQTT.js with Eclipse Tahu's decoder, which
 * confirms immediately and stores nothing, with the agent. `node scripts/bench/sources/sparkplug.ts [--messages N]
 * [--rounds N]`. As in `mqtt.ts`, the subscriber is stopped during publication, and time is measured from SIGCONT.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';
import { connect, connectAsync, type MqttClient } from 'mqtt';
import type { AgentProcess } from '../../../test/e2e/harness/agent-process.ts';
import { Mosquitto } from '../../../test/e2e/harness/mosquitto.ts';
import { machine, race, table } from '../measure.ts';
import { agentWith, awayPlatform, onDisk, pause, until } from '../on-disk.ts';
import type { Subscriber } from './subscriber.ts';

const { get } = createRequire(import.meta.url)('sparkplug-payload') as {
  get(version: string): {
    encodePayload(payload: object): Uint8Array;
    decodePayload(bytes: Uint8Array): { metrics: { value: number; timestamp: { toNumber(): number } }[] };
  };
};
const tahu = get('spBv1.0');
const METRICS = 10;
const AT_ONCE = 1_000;
const START_MS = 1_795_219_200_000;
const FILTER = 'spBv1.0/Plant1/+/press/#';

if (process.argv[2] === 'bare') subscribe(Number(process.argv[3]));
else await bench();

/** Sends its parent a message after the subscription, and then the number of values on request. */
function subscribe(port: number): void {
  const client = connect(`mqtt://127.0.0.1:${port}`, {
    clean: false,
    clientId: 'bare',
    protocolVersion: 5,
    properties: { sessionExpiryInterval: 3_600 },
  });
  let taken = 0;
  let sum = 0;
  client.on('message', (_, payload) => {
    for (const { value, timestamp } of tahu.decodePayload(payload).metrics) {
      sum += Number(value) + timestamp.toNumber();
      taken++;
    }
  });
  client.on('connect', () => client.subscribe([FILTER], { qos: 1 }, () => process.send!('subscribed')));
  process.on('message', () => process.send!(Number.isFinite(sum) ? taken : 0));
}

async function bench(): Promise<void> {
  const { values: options } = parseArgs({
    options: { messages: { type: 'string', default: '60000' }, rounds: { type: 'string', default: '5' } },
  });
  const [messages, rounds] = [Number(options.messages), Number(options.rounds)];
  const sandbox = await awayPlatform();
  let child: ChildProcess;
  let agent: AgentProcess;
  const bare: Subscriber = {
    name: 'bare subscriber (MQTT.js, sparkplug-payload)',
    async start(port) {
      child = fork(import.meta.filename, ['bare', String(port)]);
      await once(child, 'message');
    },
    pid: () => child.pid!,
    async taken() {
      child.send('taken');
      return ((await once(child, 'message')) as [number])[0];
    },
    async stop() {
      const over = once(child, 'exit');
      child.kill('SIGKILL');
      await over;
    },
  };
  const own: Subscriber = {
    name: 'tagferry, on disk',
    async start(port) {
      const values = Array.from(
        { length: METRICS },
        (_, at) => `      m${at}: { from: cells, metric: press/m${at} }\n`,
      );
      agent = agentWith(
        sandbox,
        `sources: { cells: { sparkplug: "mqtt://127.0.0.1:${port}", group: Plant1 } }\n` +
          `tags:\n  T:\n    asset: 881\n    values:\n${values.join('')}`,
      );
      await agent.start();
    },
    pid: () => agent.pid,
    taken: () => onDisk(agent),
    stop: () => agent.dispose(),
  };
  const contenders = [bare, own].map((one) => ({ name: one.name, measure: () => drain(one, messages) }));
  const rows = await race(contenders, rounds);
  await sandbox.stop();
  console.log(
    `Sparkplug B, QoS 1, ${messages.toLocaleString('en')} messages of ten metrics; medians of ${rounds} rounds`,
  );
  console.log(`${machine()}\n`);
  console.log(table(['', 'messages/s', 'ratio'], rows));
}

/** Returns the messages per second from a broker without a limit. */
async function drain(subscriber: Subscriber, messages: number): Promise<number> {
  const broker = await Mosquitto.make();
  await broker.start('max_inflight_messages 0');
  try {
    await subscriber.start(broker.port);
    const node = await connectAsync(`mqtt://127.0.0.1:${broker.port}`, { protocolVersion: 4, keepalive: 0 });
    // Waits for the birth certificate, which shows that the subscription is active.
    for (; (await subscriber.taken()) === 0; await pause(1_000)) await say(node, 0);
    await pause(2_000);
    const before = await subscriber.taken();
    process.kill(subscriber.pid(), 'SIGSTOP');
    for (let sent = 1; sent <= messages; sent += AT_ONCE) {
      const some = Array.from({ length: Math.min(AT_ONCE, messages - sent + 1) }, (_, at) => sent + at);
      await Promise.all(some.map((one) => say(node, one)));
    }
    await node.endAsync();
    const startMs = performance.now();
    process.kill(subscriber.pid(), 'SIGCONT');
    await until(async () => (await subscriber.taken()) >= before + messages * METRICS, 50);
    return messages / ((performance.now() - startMs) / 1_000);
  } finally {
    await subscriber.stop();
    await broker.dispose();
  }
}

/** Publishes the node's birth certificate (0) or a later message. */
async function say(node: MqttClient, sent: number): Promise<void> {
  const isBirth = sent === 0;
  const metrics = Array.from({ length: METRICS }, (_, at) => ({
    ...(isBirth ? { name: `m${at}` } : {}),
    alias: at + 1,
    timestamp: START_MS + sent,
    type: 'Double',
    value: (sent * METRICS + at) / 8,
  }));
  const payload = tahu.encodePayload({ timestamp: START_MS + sent, seq: sent % 256, metrics });
  await node.publishAsync(`spBv1.0/Plant1/${isBirth ? 'NBIRTH' : 'NDATA'}/press`, Buffer.from(payload), { qos: 1 });
}
