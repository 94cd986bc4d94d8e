import { type EventEmitter, once } from 'node:events';
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { Duplex, pipeline, Transform } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { BrokerError } from './broker-error.ts';
import type { Credentials } from './credentials.ts';
import { MAX_FRAME_BYTES, WebSocketFraming } from './web-socket-framing.ts';

/** Opens a byte stream to a broker. Rejects with a system error or the abort reason of the signal. */
export async function openTransport(
  address: BrokerAddress,
  credentials: Credentials,
  signal: AbortSignal,
): Promise<Duplex> {
  signal.throwIfAborted();
  const { host, port, protocol } = address;
  const { ca, cert, key, checkServerIdentity } = credentials;
  const servername = isIP(host) === 0 ? { servername: host } : {};
  const own = { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
  const tls = { ...servername, ...own, ...(checkServerIdentity && { checkServerIdentity }) };
  const isPlain = protocol === 'mqtt' || protocol === 'ws';
  const connect = () => {
    const stream = isPlain ? connectTcp({ host, port }) : connectTls({ host, port, ...tls });
    return stream.setNoDelay(true);
  };
  if (protocol === 'ws' || protocol === 'wss') return openWebSocket(address, connect, signal);
  const stream = connect();
  await opened(stream, stream, protocol === 'mqtt' ? 'connect' : 'secureConnect', signal);
  return stream;
}

async function openWebSocket(
  { protocol, host, port, path }: BrokerAddress,
  connect: () => Socket,
  signal: AbortSignal,
): Promise<Duplex> {
  // Loaded only if WebSockets are configured.
  const { createWebSocketStream, WebSocket } = await import('ws');
  const name = isIP(host) === 6 ? `[${host}]` : host;
  const socket = new WebSocket(`${protocol}://${name}:${port}${path}`, 'mqtt', {
    createConnection: () => framed(connect()),
    maxPayload: MAX_FRAME_BYTES,
    perMessageDeflate: false,
  });
  const stream = createWebSocketStream(socket);
  await opened(stream, socket, 'open', signal);
  return stream;
}

/** Waits for the event that completes the connection setup. Destroys the stream if the setup fails or is aborted. */
async function opened(stream: Duplex, emitter: EventEmitter, event: string, signal: AbortSignal): Promise<void> {
  // Late errors of a destroyed stream are ignored. The connection handles errors with its own listener.
  stream.on('error', () => {});
  try {
    await once(emitter, event, { signal });
  } catch (error) {
    stream.destroy();
    throw signal.aborted ? signal.reason : error;
  }
}

/** Returns the socket with its received data split into small frames. */
function framed(socket: Socket): Duplex {
  const framing = new WebSocketFraming();
  const frames = new Transform({
    transform(chunk: Buffer, _, done) {
      try {
        for (const piece of framing.push(chunk)) this.push(piece);
        done();
      } catch (error) {
        done(error as Error);
      }
    },
  });
  // The reader of the frames receives the errors.
  const readable = pipeline(socket, frames, () => {});
  // An aborted handshake destroys the stream after removing its own listeners.
  return Duplex.from({ readable, writable: socket }).on('error', () => {});
}

type BrokerProtocol = 'mqtt' | 'mqtts' | 'ws' | 'wss';

/** A parsed MQTT address: `mqtt://user:password@host:1883`, `mqtts://` for TLS, `ws://host/path`, `wss://`. */
export interface BrokerAddress {
  protocol: BrokerProtocol;
  host: string;
  port: number;
  /** WebSocket path, including the query. */
  path: string;
  username?: string;
  password?: string;
}

const PORTS: Readonly<Record<BrokerProtocol, number>> = { mqtt: 1883, mqtts: 8883, ws: 80, wss: 443 };

/** Throws `broker.address`, which omits the address because it may contain a password. */
export function readBrokerAddress(name: string, url: string): BrokerAddress {
  const parsed = URL.parse(url);
  const protocol = parsed?.protocol.slice(0, -1) as BrokerProtocol | undefined;
  if (!parsed || protocol === undefined || !Object.hasOwn(PORTS, protocol) || parsed.hostname === '') {
    throw new BrokerError(`invalid address for the broker ${name}`, {
      code: 'broker.address',
      hint: 'Use mqtt://host:1883, mqtts://host:8883, ws://host/path or wss://host/path.',
    });
  }
  return {
    protocol,
    // The URL contains the brackets of an IPv6 address.
    host: parsed.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: parsed.port === '' ? PORTS[protocol] : Number(parsed.port),
    path: parsed.pathname + parsed.search,
    ...(parsed.username === '' ? {} : { username: decodeURIComponent(parsed.username) }),
    ...(parsed.password === '' ? {} : { password: decodeURIComponent(parsed.password) }),
  };
}
