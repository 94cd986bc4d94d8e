import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../clock.ts';
import { TagferryError } from '../errors.ts';
import { releaseMemory } from '../release-memory.ts';
import { CollectedBytes } from './collected-bytes.ts';
import type { Reservation } from './memory-budget.ts';

/**
 * Reason why a body was not read: too large, out of memory, aborted by the client, or stopped by the server, which has
 * already responded.
 */
export type BodyFault = 'too-large' | 'no-room' | 'aborted' | 'given-up';

export class BodyError extends TagferryError {
  readonly fault: BodyFault;

  constructor(fault: BodyFault) {
    super(`failed to read the request body: ${fault}`, { code: `inbound.${fault}` });
    this.fault = fault;
  }
}

/**
 * Event emitted by a request whose connection is closed while its body is being read. `close` would be emitted later,
 * but the memory is needed immediately.
 */
export const GIVEN_UP = Symbol('given up');

/**
 * Reads a body of at most `maxBytes` and grows the reservation accordingly. On failure, rejects with a `BodyError`
 * without reading the rest.
 */
export function readBody(request: IncomingMessage, maxBytes: number, reservation: Reservation): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const bytes = new CollectedBytes();
    const stop = (fault: BodyFault) => {
      request.off('data', onData).off('end', onEnd).off('close', onClose).off(GIVEN_UP, onGivenUp);
      bytes.release();
      reservation.set(0);
      reject(new BodyError(fault));
    };
    const onData = (chunk: Buffer) => {
      bytes.add(chunk);
      if (bytes.length > maxBytes) stop('too-large');
      else if (!reservation.grow(chunk.length)) stop('no-room');
    };
    const onEnd = () => {
      request.off('close', onClose).off(GIVEN_UP, onGivenUp);
      resolve(bytes.takeAll());
    };
    const onClose = () => stop('aborted');
    const onGivenUp = () => stop('given-up');
    // Without a listener, a reset by the client would crash the process. `close` is emitted afterwards.
    request.on('error', () => {});
    request.on('data', onData).on('end', onEnd).on('close', onClose).on(GIVEN_UP, onGivenUp);
    if (request.destroyed) onClose();
  });
}

const DISCARD_MS = 2_000;
const DISCARD_BYTES = 16 * 1024 * 1024;
const READ_PAST_BYTES = 65_536;

/**
 * Responds before the body is complete. If the rest of the body is small, it is discarded and the connection is kept.
 * Otherwise the connection is closed after a delay, because closing while the client is sending would reset the
 * connection and the client could lose the response.
 */
export function answerEarly(
  request: IncomingMessage,
  response: ServerResponse,
  answer: { status: number; headers: Readonly<Record<string, string>>; text: string },
  clock: Clock,
): void {
  if (response.headersSent || response.destroyed) return;
  const { status, headers, text } = answer;
  const withLength = { ...headers, 'Content-Length': String(Buffer.byteLength(text)) };
  if (request.complete || endsSoon(request)) {
    request.resume();
    response.writeHead(status, withLength).end(text);
    return;
  }
  response.writeHead(status, { ...withLength, Connection: 'close' }).write(text);
  let left = DISCARD_BYTES;
  const end = () => {
    cancel();
    response.end();
  };
  const cancel = clock.after(DISCARD_MS, end);
  request.on('data', (chunk: Buffer) => {
    left -= chunk.length;
    releaseMemory(chunk);
    if (left < 0) end();
  });
  request.on('error', () => {});
  request.once('close', end).once('end', end);
  request.resume();
}

function endsSoon(request: IncomingMessage): boolean {
  const promised = promisedBytes(request);
  return promised === 0 || (request.headers.expect === undefined && (promised ?? Infinity) <= READ_PAST_BYTES);
}

/** Returns the declared length of a body, or `undefined` for a chunked body. */
export function promisedBytes(request: IncomingMessage): number | undefined {
  if (request.headers['transfer-encoding'] !== undefined) return undefined;
  // A request without these headers has no body (RFC 9112 section 6.3).
  return Number(request.headers['content-length'] ?? 0);
}
