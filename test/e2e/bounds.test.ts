import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import mqtt from 'mqtt-packet';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from './harness/agent-process.ts';
import { Platform } from './harness/platform.ts';

const MiB = 2 ** 20;
const WEBHOOK_SECRET = 'webhook-secret-of-the-site';
const MAX_SERIES = 3;
const OVERSIZED_MESSAGES = 20;
const LISTENERS = ['ingest', 'webhook', 'ops', 'control'] as const;
type Listener = (typeof LISTENERS)[number];

let platform: Platform;
let agent: AgentProcess;
let broker: FloodingBroker;
let crowd: Socket[] = [];
let beforeMb = 0;
let peakMb = 0;
let sampler: NodeJS.Timeout;

/** MQTT broker that sends messages larger than any limit, and then a value. */
class FloodingBroker {
  readonly confirmed = new Set<number>();
  readonly #server: Server;
  connections = 0;

  constructor() {
    this.#server = createServer((socket) => {
      this.connections++;
      const reply = (packet: mqtt.Packet) => socket.write(mqtt.generate(packet));
      const parser = mqtt.parser().on('packet', (packet) => {
        if (packet.cmd === 'connect') reply({ cmd: 'connack', returnCode: 0, sessionPresent: false });
        if (packet.cmd === 'pingreq') reply({ cmd: 'pingresp' });
        if (packet.cmd === 'puback') this.confirmed.add(packet.messageId!);
        if (packet.cmd !== 'subscribe') return;
        reply({ cmd: 'suback', messageId: packet.messageId!, granted: packet.subscriptions.map(() => 1) });
        void flood(socket);
      });
      socket.on('error', () => {}).on('data', (bytes) => parser.parse(bytes));
    });
  }

  async start(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  stop(): void {
    this.#server.close();
  }
}

async function flood(socket: Socket): Promise<void> {
  const message = (messageId: number, payload: Buffer | string) =>
    mqtt.generate({ cmd: 'publish', topic: 'site/a', qos: 1, dup: false, retain: false, messageId, payload });
  for (let n = 1; n <= OVERSIZED_MESSAGES; n++) {
    if (!socket.write(message(n, Buffer.alloc(5 * MiB, 'x')))) await once(socket, 'drain');
  }
  socket.write(message(OVERSIZED_MESSAGES + 1, '42'));
}

const socketOf = (listener: Listener) => (listener === 'control' ? join(agent.state, 'control.sock') : agent[listener]);

let events = 0;
let accepted = 0;
/** Sends a valid request that is not related to any other. Returns the response status. */
async function regular(listener: Listener): Promise<number> {
  const path = socketOf(listener);
  if (listener === 'ingest') {
    const { status } = await agent.push([{ tag: 'FT-101', key: 'flow', value: accepted }]);
    if (status === 204) accepted++;
    return status;
  }
  if (listener === 'ops') return (await agent.call(path, '/metrics')).status;
  if (listener === 'control') return (await agent.call(path, '/status', { body: '{}' })).status;
  const body = JSON.stringify({
    event_type: 'asset_updated',
    occurred_at: new Date().toISOString(),
    content: { asset: { id: 881 }, number: events++ },
  });
  return (await agent.call(path, '/webhook', { body, headers: signed(body) })).status;
}

function signed(body: string | Buffer): Record<string, string> {
  const digest = createHmac('sha256', WEBHOOK_SECRET).update(body).digest('hex');
  return { 'Content-Type': 'application/json', 'X-Hub-Signature-Sha256': `sha256=${digest}` };
}

async function expectService(): Promise<void> {
  const statuses = await Promise.all(LISTENERS.map(regular));
  expect(statuses).toEqual([204, 204, 200, 200]);
}

const pathOf = (listener: Listener) =>
  ({ ingest: '/v1/values', webhook: '/webhook', ops: '/status', control: '/status' })[listener];
const headOf = (listener: Listener, rest: string) =>
  `POST ${pathOf(listener)} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${rest}`;

/** Opens connections that send a text and nothing else. */
async function strangers(listener: Listener, count: number, text: string): Promise<void> {
  const opened = Array.from({ length: count }, () => {
    const socket = connect(socketOf(listener));
    crowd.push(socket);
    return new Promise<void>((resolve) => {
      socket.on('error', () => {}).on('close', () => resolve());
      socket.once('connect', () => socket.write(text, () => resolve()));
    });
  });
  await Promise.all(opened);
}

/** Sends a body without an end until the agent closes the connection. Returns the number of bytes sent. */
async function sendEndless(listener: Listener): Promise<number> {
  const socket = connect(socketOf(listener)).resume();
  crowd.push(socket);
  const closed = new Promise<void>((resolve) => socket.on('error', () => {}).once('close', () => resolve()));
  const chunk = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(65_536, ' '), Buffer.from('\r\n')]);
  const write = () => {
    while (!socket.destroyed && socket.write(chunk));
  };
  socket.write(headOf(listener, 'Transfer-Encoding: chunked\r\n\r\n'));
  socket.on('drain', write);
  write();
  await closed;
  return socket.bytesWritten;
}

beforeAll(async () => {
  platform = await Platform.start();
  broker = new FloodingBroker();
  const endless = `head -c ${400 * MiB} /dev/zero | tr '\\\\0' x; echo; echo 'P p=43'; exec sleep 600`;
  agent = new AgentProcess(platform.url, {
    env: { MAX_SERIES: String(MAX_SERIES), WEBHOOK_SECRET, POST_INTERVAL: '100ms' },
    tags: `
sources:
  broker: { mqtt: "mqtt://127.0.0.1:${await broker.start()}", version: 3 }
  program: { exec: [/bin/sh, -c, "${endless}"], format: lines }
tags:
  FT-101: { asset: 881, values: { flow: { unit: 12 } } }
  M: { asset: 882, values: { m: { unit: 12, from: broker, topic: site/a } } }
  P: { asset: 883, values: { p: { unit: 12, from: program } } }
`,
  });
  await agent.start();
  beforeMb = agent.memoryMb();
  sampler = setInterval(() => {
    peakMb = Math.max(peakMb, agent.memoryMb());
  }, 20);
});
afterEach(() => {
  for (const socket of crowd) socket.destroy();
  crowd = [];
});
afterAll(async () => {
  clearInterval(sampler);
  await agent.dispose();
  broker.stop();
  await platform.stop();
});

describe('source', () => {
  it('discards, confirms and counts MQTT messages over the size limit, and delivers the value behind them', async () => {
    await agent.until(() => platform.stored(882, 'm').length > 0, 'the value behind the messages arrives');
    await agent.until(() => broker.confirmed.size === OVERSIZED_MESSAGES + 1, 'all messages are confirmed');
    expect(platform.stored(882, 'm').map(({ value }) => value)).toEqual([42]);
    expect(broker.connections).toBe(1);
    const discarded = agent.logged('broker.discarded');
    expect(discarded[0]).toMatchObject({ broker: 'broker', bound: 'packet', count: 1 });
    expect(discarded.length).toBeLessThan(OVERSIZED_MESSAGES);
    expect(await agent.metric('tagferry_source_errors_total{source="broker"')).toBe(OVERSIZED_MESSAGES);
  });

  it('discards and reports an endless line of a program, and delivers the value behind it', async () => {
    await agent.until(() => platform.stored(883, 'p').length > 0, 'the value behind the line arrives');
    expect(platform.stored(883, 'p').map(({ value }) => value)).toEqual([43]);
    await expect.poll(() => agent.logged('exec.refused')).toHaveLength(1);
    expect(agent.logged('exec.ended')).toEqual([]);
    expect(await agent.metric('tagferry_source_errors_total{source="program"')).toBe(1);
  });
});

describe('listener', () => {
  it.each(['ingest', 'webhook'] as const)(
    'responds 413 to an oversized body and serves the next request (%s)',
    async (listener) => {
      const body = Buffer.alloc(10 * MiB, ' ');
      const headers = signed(body);
      const send = (more: Record<string, string>) =>
        agent.call(socketOf(listener), pathOf(listener), { body, headers: { ...headers, ...more } });
      expect((await send({ 'Content-Length': String(body.length) })).status).toBe(413);
      expect((await send({ 'Transfer-Encoding': 'chunked' })).status).toBe(413);
      await expectService();
    },
  );

  it.each(['ingest', 'webhook'] as const)('closes a connection that sends an endless body (%s)', async (listener) => {
    expect(await sendEndless(listener)).toBeLessThan(64 * MiB);
    await expectService();
  });

  it.each(LISTENERS)('responds 431 to oversized headers (%s)', async (listener) => {
    const headers = { 'X-Long': 'x'.repeat(100_000) };
    expect((await agent.call(socketOf(listener), pathOf(listener), { headers })).status).toBe(431);
    await expectService();
  });

  it.each(LISTENERS)(
    'serves others and limits connections while clients send nothing or half a request (%s)',
    async (listener) => {
      const isClosed = () => crowd.some((socket) => socket.destroyed);
      while (!isClosed()) {
        expect(crowd.length).toBeLessThan(3_000);
        await strangers(listener, 50, '');
        await strangers(listener, 50, 'POST / HTTP/1.1\r\nX-Slow: ');
        await strangers(listener, 10, `${headOf(listener, 'Content-Length: 500000\r\n\r\n')}{`);
        for (const socket of crowd) socket.resume();
        await expectService();
      }
      await expectService();
    },
  );

  it.each([
    ['lists in lists', (n: number) => '['.repeat(n)],
    ['closed lists in lists', (n: number) => `{"values":[${'['.repeat(n / 2)}${']'.repeat(n / 2)}]}`],
    ['objects in objects', (n: number) => '{"values":'.repeat(n / 10)],
    ['a million empty objects', (n: number) => `{"values":[${'{},'.repeat(n / 3)}{}]}`],
    ['a value with very many members', (n: number) => `{"values":[{${'"a":1,'.repeat(n / 6)}"b":1}]}`],
  ])('rejects JSON that is expensive to parse: %s', async (_, text) => {
    const body = text(1_500_000);
    const type = (name: string) => ({ body, headers: { 'Content-Type': name } });
    const pushed = ['application/json', 'application/x-ndjson'].map((name) =>
      agent.call(agent.ingest, '/v1/values', type(name)),
    );
    const others = Promise.all(LISTENERS.map(regular));
    for (const { status } of await Promise.all(pushed)) expect([400, 413, 422]).toContain(status);
    expect(await others).toEqual([204, 204, 200, 200]);
  });

  it('serves others while viewers and clients do not read their responses', async () => {
    const pipelined = (path: string) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`.repeat(30);
    await Promise.all([
      strangers('ops', 40, pipelined('/live/history')),
      strangers('ops', 20, pipelined('/status')),
      strangers('ops', 20, pipelined('/metrics')),
      strangers('ingest', 40, `${headOf('ingest', 'Content-Length: 1\r\n\r\n')}x`.repeat(30)),
      strangers('control', 20, `${headOf('control', 'Content-Length: 2\r\n\r\n')}{}`.repeat(30)),
    ]);
    for (let i = 0; i < 10; i++) await expectService();
  });
});

describe('series of programs', () => {
  let restarted: AgentProcess;

  beforeAll(() => {
    restarted = new AgentProcess(platform.url, { env: { MAX_SERIES: '3' } });
  });
  afterEach(() => platform.recover());
  afterAll(() => restarted.dispose());

  it('are limited by MAX_SERIES, which is logged once, and existing series continue to work', async () => {
    await platform.fail();
    const push = async (key: string) => (await agent.push([{ asset: 884, key, value: 1, unit: 12 }])).status;
    for (let n = 0; n < MAX_SERIES; n++) expect(await push(`k${n}`)).toBe(204);
    expect(agent.logged('ingest.series_limit')).toEqual([]);
    for (let n = 0; n < 20; n++) {
      expect(await push(`further-${n}`)).toBe(422);
      expect(await push('k0')).toBe(204);
    }
    await expectService();
    await expect.poll(() => agent.logged('ingest.series_limit')).toHaveLength(1);
    expect(agent.logged('ingest.series_limit')).toMatchObject([{ level: 'warn', maxSeries: MAX_SERIES }]);
    expect(platform.stored(884, 'further-0')).toEqual([]);
  });

  it('are replaced by others after a restart unless values are stored for them', async () => {
    const push = async (key: string, value: number) => (await restarted.push([{ asset: 885, key, value }])).status;
    const stored = (key: string) => platform.stored(885, key).map(({ value }) => value);
    const drained = async () => (await restarted.metric('tagferry_buffer_values')) === 0;
    await restarted.start();
    expect([await push('delivered-1', 1), await push('delivered-2', 2)]).toEqual([204, 204]);
    await restarted.until(drained, 'both values are delivered');
    await platform.fail();
    expect([await push('waiting', 3), await push('new-1', 4)]).toEqual([204, 422]);
    expect(await restarted.end('SIGTERM')).toBe(0);
    await restarted.start();
    expect([await push('new-1', 5), await push('new-2', 6)]).toEqual([204, 204]);
    expect([await push('delivered-1', 7), await push('waiting', 8)]).toEqual([422, 204]);
    // New series have the numbers of the delivered ones.
    expect(await restarted.end('SIGKILL')).toBe('SIGKILL');
    await restarted.start();
    await platform.recover();
    await restarted.until(drained, 'all values are delivered');
    const keys = ['delivered-1', 'delivered-2', 'waiting', 'new-1', 'new-2'];
    expect(keys.map(stored)).toEqual([[1], [2], [3, 8], [5], [6]]);
  });
});

describe('agent after hundreds of megabytes of oversized input', () => {
  it('has delivered every accepted value and used at most four times its initial memory', async () => {
    agent.signal('SIGHUP');
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty');
    expect(platform.counts(881, 'flow').stored).toBe(accepted);
    expect(peakMb).toBeLessThan(4 * beforeMb);
    expect(agent.logged('agent.starting')).toHaveLength(1);
  });
});
