import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { Duplex, pipeline, Transform } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import type { BrokerAddress } from './broker-address.ts';
import type { Credentials } from './credentials.ts';
import { MAX_FRAME_BYTES, WebSocketFraming } from './web-socket-framing.ts';

/** A connected stream of bytes to a broker. Rejects with the system's error, or the signal's reason. */
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
  await until(stream, protocol === 'mqtt' ? 'connect' : 'secureConnect', signal);
  return stream;
}

async function openWebSocket(
  { protocol, host, port, path }: BrokerAddress,
  connect: () => Socket,
  signal: AbortSignal,
): Promise<Duplex> {
  // Only here: a broker without WebSockets does not load it.
  const { createWebSocketStream, WebSocket } = await import('ws');
  const name = isIP(host) === 6 ? `[${host}]` : host;
  const socket = new WebSocket(`${protocol}://${name}:${port}${path}`, 'mqtt', {
    createConnection: () => framed(connect()),
    maxPayload: MAX_FRAME_BYTES,
    perMessageDeflate: false,
  });
  const stream = createWebSocketStream(socket);
  await new Promise<void>((resolve, reject) => {
    const fail = (error: unknown) => {
      signal.removeEventListener('abort', onAbort);
      stream.on('error', () => {});
      stream.destroy();
      reject(error);
    };
    const onAbort = () => fail(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    stream.once('error', fail);
    socket.once('open', () => {
      signal.removeEventListener('abort', onAbort);
      stream.removeListener('error', fail);
      resolve();
    });
  });
  return stream;
}

/** The socket, with what it receives in small frames. */
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
  // Errors reach the reader of the frames.
  const readable = pipeline(socket, frames, () => {});
  // A handshake that is given up destroys it after its own listeners have left.
  return Duplex.from({ readable, writable: socket }).on('error', () => {});
}

function until(stream: Duplex, event: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const over = (settle: () => void) => {
      signal.removeEventListener('abort', onAbort);
      stream.removeListener(event, onEvent);
      stream.removeListener('error', onError);
      settle();
    };
    const onEvent = () => over(resolve);
    const onError = (error: unknown) => over(() => fail(error));
    const onAbort = () => over(() => fail(signal.reason));
    const fail = (error: unknown) => {
      // Late errors of a stream that is over have nobody to tell.
      stream.on('error', () => {});
      stream.destroy();
      reject(error);
    };
    signal.addEventListener('abort', onAbort, { once: true });
    stream.once(event, onEvent);
    stream.once('error', onError);
  });
}
