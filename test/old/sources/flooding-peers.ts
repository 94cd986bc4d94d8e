import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import mqtt, { type Packet } from 'mqtt-packet';

const MiB = 2 ** 20;
const FILLER = Buffer.alloc(MiB, 'x');

/** Part of the peer's output: bytes, or a number of filler bytes. */
export type Piece = Buffer | number;

/** Writes with back-pressure from the peer. Returns `false` if the connection ended. */
async function send(socket: Socket, pieces: Iterable<Piece>): Promise<boolean> {
  const write = async (bytes: Buffer) => {
    if (socket.destroyed) return;
    if (socket.write(bytes)) return;
    await new Promise<void>((resolve) => {
      const over = () => {
        socket.off('drain', over).off('close', over);
        resolve();
      };
      socket.on('drain', over).on('close', over);
    });
  };
  for (const piece of pieces) {
    if (typeof piece !== 'number') await write(piece);
    else for (let left = piece; left > 0; left -= MiB) await write(FILLER.subarray(0, Math.min(left, MiB)));
    if (socket.destroyed) return false;
  }
  return true;
}

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** Encodes a PUBLISH that libraries reject. `topic` and `properties` may have any length. */
export function publishOf(
  version: 3 | 5,
  messageId: number,
  topic: Buffer | string,
  payload: Piece,
  properties: Buffer = Buffer.alloc(0),
): Piece[] {
  const topicBytes = Buffer.from(topic);
  const start = Buffer.concat([
    Buffer.from([topicBytes.length >> 8, topicBytes.length & 0xff]),
    topicBytes,
    Buffer.from([messageId >> 8, messageId & 0xff]),
    ...(version === 5 ? [lengthOf(properties.length), properties] : []),
  ]);
  const payloadBytes = typeof payload === 'number' ? payload : payload.length;
  return [Buffer.concat([Buffer.from([0x32]), lengthOf(start.length + payloadBytes), start]), payload];
}

/** MQTT 5 user properties (0x26). */
export function propertiesOf(count: number, valueBytes: number): Buffer {
  const text = (bytes: Buffer) => Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 0xff]), bytes]);
  const value = text(FILLER.subarray(0, valueBytes));
  return Buffer.concat(
    Array.from({ length: count }, (_, n) => Buffer.concat([Buffer.from([0x26]), text(Buffer.from(`p${n}`)), value])),
  );
}

function lengthOf(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  do {
    const digit = rest % 0x80;
    rest = Math.floor(rest / 0x80);
    bytes.push(rest > 0 ? digit | 0x80 : digit);
  } while (rest > 0);
  return Buffer.from(bytes);
}

/** MQTT broker that sends `pieces` after each subscription until all `ids` are confirmed. */
export class FloodingBroker {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly confirmed = new Set<number>();
  connections = 0;

  constructor(version: 3 | 5, pieces: () => Iterable<Piece>) {
    const protocolVersion = version === 5 ? 5 : 4;
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      this.connections++;
      socket.on('error', () => {}).on('close', () => this.#sockets.delete(socket));
      const reply = (packet: object) => socket.write(mqtt.generate(packet as Packet, { protocolVersion }));
      const parser = mqtt.parser({ protocolVersion });
      let isSending = false;
      parser.on('packet', (packet: Packet) => {
        if (packet.cmd === 'connect') {
          reply({ cmd: 'connack', sessionPresent: false, ...(version === 5 ? { reasonCode: 0 } : { returnCode: 0 }) });
        }
        if (packet.cmd === 'pingreq') reply({ cmd: 'pingresp' });
        if (packet.cmd === 'puback') this.confirmed.add(packet.messageId!);
        if (packet.cmd !== 'subscribe') return;
        reply({ cmd: 'suback', messageId: packet.messageId, granted: packet.subscriptions.map(() => 1) });
        if (!isSending) void send(socket, pieces());
        isSending = true;
      });
      socket.on('data', (bytes) => void parser.parse(bytes));
    });
  }

  start(): Promise<number> {
    return listen(this.#server);
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** NATS server that sends `pieces` after a client connects, and then only PONG. */
export class FloodingNats {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Number of clients that responded to a PING after the pieces. */
  answered = 0;
  connections = 0;

  constructor(pieces: () => Iterable<Piece>) {
    const info = { server_id: 'N', version: '2.9.10', proto: 1, headers: true, max_payload: 1_048_576 };
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      this.connections++;
      socket.on('error', () => {}).on('close', () => this.#sockets.delete(socket));
      socket.write(`INFO ${JSON.stringify(info)}\r\n`);
      let text = '';
      let isSending = false;
      socket.on('data', (bytes) => {
        text += bytes.toString('latin1');
        const lines = text.split('\r\n');
        text = lines.pop()!;
        for (const line of lines) {
          if (line === 'PING') socket.write('PONG\r\n');
          if (line === 'PONG') this.answered++;
        }
        if (isSending || !lines.includes('PING')) return;
        isSending = true;
        void send(socket, pieces()).then((isComplete) => isComplete && socket.write('PING\r\n'));
      });
    });
  }

  start(): Promise<number> {
    return listen(this.#server);
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
