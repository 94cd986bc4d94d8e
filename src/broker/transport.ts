import { type EventEmitter, once } from 'node:events';
import { connect as connectTcp, isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { placeOf } from './broker-spec.ts';
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
  const { host, port } = placeOf(address);
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
