import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../clock.ts';
import { isLoopbackHost } from '../listen.ts';
import { GIVEN_UP, promisedBytes } from './body.ts';
import {
  bodyFor,
  boundsFor,
  type Connection,
  type ConnectionBounds,
  type ConnectionState,
  isTooSlow,
  isUnread,
  largestSlow,
  placeFor,
  streamFor,
} from './connections.ts';

/** Why a connection was ended: its body came too slowly, its answer was not read, another needed its place or its memory. */
export type EndReason = 'slow' | 'unread' | 'replaced' | 'pipelined';

export interface ConnectionTableOptions {
  connections: number;
  /** For a body to come whole. */
  requestMs: number;
  /** For a peer to read some of its answer. */
  unreadMs: number;
  clock: Clock;
  ended(why: EndReason): void;
}

const LOOK_EVERY_MS = 5_000;
/** Some clients send the next request before they have the answer; more than these under way are no client's. */
const MAX_PIPELINED = 32;

const TOO_SLOW = 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n';

class OpenConnection implements Connection {
  /** The connection itself; `stream` is what speaks HTTP: the same, or TLS on top of it. */
  readonly socket: Socket;
  stream: Socket;
  state: ConnectionState = 'quiet';
  readonly openedMs: number;
  sinceMs: number;
  readonly address: string | undefined;
  marks: { atMs: number; bytes: number }[] = [];
  unreadSinceMs: number | undefined;
  readonly responses = new Set<ServerResponse>();
  /** What had come before the body under way. */
  bytesBefore = 0;
  #takenBytes = 0;

  constructor(socket: Socket, nowMs: number) {
    this.socket = socket;
    this.stream = socket;
    this.openedMs = nowMs;
    this.sinceMs = nowMs;
    const address = socket.remoteAddress;
    this.address = address === undefined || isLoopbackHost(address) ? undefined : address;
  }

  get requests(): number {
    return this.responses.size;
  }

  get bytesRead(): number {
    return this.stream.bytesRead;
  }

  get bodyBytes(): number {
    return this.bytesRead - this.bytesBefore;
  }

  enter(state: ConnectionState, nowMs: number): void {
    this.state = state;
    this.sinceMs = nowMs;
  }

  lookAtAnswers(nowMs: number): void {
    const waiting = this.stream.writableLength;
    const taken = this.stream.bytesWritten - waiting;
    if (waiting === 0) this.unreadSinceMs = undefined;
    else if (this.unreadSinceMs === undefined || taken > this.#takenBytes) this.unreadSinceMs = nowMs;
    this.#takenBytes = taken;
  }
}

/** Keeps the connections of one server and acts on what `connections.ts` decides. */
export class ConnectionTable {
  readonly #options: ConnectionTableOptions;
  readonly #bounds: ConnectionBounds;
  readonly #connections = new Map<Socket, OpenConnection>();
  /** Of TLS: the stream that speaks HTTP is another than the connection. */
  readonly #byStream = new WeakMap<Socket, OpenConnection>();
  /** Looks come only while there is something to look at. */
  #cancel: (() => void) | undefined;

  constructor(options: ConnectionTableOptions) {
    this.#options = options;
    this.#bounds = boundsFor(options.connections);
  }

  stop(): void {
    this.#cancel?.();
  }

  get size(): number {
    return this.#connections.size;
  }

  /** A newcomer. `false` where there is no place for it, and it had better go. */
  open(socket: Socket): boolean {
    const nowMs = this.#options.clock.monotonicMs();
    const connection = new OpenConnection(socket, nowMs);
    if (!this.#makePlace(connection, nowMs)) return false;
    this.#connections.set(socket, connection);
    this.#byStream.set(socket, connection);
    socket.once('close', () => this.#connections.delete(socket));
    this.#cancel ??= this.#options.clock.after(LOOK_EVERY_MS, () => this.#look());
    return true;
  }

  /** A TLS handshake is done: requests will come by `stream`. */
  secured(stream: Socket): void {
    for (const connection of this.#connections.values()) {
      const { socket } = connection;
      if (socket.remotePort !== stream.remotePort || socket.remoteAddress !== stream.remoteAddress) continue;
      connection.stream = stream;
      this.#byStream.set(stream, connection);
      return;
    }
  }

  /** A head has come. `false`: the connection was ended for it. */
  began(request: IncomingMessage, response: ServerResponse): boolean {
    const connection = this.#byStream.get(request.socket);
    if (!connection) return true;
    if (connection.responses.size >= MAX_PIPELINED) {
      this.#end(connection, 'pipelined');
      return false;
    }
    connection.responses.add(response);
    const nowMs = this.#options.clock.monotonicMs();
    const hasBody = promisedBytes(request) !== 0;
    if (hasBody) this.#makeRoom(connection, nowMs);
    connection.enter(hasBody ? 'reading' : 'waiting', nowMs);
    connection.bytesBefore = connection.bytesRead;
    connection.marks = [{ atMs: nowMs, bytes: connection.bytesRead }];
    if (hasBody) request.once('end', () => this.#leaveBody(connection));
    const over = () => {
      if (!connection.responses.delete(response) || connection.responses.size > 0) return;
      connection.enter('quiet', this.#options.clock.monotonicMs());
    };
    response.once('finish', over).once('close', over);
    return true;
  }

  /** The body of this request may go on for ever. `false` where too many do. */
  streams(request: IncomingMessage): boolean {
    const connection = this.#byStream.get(request.socket);
    if (!connection) return true;
    const nowMs = this.#options.clock.monotonicMs();
    const streams = [...this.#connections.values()].filter(({ state }) => state === 'streaming');
    if (streams.length >= this.#bounds.streaming) {
      const stale = streamFor(streams, nowMs);
      if (!stale) return false;
      this.#end(stale, 'replaced');
    }
    connection.enter('streaming', nowMs);
    request.on('data', () => {
      if (connection.state === 'streaming') connection.sinceMs = this.#options.clock.monotonicMs();
    });
    return true;
  }

  /** Bodies under way hold all the memory that they may: ends the largest that comes slowly. Gives whether there was one. */
  freeMemory(): boolean {
    const nowMs = this.#options.clock.monotonicMs();
    const largest = largestSlow(this.#connections.values(), nowMs);
    if (largest) this.#end(largest, 'replaced');
    return largest !== undefined;
  }

  /** Ends those between two requests and those without a complete head; answers under way end their connection. */
  endQuiet(): void {
    for (const connection of [...this.#connections.values()]) {
      if (connection.state === 'quiet') connection.socket.destroy();
      for (const response of connection.responses) closeAfter(response);
    }
  }

  endAll(): void {
    for (const socket of [...this.#connections.keys()]) socket.destroy();
  }

  #makePlace(newcomer: OpenConnection, nowMs: number): boolean {
    const all = [...this.#connections.values()];
    const { address } = newcomer;
    if (address !== undefined) {
      const near = all.filter((each) => each.address === address);
      if (near.length >= this.#bounds.ofOneAddress) return this.#replace(near, nowMs);
    }
    return all.length < this.#bounds.all || this.#replace(all, nowMs);
  }

  #replace(among: OpenConnection[], nowMs: number): boolean {
    for (const each of among) each.lookAtAnswers(nowMs);
    const found = placeFor(among, nowMs);
    if (found) this.#end(found, 'replaced');
    return found !== undefined;
  }

  /** For one more body. */
  #makeRoom(connection: OpenConnection, nowMs: number): void {
    const reading = [...this.#connections.values()].filter((each) => each.state === 'reading' && each !== connection);
    const found = reading.length >= this.#bounds.reading ? bodyFor(reading, nowMs) : undefined;
    if (found) this.#end(found, 'replaced');
  }

  #leaveBody(connection: OpenConnection): void {
    const isOver = connection.responses.size === 0;
    if (!isOver) connection.enter('waiting', this.#options.clock.monotonicMs());
  }

  #look(): void {
    const nowMs = this.#options.clock.monotonicMs();
    const { requestMs, unreadMs } = this.#options;
    for (const connection of [...this.#connections.values()]) {
      connection.lookAtAnswers(nowMs);
      if (isTooSlow(connection, nowMs, requestMs)) this.#end(connection, 'slow');
      else if (isUnread(connection, nowMs, unreadMs)) this.#end(connection, 'unread');
      else if (connection.state === 'reading')
        connection.marks = [...connection.marks.slice(-1), { atMs: nowMs, bytes: connection.bytesRead }];
    }
    const goesOn = this.#connections.size > 0;
    this.#cancel = goesOn ? this.#options.clock.after(LOOK_EVERY_MS, () => this.#look()) : undefined;
  }

  #end(connection: OpenConnection, why: EndReason): void {
    const { socket, stream, state, responses } = connection;
    this.#connections.delete(socket);
    for (const { req } of responses) req.emit(GIVEN_UP);
    const isUnanswered = responses.size === 1 && ![...responses][0]!.headersSent;
    if (state === 'reading' && isUnanswered && stream.writable) {
      stream.end(TOO_SLOW);
      // Who sends on for ever, or reads nothing, must not keep the connection.
      stream.destroySoon();
      this.#options.clock.after(LOOK_EVERY_MS, () => socket.destroy());
    } else {
      socket.destroy();
    }
    this.#options.ended(why);
  }
}

/** Its answer, when it is written, says that the connection ends with it. */
export function closeAfter(response: ServerResponse): void {
  if (!response.headersSent) response.setHeader('Connection', 'close');
}
