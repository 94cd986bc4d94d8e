import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import type { Duplex } from 'node:stream';
import type { NatsConnection } from '@nats-io/transport-node';
import mqtt, { type Packet } from 'mqtt-packet';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { createWebSocketStream, WebSocketServer } from 'ws';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { Broker } from '../../../src/broker/broker.ts';
import { NatsBroker, openNats } from '../../../src/broker/nats/nats-broker.ts';

const MiB = 2 ** 20;
let server: Server;
let broker: Broker | undefined;
let connection: NatsConnection | undefined;
const sockets = new Set<Duplex>();

afterEach(async () => {
  await broker?.stop(0);
  await connection?.close();
  for (const socket of sockets) socket.destroy();
  broker = undefined;
  connection = undefined;
  await new Promise((resolve) => server.close(resolve));
});

async function serve(handle: (socket: Duplex) => void, overWebSocket = false): Promise<number> {
  const accept = (socket: Duplex) => {
    sockets.add(socket.on('error', () => {}));
    handle(socket);
  };
  server = overWebSocket ? createHttpServer() : createServer((socket) => accept(socket.setNoDelay(true)));
  if (overWebSocket) {
    const webSockets = new WebSocketServer({ server: server as ReturnType<typeof createHttpServer> });
    webSockets.on('connection', (peer) => accept(createWebSocketStream(peer)));
  }
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** Splits bytes into pieces of increasing length, starting with one byte, so that every header is split. */
function* cut(bytes: Buffer): Iterable<Buffer> {
  for (let at = 0, length = 1; at < bytes.length; at += length, length = at < 4_000 ? 1 + (at % 7) : 65_536) {
    yield bytes.subarray(at, at + length);
  }
}

async function writePieces(socket: Duplex, pieces: Iterable<Buffer>): Promise<void> {
  for (const piece of pieces) {
    if (!socket.write(piece)) await once(socket, 'drain');
    // Each piece is received separately.
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const PIECES = [
  { how: 'in one piece', pieces: (bytes: Buffer): Iterable<Buffer> => [bytes] },
  { how: 'in small pieces', pieces: cut },
];

/** Starts a client of a broker that sends `pieces` after the first subscription. */
async function subscriber(pieces: Iterable<Buffer>, protocol: 'mqtt' | 'ws' = 'mqtt') {
  const found = { got: [] as string[], acknowledged: [] as (string | number)[], connections: 0 };
  const port = await serve((socket) => {
    found.connections++;
    const reply = (packet: object) => socket.write(mqtt.generate(packet as Packet, { protocolVersion: 5 }));
    const parser = mqtt.parser({ protocolVersion: 5 }).on('packet', (packet) => {
      if (packet.cmd === 'connect') reply({ cmd: 'connack', reasonCode: 0, sessionPresent: false });
      if (packet.cmd === 'puback' || packet.cmd === 'pubrec') found.acknowledged.push(packet.cmd, packet.messageId!);
      if (packet.cmd !== 'subscribe') return;
      reply({ cmd: 'suback', messageId: packet.messageId, granted: [2] });
      void writePieces(socket, pieces);
    });
    socket.on('data', (bytes) => parser.parse(bytes));
  }, protocol === 'ws');
  const spec = { url: `${protocol}://127.0.0.1:${port}`, version: 5, qos: 2, sessionExpiryMs: 60_000 } as const;
  broker = new Broker({ name: 'plant', spec, clientId: 'gw', clock: systemClock, logger: silentLogger() });
  broker.subscribe(['#'], async ({ topic, payload, headers }) => {
    found.got.push(`${topic.slice(0, 9)} ${payload.length} ${[...(headers ?? [])]}`);
  });
  broker.start();
  return found;
}

const publish = (messageId: number, qos: 0 | 1 | 2, topic: string, payloadBytes: number, properties = {}) =>
  mqtt.generate(
    {
      cmd: 'publish',
      topic,
      payload: Buffer.alloc(payloadBytes),
      qos,
      messageId,
      dup: false,
      retain: false,
      properties,
    },
    { protocolVersion: 5 },
  );
const userProperties = (count: number) => ({ userProperties: { p: Array(count).fill('v'.repeat(30_000)) } });

describe('MQTT message', () => {
  it.each([
    ...PIECES.map((one) => ({ ...one, protocol: 'mqtt' as const })),
    { how: 'over WebSockets', pieces: cut, protocol: 'ws' as const },
  ])('over a size limit is discarded and acknowledged, others are delivered: $how', async ({ pieces, protocol }) => {
    const sent = [
      publish(1, 1, 'first', 5),
      publish(2, 1, 't'.repeat(1_025), 0),
      publish(3, 2, 'second', 7, { userProperties: { a: 'b' } }),
      publish(4, 0, 'site', 5 * MiB),
      publish(5, 2, 'site', 5 * MiB),
      Buffer.from([0xd0, 0]),
      publish(6, 1, 'site', 1, userProperties(3)),
      publish(7, 1, 'third', MiB),
    ];
    const found = await subscriber(pieces(Buffer.concat(sent)), protocol);
    await vi.waitUntil(() => found.acknowledged.length === 12, { timeout: 60_000 });
    expect(found).toEqual({
      got: ['first 5 ', 'second 7 a,b', `third ${MiB} `],
      acknowledged: ['puback', 1, 'puback', 2, 'pubrec', 3, 'pubrec', 5, 'puback', 6, 'puback', 7],
      connections: 1,
    });
    expect(broker!.state()).toMatchObject({ discarded: 4, failures: 0 });
  });

  it.each([
    ['a length of five bytes', 'c0ffffffff01'],
    ['a topic that is longer than its packet', '3203000974'],
    ['properties that are longer than their packet', '30050001740a00'],
    ['a SUBACK of 200 kB', '9080e20c'],
    ['a PUBLISH with QoS 3', '3606000174000100'],
    ['an invalid reason code', '4003000133'],
  ])('that is malformed ends the connection: %s', async (_, hex) => {
    await subscriber([Buffer.from(hex, 'hex')]);
    await vi.waitUntil(() => broker!.state().failures > 0);
    expect(broker!.state().problem).toEqual(expect.any(String));
  });
});

describe('NATS message', () => {
  const message = (bytes: number, subject = 'a.b', reply = ' reply') =>
    `MSG ${subject} 1${reply} ${bytes}\r\n${'x'.repeat(bytes)}\r\n`;
  const withHeaders = (bytes: number) => {
    const headers = `NATS/1.0\r\nA: ${'h'.repeat(bytes)}\r\n\r\n`;
    return `HMSG a.b 1 reply ${headers.length} ${headers.length + 2}\r\n${headers}21\r\n`;
  };

  /** Connects the client to a server that sends `pieces` after the first subscription. */
  async function connect(pieces: Iterable<Buffer>) {
    const info = { server_id: 'N', version: '2.9.10', proto: 1, headers: true, max_payload: 1_048_576 };
    const port = await serve((socket) => {
      socket.write(`INFO ${JSON.stringify(info)}\r\n`);
      socket.on('data', (data) => {
        const text = data.toString('latin1');
        if (text.includes('PING\r\n')) socket.write('PONG\r\n');
        if (text.includes('SUB ')) void writePieces(socket, pieces);
      });
    });
    const spec = { servers: [`nats://127.0.0.1:${port}`], ackWaitMs: 1_000, ordered: false };
    ({ connection } = await openNats(
      { name: 'line', spec, clientId: 'gw', platformCaFile: undefined },
      new Redactor(),
    ));
    return connection;
  }

  it.each(PIECES)('over a size limit is replaced by an empty message: $how', async ({ pieces }) => {
    const sent = [
      `PING\r\n${message(5)}${message(0, 'a.b', '')}`,
      withHeaders(100),
      withHeaders(70_000),
      message(1, 's'.repeat(1_025)),
      message(5 * MiB),
      `+OK\r\n${message(3)}`,
    ];
    const client = await connect(pieces(Buffer.from(sent.join(''))));
    const got: unknown[] = [];
    client.subscribe('a.b', {
      callback: (_, { data, reply, headers }) =>
        void got.push([data.length, reply, headers?.get('Tagferry-Discarded') ?? '']),
    });
    await vi.waitUntil(() => got.length === 7, { timeout: 60_000 });
    expect(got).toEqual([
      [5, 'reply', ''],
      [0, '', ''],
      [2, 'reply', ''],
      [0, 'reply', 'headers 70019'],
      [0, 'reply', 'topic 1'],
      [0, 'reply', `packet ${5 * MiB}`],
      [3, 'reply', ''],
    ]);
  });

  it('is delivered only if a consumer sent it, even if its headers are unreadable', async () => {
    const info = { server_id: 'N', version: '2.9.10', proto: 1, headers: true, max_payload: 1_048_576 };
    const config = { durable_name: 'gw', ack_policy: 'explicit', deliver_policy: 'all', filter_subject: 'a.>' };
    const consumer = JSON.stringify({ stream_name: 'S', name: 'gw', config, num_ack_pending: 0 });
    let responses = '';
    const port = await serve((socket) => {
      const ids = new Map<string, string>();
      socket.write(`INFO ${JSON.stringify(info)}\r\n`);
      socket.on('data', (data) => {
        const text = data.toString('latin1');
        responses += text;
        if (text.includes('PING\r\n')) socket.write('PONG\r\n');
        for (const [, subject, id] of text.matchAll(/^SUB (\S+) (\d+)/gm)) ids.set(subject!.replace('*', ''), id!);
        for (const [, subject, reply] of text.matchAll(/^H?PUB (\S+) (_INBOX\S+) /gm)) {
          const id = ids.get(reply!) ?? ids.get(reply!.replace(/[^.]*$/, ''));
          if (subject!.includes('.CONSUMER.INFO.'))
            socket.write(`MSG ${reply} ${id} ${consumer.length}\r\n${consumer}\r\n`);
          if (!subject!.includes('.MSG.NEXT.')) continue;
          const ackOf = (number: number) => `$JS.ACK.S.gw.1.${number}.${number}.1795219200000000000.0`;
          const headers = 'NATS/1.0\r\nG r: 5\r\n\r\n';
          socket.write(`MSG a.b ${id} none 1\r\n1\r\nMSG a.b ${id} ${ackOf(2)} 1\r\n2\r\n`);
          socket.write(`HMSG a.b ${id} ${ackOf(3)} ${headers.length} ${headers.length + 1}\r\n${headers}3\r\n`);
        }
      });
    });
    const spec = { servers: [`nats://127.0.0.1:${port}`], ackWaitMs: 1_000, ordered: false };
    const options = { name: 'line', spec, clientId: 'gw', clock: systemClock, logger: silentLogger() };
    const client = new NatsBroker(options);
    const got: string[] = [];
    const handler = async (message: { string(): string }) => void got.push(message.string());
    client.pull({ stream: 'S', durable: undefined, ordered: false, subjects: ['a.b'], handler });
    client.start();
    try {
      await vi.waitUntil(() => got.includes('2') && got.includes('3') && responses.includes('+ACK'), {
        timeout: 20_000,
      });
      expect(got).not.toContain('1');
    } finally {
      await client.stop(0);
    }
  });

  it.each([
    ['an unterminated line', 'M'.repeat(70_000)],
    ['a message that is longer than its line states', 'MSG a 1 2\r\nxxxx\r\n'],
    ['a message without a length', 'MSG a 1 many\r\n'],
    ['a line that the parser would read differently', 'MSG a 1 2\r90000000\n'],
  ])('that is malformed ends the connection: %s', async (_, text) => {
    const client = await connect([Buffer.from(text)]);
    client.subscribe('a');
    expect(await client.closed()).toMatchObject({ code: 'broker.malformed' });
  });
});
