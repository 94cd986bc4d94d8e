import { type EventEmitter, once } from 'node:events';
import { connect as connectTcp, isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { BrokerError } from './broker-error.ts';
import type { Credentials } from './credentials.ts';
import { MAX_PACKET_BYTES } from './limits.ts';

/**
 * Limit for a WebSocket message, which may contain several packets. A larger one ends the connection. MQTT 5 brokers do
 * not send larger packets, because the client announces its limit.
 */
const MAX_WEB_SOCKET_BYTES = 2 * MAX_PACKET_BYTES;

/** Opens a byte stream to a broker. Rejects with a system error or the abort reason of the signal. */
export async function openTransport(
  address: URL,
  { ca, cert, key, checkServerIdentity }: Credentials,
  signal: AbortSignal,
): Promise<Duplex> {
  signal.throwIfAborted();
  const { protocol } = address;
  const isPlain = protocol === 'mqtt:' || protocol === 'ws:';
  const { host, port } = hostAndPortOf(address);
  const own = { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
  const servername = isIP(host) === 0 ? { servername: host } : {};
  const tls = { ...own, ...servername, ...(checkServerIdentity && { checkServerIdentity }) };
  const connect = () => {
    const socket = isPlain ? connectTcp({ host, port }) : connectTls({ host, port, ...tls });
    return socket.setNoDelay(true);
  };
  if (protocol.startsWith('mqtt')) {
    const socket = connect();
    return opened(socket, socket, isPlain ? 'connect' : 'secureConnect', signal);
  }
  // Loaded only if WebSockets are configured.
  const { createWebSocketStream, WebSocket } = await import('ws');
  const socket = new WebSocket(`${protocol}//${address.host}${address.pathname}${address.search}`, 'mqtt', {
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

const PORTS: Readonly<Record<string, number>> = { 'mqtt:': 1883, 'mqtts:': 8883, 'ws:': 80, 'wss:': 443 };

/** The URL contains the brackets of an IPv6 address, and no default port. */
export function hostAndPortOf({ hostname, port, protocol }: URL): { host: string; port: number } {
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port) || PORTS[protocol]! };
}

/**
 * Parses `mqtt://user:password@host:1883`, `mqtts://` for TLS, `ws://host/path` or `wss://`. Throws `broker.address`,
 * which omits the address because it may contain a password.
 */
export function readBrokerAddress(name: string, url: string): URL {
  const address = URL.parse(url);
  if (address && Object.hasOwn(PORTS, address.protocol) && address.hostname !== '') return address;
  throw new BrokerError(`invalid address for the broker ${name}`, {
    code: 'broker.address',
    hint: 'Use mqtt://host:1883, mqtts://host:8883, ws://host/path or wss://host/path.',
  });
}
