/**
 * Messages in a JetStream stream, ten subjects, value and time from JSON: compares the client library, which
 * acknowledges immediately, with the agent, which acknowledges stored messages. `node scripts/bench/sources/nats.ts
 * [--messages N] [--rounds N]`. As in `mqtt.ts`, the subscriber is stopped during publication, and time is measured
 * from SIGCONT.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { AgentProcess } from '../../../test/e2e/harness/agent-process.ts';
import { NatsServers } from '../../../test/e2e/harness/nats-servers.ts';
import { machine, race, table } from '../measure.ts';
import { agentWith, awayPlatform, onDisk, pause, until } from '../on-disk.ts';
import type { Subscriber } from './subscriber.ts';

const STREAM = 'PLANT';
const SUBJECTS = Array.from({ length: 10 }, (_, at) => `plant.t${at}`);
const AT_ONCE = 1_000;

if (process.argv[2] === 'bare') await consume(Number(process.argv[3]));
else await bench();

/** Sends its parent a message when it consumes, and then the number of values on request. */
async function consume(port: number): Promise<void> {
  const connection = await connect({ servers: [`127.0.0.1:${port}`] });
  const manager = await jetstreamManager(connection);
  await manager.consumers.add(STREAM, { durable_name: 'bare', ack_policy: 'explicit' });
  const messages = await (await jetstream(connection).consumers.get(STREAM, 'bare')).consume();
  let taken = 0;
  let sum = 0;
  process.on('message', () => process.send!(Number.isFinite(sum) ? taken : 0));
  process.send!('consuming');
  for await (const message of messages) {
    const { v, t } = message.json<{ v: number; t: number }>();
    sum += v + t;
    taken++;
    message.ack();
  }
}

async function bench(): Promise<void> {
  const { values: options } = parseArgs({
    options: { messages: { type: 'string', default: '200000' }, rounds: { type: 'string', default: '5' } },
  });
  const [messages, rounds] = [Number(options.messages), Number(options.rounds)];
  const sandbox = await awayPlatform();
  let child: ChildProcess;
  let agent: AgentProcess;
  const bare: Subscriber = {
    name: 'bare consumer (NATS client)',
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
      const values = SUBJECTS.map(
        (subject, at) => `      k${at}: { from: line, subject: ${subject}, at: /v, time: /t }\n`,
      );
      agent = agentWith(
        sandbox,
        `sources: { line: { nats: "nats://127.0.0.1:${port}", stream: ${STREAM} } }\n` +
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
  console.log(`NATS JetStream, ${messages.toLocaleString('en')} messages, ten subjects; medians of ${rounds} rounds`);
  console.log(`${machine()}\n`);
  console.log(table(['', 'messages/s', 'ratio'], rows));
}

/** Returns the messages per second from a stream that fills while the subscriber is stopped. */
async function drain(subscriber: Subscriber, messages: number): Promise<number> {
  const servers = await NatsServers.make();
  await servers.start();
  try {
    const manager = await servers.manager();
    await manager.streams.add({ name: STREAM, subjects: ['plant.*'], storage: 'memory' });
    const client = jetstream(await servers.connection());
    const say = (sent: number) =>
      client.publish(SUBJECTS[sent % SUBJECTS.length]!, `{"v":${sent / 8},"t":${1_795_219_200_000 + sent}}`);
    await subscriber.start(servers.ports[0]!);
    // The first message shows that the subscriber consumes.
    await say(0);
    await until(async () => (await subscriber.taken()) > 0);
    await pause(1_500);
    process.kill(subscriber.pid(), 'SIGSTOP');
    for (let sent = 1; sent <= messages; sent += AT_ONCE) {
      const some = Array.from({ length: Math.min(AT_ONCE, messages - sent + 1) }, (_, at) => sent + at);
      await Promise.all(some.map(say));
    }
    const startMs = performance.now();
    process.kill(subscriber.pid(), 'SIGCONT');
    await until(async () => (await subscriber.taken()) > messages, 100);
    return messages / ((performance.now() - startMs) / 1_000);
  } finally {
    await subscriber.stop();
    await servers.dispose();
  }
}
