/**
 * Messages with QoS 1: compares the agent, which confirms stored messages, with MQTT.js, which confirms immediately.
 * Both read value and time from the same JSON, which contains one value or a list of 1,000 values. `node
 * scripts/bench/sources/mqtt.ts [--messages N] [--rounds N]`.
 *
 * Without a window: Mosquitto without a limit. The subscriber is stopped (SIGSTOP) during publication, so that only the
 * delivery is measured, from SIGCONT to the last message. With a window of 20: a broker that enforces it, so that the
 * confirmation rate is measured.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import mqtt, { type Packet } from 'mqtt-packet';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../../test/e2e/harness/agent-process.ts';
import { Mosquitto } from '../../../test/e2e/harness/mosquitto.ts';
import { StrictBroker } from '../../../test/unit/broker/strict-broker.ts';
import { machine, race, table } from '../measure.ts';
import { pause, until } from '../on-disk.ts';
import type { Subscriber } from './subscriber.ts';

const { values: options } = parseArgs({
  options: {
    messages: { type: 'string', default: '60000' },
    rounds: { type: 'string', default: '5' },
    /** Folder for the agent's CPU profiles. */
    profile: { type: 'string' },
  },
});
const ROUNDS = Number(options.rounds);
const MESSAGES = Number(options.messages);
/** Values per message in the case with a list, and the number of its messages. */
const MANY = 1_000;
const LISTS = Math.ceil(MESSAGES / 100);
/** With a window of 20, there are about ten commits per second. */
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

/** `samples`: member that locates the list of values in a message, or nothing. */
function daemon(sandbox: Sandbox, samples: string): Subscriber {
  const of = (topic: string, at: number) =>
    `      k${at}: { from: b, topic: "${topic}", ${samples}at: /v, time: /t }\n`;
  let agent: AgentProcess;
  return {
    name: 'tagferry, on disk',
    async start(port) {
      const tags =
        `sources: { b: { mqtt: "mqtt://127.0.0.1:${port}" } }\n` +
        `tags:\n  T:\n    asset: 881\n    values:\n${TOPICS.map(of).join('')}`;
      agent = new AgentProcess(sandbox.url, { tags, env: { COMMIT_INTERVAL: '1s', POST_INTERVAL: '10s' } });
      if (options.profile) agent.flags = ['--cpu-prof', `--cpu-prof-dir=${options.profile}`];
      await agent.start();
      await until(() => agent.logged('broker.connected').length > 0);
      // Subscriptions follow the connection.
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

const payloadOf = (number: number) => `{"v":${number / 8},"t":${1_795_219_200_000 + number}}`;
const listOf = (number: number) => `[${Array.from({ length: MANY }, (_, at) => payloadOf(number * MANY + at)).join()}]`;
const topicOf = (number: number) => TOPICS[number % TOPICS.length]!;

/** Publishes messages with QoS 1. Resolves when the broker has confirmed the last one. */
async function publishAll(port: number, messages: number, contentOf: (number: number) => string): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  const parser = mqtt.parser({ protocolVersion: 4 });
  const send = (packet: object) => socket.write(mqtt.generate(packet as Packet, { protocolVersion: 4 }));
  let confirmed = 0;
  const over = new Promise<void>((resolve, reject) => {
    socket.on('error', reject);
    parser.on('packet', ({ cmd }) => {
      if (cmd === 'puback' && ++confirmed === messages) resolve();
    });
  });
  socket.on('data', (bytes) => parser.parse(bytes));
  send({ cmd: 'connect', protocolId: 'MQTT', protocolVersion: 4, clientId: 'plant', clean: true, keepalive: 0 });
  for (let sent = 0; sent < messages; sent++) {
    const [topic, payload, messageId] = [topicOf(sent), contentOf(sent), 1 + (sent % 65_000)];
    send({ cmd: 'publish', topic, payload, qos: 1, dup: false, retain: false, messageId });
    // Message IDs must be free before they are reused.
    if (sent % 1_000 === 0) await until(() => sent - confirmed < 30_000, 1);
  }
  await over;
  socket.destroy();
}

/** Returns the messages per second from a broker without a limit. */
async function drain(subscriber: Subscriber, valuesPerMessage = 1): Promise<number> {
  const messages = valuesPerMessage === 1 ? MESSAGES : LISTS;
  const broker = await Mosquitto.make();
  await broker.start('max_inflight_messages 0');
  try {
    await subscriber.start(broker.port);
    process.kill(subscriber.pid(), 'SIGSTOP');
    await publishAll(broker.port, messages, valuesPerMessage === 1 ? payloadOf : listOf);
    const startMs = performance.now();
    process.kill(subscriber.pid(), 'SIGCONT');
    await until(async () => (await subscriber.taken()) >= messages * valuesPerMessage, 20);
    return messages / ((performance.now() - startMs) / 1000);
  } finally {
    await subscriber.stop();
    await broker.dispose();
  }
}

/** Returns the confirmed messages per second from a broker with a window of 20. */
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
  { name: `no window, ${MESSAGES.toLocaleString('en')} messages`, samples: '', measure: drain },
  {
    name: `no window, ${LISTS.toLocaleString('en')} messages of ${MANY.toLocaleString('en')} values`,
    samples: 'samples: "", ',
    measure: (one: Subscriber) => drain(one, MANY),
  },
  { name: `window of 20, ${IN_A_WINDOW.toLocaleString('en')} messages`, samples: '', measure: inWindow },
];
const rows: string[][] = [];
for (const { name, samples, measure } of cases) {
  const contenders = [bare(), daemon(sandbox, samples)].map((one) => ({
    name: one.name,
    measure: () => measure(one),
  }));
  for (const row of await race(contenders, ROUNDS)) rows.push([name, ...row]);
}
await sandbox.stop();
console.log(`MQTT, QoS 1, ten topics, value and time from JSON; medians of ${ROUNDS} rounds`);
console.log(`${machine()}\n`);
console.log(table(['', 'subscriber', 'messages/s', 'ratio'], rows));
