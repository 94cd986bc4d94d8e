import { type EventEmitter, once } from 'node:events';
import { connect as connectTcp, isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { BrokerError } from './broker-error.ts';
import type { Credentials } from './credentials.ts';
import { MAX_PACKET_BYTES } from './discards.ts';

/**
 * Limit for a WebSocket message, which may contain several packets. A larger one ends the connection. MQTT 5 brokers do
 * not send larger packets, because the client announces its limit.
 */
const MAX_WEB_SOCKET_BYTES = 2 * MAX_PACKET_BYTES;

/** Opens a byte stream to a broker. Rejects with a system error or the abort reason of the signal. */
export async function openTransport(
  { protocol, host, port, path }: BrokerAddress,
  { ca, cert, key, checkServerIdentity }: Credentials,
  signal: AbortSignal,
): Promise<Duplex> {
  signal.throwIfAborted();
  const own = { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
  const servername = isIP(host) === 0 ? { servername: host } : {};
  const tls = { ...own, ...servername, ...(checkServerIdentity && { checkServerIdentity }) };
  const isPlain = protocol === 'mqtt' || protocol === 'ws';
  const connect = () => {
    const socket = isPlain ? connectTcp({ host, port }) : connectTls({ host, port, ...tls });
    return socket.setNoDelay(true);
  };
  if (protocol === 'mqtt' || protocol === 'mqtts') {
    const socket = connect();
    return opened(socket, socket, isPlain ? 'connect' : 'secureConnect', signal);
  }
  // Loaded only if WebSockets are configured.
  const { createWebSocketStream, WebSocket } = await import('ws');
  const name = isIP(host) === 6 ? `[${host}]` : host;
  const socket = new WebSocket(`${protocol}://${name}:${port}${path}`, 'mqtt', {
    createConnection: connect,
    maxPayload: MAX_WEB_SOCKET_BYTES,
    perMessageDeflate: false,
  });
  return opened(createWebSocketStream(socket), socket, 'open', signal);
}

/** Waits for the event that completes the connection setup. Destroys the stream if the setup fails or is aborted. */
async function opened(stream: Duplex, emitter: EventEmitter, event: string, signal: AbortSignal): Promise<Duplex> {
  // Ignore late errors of a destroyed stream. The connection handles errors with its own listener.
  stream.on('error', () => {});
  try {
    await once(emitter, event, { signal });
    return stream;
  } catch (error) {
    stream.destroy();
    throw signal.aborted ? signal.reason : error;
  }
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
