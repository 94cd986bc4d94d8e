import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { Redactor } from '../../../../src/base/redactor.ts';
import { Connection, type Message } from '../../../../src/broker/connection.ts';
import { openNats } from '../../../../src/broker/nats/nats-broker.ts';
import { commonSubject, covers, NATS_SUBJECTS } from '../../../../src/broker/topic-filters.ts';
import { eachReaderLine } from '../../../../src/sources/opcua/reader-process.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';
import { demand, demandSame, type FuzzTarget } from '../target.ts';

/** Starts a server on loopback that handles each connection with `serve`. */
async function served(serve: (socket: Socket) => void): Promise<{ port: number; server: Server }> {
  const server = createServer((socket) => serve(socket.on('error', () => {})));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { port: (server.address() as AddressInfo).port, server };
}

const CONNACK = Buffer.from([0x20, 3, 0, 0, 0]);
const NEVER = new AbortController().signal;
/** PUBLISH with QoS 0, 1 and 2 and a property, PUBREL, PINGRESP, DISCONNECT. */
const PACKETS = {
  qos0: '300900037369740068656a',
  qos1: '320b0003736974000100312e35',
  qos2: '34120003736974000207260001610001623132',
  release: '62020002',
  answers: 'd0009003000100004003000100b003000100',
  end: 'e0028e00',
};

/** MQTT 5 packets after CONNACK. The first byte determines the size of the pieces. */
const mqttWire: FuzzTarget = {
  name: 'mqtt-wire',
  costs: 8,
  seeds: [
    Buffer.from(`01${Object.values(PACKETS).join('')}`, 'hex'),
    Buffer.from(`00${PACKETS.qos1}${PACKETS.qos1}${PACKETS.release}`, 'hex'),
    Buffer.from(`05${PACKETS.qos2}${PACKETS.release}${PACKETS.end}`, 'hex'),
  ],
  async run(bytes) {
    const rest = bytes.subarray(1);
    const piece = Math.max(1, (bytes[0] ?? 0) * 8, rest.length >> 3);
    const { port, server } = await served((socket) => {
      socket.once('data', () => {
        socket.write(CONNACK);
        for (let at = 0; at < rest.length; at += piece) socket.write(rest.subarray(at, at + piece));
        socket.end();
      });
    });
    const taken: Message[] = [];
    const connection = await Connection.open(
      {
        address: new URL(`mqtt://127.0.0.1:${port}`),
        credentials: {},
        clientId: 'fuzz',
        version: 5,
        sessionExpiryMs: 60_000,
        clock: new ManualClock(),
        will: undefined,
        receiver: {
          isFull: () => false,
          async receive(message) {
            taken.push(message);
          },
          discard() {},
          stalled() {},
        },
      },
      NEVER,
    );
    await connection.closed;
    server.close();
    demand(connection.isClosed, 'the connection is closed but reports open');
    for (const { topic, payload, qos } of taken) {
      demand(typeof topic === 'string' && payload instanceof Uint8Array && qos <= 2, 'invalid message');
    }
  },
};

const INFO = `INFO ${JSON.stringify({ server_id: 'N', version: '2.9.10', proto: 1, headers: true, max_payload: 1_048_576 })}\r\n`;

/** NATS protocol after the login. */
const natsWire: FuzzTarget = {
  name: 'nats-wire',
  costs: 8,
  seeds: [
    'PING\r\nMSG site.a 1 4\r\nwarm\r\n+OK\r\n',
    'HMSG site.a 1 _R_ 22 26\r\nNATS/1.0\r\nA: b\r\n\r\nwarm\r\n',
    "-ERR 'Authorization Violation'\r\n",
    `${INFO}PONG\r\n`,
  ],
  async run(bytes) {
    const { port, server } = await served((socket) => {
      socket.write(INFO);
      let heard = '';
      socket.on('data', (data) => {
        heard += data.toString('latin1');
        if (!heard.includes('PING\r\n')) return;
        heard = '';
        socket.write('PONG\r\n');
        socket.end(bytes);
      });
    });
    const spec = { servers: [`nats://127.0.0.1:${port}`], ackWaitMs: 30_000, ordered: false };
    try {
      const { connection } = await openNats(
        { name: 'fuzz', spec, clientId: 'fuzz', platformCaFile: undefined },
        new Redactor(),
      );
      await connection.closed();
    } catch (error) {
      demand(error instanceof Error, 'the thrown value is not an Error');
    } finally {
      server.close();
    }
  },
};

/** One subject per line. Their common subject must cover each. */
const natsSubjects: FuzzTarget = {
  name: 'nats-subjects',
  seeds: ['site.a\nsite.b', 'a.*.c\na.b.>\na', '>\na.b', '*.b\na.*.c.d'],
  run(bytes) {
    const level = /^(\*|[^\s.*>+#/]+)$/;
    const isSubject = (text: string) =>
      text.split('.').every((one, at, all) => level.test(one) || (one === '>' && at === all.length - 1));
    const subjects = bytes.toString('utf8').split('\n').filter(isSubject);
    if (subjects.length === 0) return;
    const common = commonSubject(subjects);
    for (const subject of subjects)
      demand(covers(common, subject, NATS_SUBJECTS), `${common} does not cover ${subject}`);
  },
};

/** JSON lines of the OPC UA program. The first byte determines the size of the pieces. */
const readerLines: FuzzTarget = {
  name: 'reader-lines',
  seeds: [
    'a{"connected":true}\n{"values":[[0,12.5,1700000000123,0]],"ordinal":1,"subscription":7,"sequence":17,"overflows":0}\n',
    'b{"connected":false,"problem":"°C"}\n{"answer":1,"end":true}\n{"refused":[[0,"BadNodeIdUnknown"]]}',
    'c{"lost":3}\n\n',
  ],
  async run(bytes) {
    const rest = bytes.subarray(1);
    const piece = Math.max(1, (bytes[0] ?? 1) % 16, rest.length >> 7);
    const read = async (pieceBytes: number) => {
      const lines: unknown[] = [];
      try {
        await eachReaderLine(Readable.from(piecesOf(rest, pieceBytes), { objectMode: false }), (line) => {
          lines.push(line);
        });
      } catch (error) {
        // The agent restarts the program after invalid JSON.
        if (!(error instanceof SyntaxError)) throw error;
      }
      return lines;
    };
    demandSame('lines in one piece and in several', await read(rest.length + 1), await read(piece));
  },
};

function* piecesOf(bytes: Buffer, pieceBytes: number): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += pieceBytes) yield bytes.subarray(at, at + pieceBytes);
}

export const WIRE = [mqttWire, natsWire, natsSubjects, readerLines];
