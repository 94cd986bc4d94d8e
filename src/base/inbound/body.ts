import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../clock.ts';
import { TagferryError } from '../errors.ts';
import { giveBack } from '../give-back.ts';
import { CollectedBytes } from './collected-bytes.ts';
import type { Reservation } from './memory-budget.ts';

/** Why a body was not read: too much, no memory for it now, its sender left, or we ended its connection, and have said so. */
export type BodyFault = 'too-large' | 'no-room' | 'aborted' | 'given-up';

export class BodyError extends TagferryError {
  readonly fault: BodyFault;

  constructor(fault: BodyFault) {
    super(`the body was not read: ${fault}`, { code: `inbound.${fault}` });
    this.fault = fault;
  }
}

/** What a request emits whose connection is ended in the middle of it: 'close' comes turns later, and its memory is wanted now. */
export const GIVEN_UP = Symbol('given up');

/** Reads a body of at most `maxBytes`, which grows the reservation. Rejects with a `BodyError`; the rest is then not read. */
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
    // Without a listener a reset by the client would end the process; 'close' follows.
    request.on('error', () => {});
    request.on('data', onData).on('end', onEnd).on('close', onClose).on(GIVEN_UP, onGivenUp);
    if (request.destroyed) onClose();
  });
}

/** A body as it comes, a chunk at a time; nothing more is taken off the wire meanwhile. Rejects where it breaks off. */
export class BodyChunks implements AsyncIterator<Buffer> {
  readonly #request: IncomingMessage;
  readonly #waiting: Buffer[] = [];
  #wake: () => void = () => {};
  #ended: 'whole' | 'broken' | undefined;

  constructor(request: IncomingMessage) {
    this.#request = request;
    request.on('error', () => {});
    request.on('data', this.#onData).on('end', this.#onEnd).on('close', this.#onClose);
    request.pause();
  }

  async next(): Promise<IteratorResult<Buffer>> {
    while (this.#waiting.length === 0 && this.#ended === undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        this.#request.resume();
      });
    }
    const value = this.#waiting.shift();
    if (value !== undefined) return { value };
    if (this.#ended === 'broken') throw new BodyError('aborted');
    return { value: undefined, done: true };
  }

  /** Nothing more is wanted: the rest may be read past. */
  release(): void {
    this.#request.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
    this.#ended ??= 'broken';
    this.#wake();
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#request.pause();
    this.#waiting.push(chunk);
    this.#wake();
  };
  readonly #onEnd = (): void => {
    this.#ended = 'whole';
    this.#wake();
  };
  readonly #onClose = (): void => {
    this.#ended ??= 'broken';
    this.#wake();
  };
}

const DISCARD_MS = 2_000;
const DISCARD_BYTES = 16 * 1024 * 1024;
const READ_PAST_BYTES = 65_536;

/**
 * Answers a request whose body may still be coming. A little that is certain to come is read past, and the connection goes on. Else
 * the whole answer goes out now and the end of the connection waits: closing while the sender still sends would
 * reset it, and a reset can overtake the answer.
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
    giveBack(chunk);
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

/** The bytes of a body that a request promises; `undefined` where only its end will tell (chunks). */
export function promisedBytes(request: IncomingMessage): number | undefined {
  if (request.headers['transfer-encoding'] !== undefined) return undefined;
  // Neither header: there is no body (RFC 9112 section 6.3).
  return Number(request.headers['content-length'] ?? 0);
}
