/**
 * Messages of QoS 1: the daemon, which confirms what is on disk, beside MQTT.js, which confirms at once. Both subscribe to the same
 * topics and read value and time from the same JSON. `node scripts/bench/sources/mqtt.ts [--messages N] [--rounds N]`.
 *
 * No window: Debian's Mosquitto, with no limit of its own. The subscriber is stopped (SIGSTOP) while all is published, so that
 * neither the publisher nor the broker's taking in counts, and the clock runs from SIGCONT to the last message. A window of 20:
 * a broker that keeps to it (Debian's does not), and what counts is how often it is confirmed. Turn by turn, platform away.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import mqtt, { type Packet } from 'mqtt-packet';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Mosquitto } from '../../../test/broker/mosquitto.ts';
import { StrictBroker } from '../../../test/broker/strict-broker.ts';
import { AgentProcess } from '../../../test/process/agent-process.ts';
import { machine, median, table } from '../measure.ts';
import type { Subscriber } from './subscriber.ts';

const { values: options } = parseArgs({
  options: {
    messages: { type: 'string', default: '60000' },
    rounds: { type: 'string', default: '5' },
    /** A folder for the profiles of the daemon. */
    profile: { type: 'string' },
  },
});
const ROUNDS = Number(options.rounds);
const MESSAGES = Number(options.messages);
/** Of a window of 20 commits come ten times a second: so many take some seconds. */
const IN_A_WINDOW = 1_000;
const TOPICS = Array.from({ length: 10 }, (_, at) => `site/t${at}`);

function bare(): Subscriber {
  let child: ChildProcess;
  return {
    name: 'bare subscriber (MQTT.js)',
    async start(port) {
      child = fork(join(import.meta.dirname, '../bare-subscriber.ts'), [String(port), ...TOPICS]);
      await once(child, 'message');
    },
    pid: () => child.pid!,
    async taken() {
      child.send('taken');
      const [taken] = (await once(child, 'message')) as [number];
      return taken;
    },
    async stop() {
      const over = once(child, 'exit');
      child.kill('SIGKILL');
      await over;
    },
  };
}

function daemon(sandbox: Sandbox): Subscriber {
  const of = (topic: string, at: number) => `      k${at}: { from: b, topic: "${topic}", at: /v, time: /t }\n`;
  let agent: AgentProcess;
  return {
    name: 'tagferry, on disk',
    async start(port) {
      const tags =
        `sources: { b: { mqtt: "mqtt://127.0.0.1:${port}" } }\n` +
        `tags:\n  T:\n    asset: 881\n    values:\n${TOPICS.map(of).join('')}`;
      // As shipped, but for the sockets.
      agent = new AgentProcess(sandbox.url, { tags, env: { COMMIT_INTERVAL: '1s', POST_INTERVAL: '10s' } });
      if (options.profile) agent.flags = ['--cpu-prof', `--cpu-prof-dir=${options.profile}`];
      await agent.start();
      await until(() => agent.logged('broker.connected').length > 0);
      // The subscriptions follow the connection.
      await pause(500);
    },
    pid: () => agent.pid,
    taken: () => agent.metric('tagferry_values_ingested_total'),
    async stop() {
      if (options.profile) await agent.end('SIGTERM');
      await agent.dispose();
    },
  };
}

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

async function until(holds: () => boolean | Promise<boolean>, everyMs = 20): Promise<void> {
  while (!(await holds())) await pause(everyMs);
}

const payloadOf = (number: number) => `{"v":${number / 8},"t":${1_795_219_200_000 + number}}`;
const topicOf = (number: number) => TOPICS[number % TOPICS.length]!;

/** Publishes all with QoS 1; resolves when the broker has confirmed the last. */
async function publishAll(port: number): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  const parser = mqtt.parser({ protocolVersion: 4 });
  const send = (packet: object) => socket.write(mqtt.generate(packet as Packet, { protocolVersion: 4 }));
  let confirmed = 0;
  const over = new Promise<void>((resolve, reject) => {
    socket.on('error', reject);
    parser.on('packet', ({ cmd }) => {
      if (cmd === 'puback' && ++confirmed === MESSAGES) resolve();
    });
  });
  socket.on('data', (bytes) => parser.parse(bytes));
  send({ cmd: 'connect', protocolId: 'MQTT', protocolVersion: 4, clientId: 'plant', clean: true, keepalive: 0 });
  for (let sent = 0; sent < MESSAGES; sent++) {
    const [topic, payload, messageId] = [topicOf(sent), payloadOf(sent), 1 + (sent % 65_000)];
    send({ cmd: 'publish', topic, payload, qos: 1, dup: false, retain: false, messageId });
    // Ids are used again: not before they are free.
    if (sent % 1_000 === 0) await until(() => sent - confirmed < 30_000, 1);
  }
  await over;
  socket.destroy();
}

/** Messages a second of what stands in an unlimited broker. */
async function drain(subscriber: Subscriber): Promise<number> {
  const broker = await Mosquitto.make();
  await broker.start('max_inflight_messages 0');
  try {
    await subscriber.start(broker.port);
    process.kill(subscriber.pid(), 'SIGSTOP');
    await publishAll(broker.port);
    const startMs = performance.now();
    process.kill(subscriber.pid(), 'SIGCONT');
    await until(async () => (await subscriber.taken()) >= MESSAGES, 100);
    return MESSAGES / ((performance.now() - startMs) / 1000);
  } finally {
    await subscriber.stop();
    await broker.dispose();
  }
}

/** Messages confirmed a second where the broker gives 20 and waits. */
async function inWindow(subscriber: Subscriber): Promise<number> {
  const broker = new StrictBroker({ window: 20 });
  const port = await broker.start();
  try {
    await subscriber.start(port);
    await until(() => broker.filters.length === TOPICS.length);
    const startMs = performance.now();
    for (let sent = 0; sent < IN_A_WINDOW; sent++) broker.publish(topicOf(sent), payloadOf(sent));
    await until(() => broker.pending === 0, 5);
    return IN_A_WINDOW / ((performance.now() - startMs) / 1000);
  } finally {
    await subscriber.stop();
    await broker.stop();
  }
}

const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
await sandbox.start();
sandbox.goOffline();
const cases = [
  { name: `no window, ${MESSAGES.toLocaleString('en')} messages`, measure: drain },
  { name: `window of 20, ${IN_A_WINDOW.toLocaleString('en')} messages`, measure: inWindow },
];
const rows: string[][] = [];
for (const { name, measure } of cases) {
  const rates = new Map<string, number[]>();
  for (let round = 0; round < ROUNDS; round++) {
    for (const subscriber of [bare(), daemon(sandbox)]) {
      const rate = await measure(subscriber);
      rates.set(subscriber.name, [...(rates.get(subscriber.name) ?? []), rate]);
    }
  }
  const [first] = [...rates.values()].map(median);
  for (const [subscriber, all] of rates) {
    rows.push([name, subscriber, Math.round(median(all)).toLocaleString('en'), (median(all) / first!).toFixed(2)]);
  }
}
await sandbox.stop();
console.log(`MQTT, QoS 1, ten topics, value and time from JSON; medians of ${ROUNDS} rounds, turn by turn`);
console.log(`${machine()}\n`);
console.log(table(['', 'subscriber', 'messages/s', 'of the bare one'], rows));
