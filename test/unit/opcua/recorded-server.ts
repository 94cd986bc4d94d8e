/**
 * Server that replays recorded responses of another OPC UA implementation, so that the client is tested against bytes
 * that its own library did not write. Security policy None.
 *
 * A recording is a JSON object: the acknowledgement of the connection, the response that opens the channel, and the other
 * exchanges in order: type of the request, its body after the header, and the chunks of the response, all in hex. Numbers
 * that belong to one connection are replaced.
 */
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';

interface Exchange {
  type: number;
  body: string;
  chunks: readonly string[];
}

export interface Recording {
  acknowledge: string;
  open: string;
  exchanges: readonly Exchange[];
}

const HEADER = 8;
/** Chunk header, channel, token, sequence number, request id. */
const MESSAGE_HEADER = 24;
const SEQUENCE = 16;
const REQUEST_ID = 20;
const TYPE = 4;
const TIMESTAMP = 8;
const PUBLISH = 826;
const FAULT = 397;

function responseType([first = '']: readonly string[]): number {
  return Buffer.from(first, 'hex').readUInt16LE(MESSAGE_HEADER + 2);
}

interface Request {
  type: number;
  handle: number;
  /** Body after the request header. */
  body: string;
}

/** Reads a request that fits into one chunk. */
function requestOf(chunk: Buffer): Request {
  const type = chunk.readUInt16LE(MESSAGE_HEADER + 2);
  const token = MESSAGE_HEADER + TYPE;
  const handleAt = token + nodeIdLength(chunk, token) + TIMESTAMP;
  return { type, handle: chunk.readUInt32LE(handleAt), body: chunk.toString('hex', afterHeader(chunk, handleAt)) };
}

/** Offset after handle, diagnostics, audit entry, timeout and an empty additional header. */
function afterHeader(chunk: Buffer, handleAt: number): number {
  const auditAt = handleAt + 8;
  const auditLength = Math.max(0, chunk.readInt32LE(auditAt));
  return auditAt + 4 + auditLength + 4 + 3;
}

/** Length of a node id (OPC 10000-6, 5.2.2.9). */
function nodeIdLength(bytes: Buffer, at: number): number {
  const encoding = bytes[at]!;
  const lengths: Readonly<Record<number, number>> = { 0: 2, 1: 4, 2: 7, 4: 19 };
  return lengths[encoding] ?? 7 + Math.max(0, bytes.readInt32LE(at + 3));
}

/** Offset of the sequence number in a message that opens a channel. */
function openSequenceOffset(chunk: Buffer): number {
  let at = HEADER + 4;
  for (let text = 0; text < 3; text++) at += 4 + Math.max(0, chunk.readInt32LE(at));
  return at;
}

/** Splits a stream into chunks. */
function chunksOf(received: Buffer): { chunks: Buffer[]; rest: Buffer } {
  const chunks: Buffer[] = [];
  let rest = received;
  while (rest.length >= HEADER && rest.length >= rest.readUInt32LE(4)) {
    chunks.push(rest.subarray(0, rest.readUInt32LE(4)));
    rest = rest.subarray(rest.readUInt32LE(4));
  }
  return { chunks, rest };
}

export class RecordedServer {
  readonly #recording: Recording;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(recording: Recording) {
    this.#recording = recording;
    this.#server = createServer((socket) => this.#serve(socket));
  }

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `opc.tcp://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  #serve(socket: Socket): void {
    const connection = new Connection(this.#recording, socket);
    this.#sockets.add(socket);
    let rest: Buffer = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      const split = chunksOf(Buffer.concat([rest, bytes]));
      rest = split.rest;
      for (const chunk of split.chunks) connection.answer(chunk);
    });
  }
}

class Connection {
  readonly #recording: Recording;
  readonly #socket: Socket;
  readonly #left: Exchange[];
  #sequence = 0;

  constructor(recording: Recording, socket: Socket) {
    this.#recording = recording;
    this.#socket = socket;
    this.#left = recording.exchanges.filter(({ type, chunks }) => type !== PUBLISH || responseType(chunks) !== FAULT);
  }

  answer(chunk: Buffer): void {
    const kind = chunk.toString('latin1', 0, 3);
    if (kind === 'HEL') this.#socket.write(Buffer.from(this.#recording.acknowledge, 'hex'));
    else if (kind === 'OPN') {
      const at = openSequenceOffset(chunk);
      const handleAt = at + 8 + TYPE + nodeIdLength(chunk, at + 8 + TYPE) + TIMESTAMP;
      const response = Buffer.from(this.#recording.open, 'hex');
      const offset = openSequenceOffset(response);
      this.#send(response, offset, chunk.readUInt32LE(at + 4), chunk.readUInt32LE(handleAt));
    } else if (kind === 'MSG') this.#replay(chunk);
    else this.#socket.end();
  }

  /**
   * Requests with the same body get the same response. Publish requests, whose acknowledgements depend on timing, get the
   * responses in order; one without a recorded response waits, instead of failing when the recorded subscription ended.
   */
  #replay(chunk: Buffer): void {
    const { type, handle, body } = requestOf(chunk);
    const isSame = (one: Exchange) => one.type === type && (one.body === body || type === PUBLISH);
    let at = this.#left.findIndex(isSame);
    if (at === -1) at = this.#left.findIndex((one) => one.type === type);
    const [found] = at === -1 ? [] : this.#left.splice(at, 1);
    const exchange = found ?? this.#recording.exchanges.findLast((one) => one.type === type);
    if (exchange === undefined || (found === undefined && type === PUBLISH)) return;
    // Only the first chunk contains the response header.
    for (const [part, text] of exchange.chunks.entries())
      this.#send(Buffer.from(text, 'hex'), SEQUENCE, chunk.readUInt32LE(REQUEST_ID), part === 0 ? handle : undefined);
  }

  #send(response: Buffer, sequenceAt: number, requestId: number, handle: number | undefined): void {
    response.writeUInt32LE(++this.#sequence, sequenceAt);
    response.writeUInt32LE(requestId, sequenceAt + 4);
    if (handle !== undefined) response.writeUInt32LE(handle, sequenceAt + 8 + TYPE + TIMESTAMP);
    this.#socket.write(response);
  }
}
