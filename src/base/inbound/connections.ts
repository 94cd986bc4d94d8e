/**
 * Connections of a listener. The limits prevent slow or silent clients from blocking others.
 *
 *     quiet ──► reading ──► waiting ──► quiet        (body is read, then the request is processed and answered)
 *
 * A quiet connection has not sent a complete request head: it is new or between two requests. If all slots are in use,
 * a new connection replaces the one that `placeRank` selects, preferably the one that has been quiet longest. During a
 * flood, each new connection therefore has as much time as it takes to fill all slots, which is enough to send a head.
 * Bodies have a lower limit, above which the connection with the slowest body is closed. One IP address can use at most
 * a quarter of the connections. Loopback and Unix sockets are exempt, because a proxy may serve many clients.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../clock.ts';
import { isLoopbackHost } from '../listen.ts';
import { GIVEN_UP, promisedBytes } from './body.ts';

/**
 * Reason why a connection was closed: slow body, unread response, replaced by another connection, or too many pipelined
 * requests.
 */
export type EndReason = 'slow' | 'unread' | 'replaced' | 'pipelined';

export interface ConnectionsOptions {
  connections: number;
  /** Time limit for receiving a body, in milliseconds. */
  requestMs: number;
  /** Time limit for a peer that does not read its response, in milliseconds. */
  unreadMs: number;
  clock: Clock;
  ended(why: EndReason): void;
}

const CHECK_INTERVAL_MS = 5_000;
/** Minimum rate of a body over two checks, lower than the slowest modem link. */
const MIN_BYTES_PER_SECOND = 250;
/**
 * Bodies slower than this would exceed the time limit if they were large, so their connections are closed when memory
 * is needed.
 */
const YIELDING_BYTES_PER_SECOND = 16_384;
/** Minimum time before a connection counts as slow, idle or unread. */
const GRACE_MS = 1_000;
/** Maximum number of pipelined requests; some clients send the next request before they receive the response. */
const MAX_PIPELINED = 32;

const TOO_SLOW = 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n';

/** Returns the maximum number of bodies that a listener reads at the same time. */
export function maxBodies(connections: number): number {
  return Math.max(1, Math.floor(connections / 2));
}

class Connection {
  /** Network connection. `stream` carries HTTP: either the connection itself or TLS on top of it. */
  readonly socket: Socket;
  stream: Socket;
  readonly address: string | undefined;
  readonly openedMs: number;
  readonly responses = new Set<ServerResponse>();
  state: 'quiet' | 'reading' | 'waiting' = 'quiet';
  /** Time of the latest state change. */
  sinceMs: number;
  /** Byte counts at the two previous checks or at the start of the body. */
  #marks: { atMs: number; bytes: number }[] = [];
  #bytesBeforeBody = 0;
  /** Time at which pending data was last sent; `undefined` if no data is pending. */
  #unreadSinceMs: number | undefined;
  #sentBytes = 0;

  constructor(socket: Socket, nowMs: number) {
    this.socket = socket;
    this.stream = socket;
    this.openedMs = nowMs;
    this.sinceMs = nowMs;
    const address = socket.remoteAddress;
    this.address = address === undefined || isLoopbackHost(address) ? undefined : address;
  }

  get bodyBytes(): number {
    return this.stream.bytesRead - this.#bytesBeforeBody;
  }

  enter(state: Connection['state'], nowMs: number): void {
    this.state = state;
    this.sinceMs = nowMs;
  }

  startBody(nowMs: number): void {
    this.#bytesBeforeBody = this.stream.bytesRead;
    this.#marks = [{ atMs: nowMs, bytes: this.#bytesBeforeBody }];
  }

  markProgress(nowMs: number): void {
    this.#marks = [...this.#marks.slice(-1), { atMs: nowMs, bytes: this.stream.bytesRead }];
  }

  /**
   * Bytes per second since the check before the previous one, or Infinity if the body started less than `GRACE_MS` ago.
   */
  rate(nowMs: number): number {
    const [from] = this.#marks;
    if (!from || nowMs - from.atMs < GRACE_MS) return Number.POSITIVE_INFINITY;
    return ((this.stream.bytesRead - from.bytes) * 1000) / (nowMs - from.atMs);
  }

  /** Whether a body has exceeded the time limit, or was too slow over two checks. */
  isTooSlow(nowMs: number, requestMs: number): boolean {
    if (this.state !== 'reading') return false;
    return nowMs - this.sinceMs >= requestMs || (this.#marks.length > 1 && this.rate(nowMs) < MIN_BYTES_PER_SECOND);
  }

  /** Returns how long the peer has not read any pending data, in milliseconds; `undefined` if no data is pending. */
  unreadMs(nowMs: number): number | undefined {
    const pending = this.stream.writableLength;
    const sent = this.stream.bytesWritten - pending;
    if (pending === 0) this.#unreadSinceMs = undefined;
    else if (this.#unreadSinceMs === undefined || sent > this.#sentBytes) this.#unreadSinceMs = nowMs;
    this.#sentBytes = sent;
    return this.#unreadSinceMs === undefined ? undefined : nowMs - this.#unreadSinceMs;
  }

  /**
   * Order in which new connections replace existing ones, lowest first: quiet, unread response, slow body, pipelined
   * requests, recent unread response, recently quiet. Returns `undefined` for an active connection. The final group is
   * ordered by age, so that a repeatedly quiet connection does not outlive newer ones.
   */
  placeRank(nowMs: number): readonly [group: number, order: number] | undefined {
    const unreadMs = this.unreadMs(nowMs);
    if (this.state === 'quiet') return nowMs - this.sinceMs >= GRACE_MS ? [0, this.sinceMs] : [5, this.openedMs];
    if (this.state === 'reading') {
      const rate = this.rate(nowMs);
      return rate < MIN_BYTES_PER_SECOND ? [2, rate] : undefined;
    }
    if (unreadMs !== undefined && unreadMs >= GRACE_MS) return [1, -unreadMs];
    if (this.responses.size > 1) return [3, -this.responses.size];
    return unreadMs === undefined ? undefined : [4, -unreadMs];
  }
}

/** Tracks the connections of one server and closes those that exceed the limits. */
export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #connections = new Map<Socket, Connection>();
  /** Connections by the stream that carries HTTP. */
  readonly #byStream = new WeakMap<Socket, Connection>();
  /** Cancels the next check. Checks run only while there are connections to check. */
  #cancel: (() => void) | undefined;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  stop(): void {
    this.#cancel?.();
  }

  get size(): number {
    return this.#connections.size;
  }

  /** Adds a connection. Returns `false` if there is no room and the connection must be closed. */
  open(socket: Socket): boolean {
    const nowMs = this.#now();
    const connection = new Connection(socket, nowMs);
    if (!this.#makePlace(connection, nowMs)) return false;
    this.#connections.set(socket, connection);
    this.#byStream.set(socket, connection);
    socket.once('close', () => this.#connections.delete(socket));
    this.#cancel ??= this.#options.clock.after(CHECK_INTERVAL_MS, () => this.#check());
    return true;
  }

  /** Registers the HTTP stream after a TLS handshake. */
  secured(stream: Socket): void {
    for (const connection of this.#connections.values()) {
      const { socket } = connection;
      if (socket.remotePort !== stream.remotePort || socket.remoteAddress !== stream.remoteAddress) continue;
      connection.stream = stream;
      this.#byStream.set(stream, connection);
      return;
    }
  }

  /** Registers a request whose head has arrived. Returns `false` if the connection was closed because of it. */
  startRequest(request: IncomingMessage, response: ServerResponse): boolean {
    const connection = this.#byStream.get(request.socket);
    if (!connection) return true;
    if (connection.responses.size >= MAX_PIPELINED) {
      this.#end(connection, 'pipelined');
      return false;
    }
    connection.responses.add(response);
    const nowMs = this.#now();
    const hasBody = promisedBytes(request) !== 0;
    if (hasBody) this.#makeRoomForBody(connection, nowMs);
    connection.enter(hasBody ? 'reading' : 'waiting', nowMs);
    connection.startBody(nowMs);
    if (hasBody)
      request.once('end', () => {
        if (connection.responses.size > 0) connection.enter('waiting', this.#now());
      });
    const over = () => {
      if (connection.responses.delete(response) && connection.responses.size === 0)
        connection.enter('quiet', this.#now());
    };
    response.once('finish', over).once('close', over);
    return true;
  }

  /** Closes the connection with the largest slow body to free memory. Returns `false` if there is none. */
  freeMemory(): boolean {
    const nowMs = this.#now();
    const slow = this.#inState('reading').filter((each) => each.rate(nowMs) < YIELDING_BYTES_PER_SECOND);
    return this.#replace(lowest(slow, ({ bodyBytes }) => -bodyBytes));
  }

  /**
   * Closes idle connections and those without a complete request head. Active connections are closed after their
   * response.
   */
  endQuiet(): void {
    for (const connection of [...this.#connections.values()]) {
      if (connection.state === 'quiet') connection.socket.destroy();
      for (const response of connection.responses) closeAfter(response);
    }
  }

  endAll(): void {
    for (const socket of [...this.#connections.keys()]) socket.destroy();
  }

  #makePlace({ address }: Connection, nowMs: number): boolean {
    const max = this.#options.connections;
    let rivals = [...this.#connections.values()];
    const near = address === undefined ? [] : rivals.filter((each) => each.address === address);
    if (near.length >= Math.max(1, Math.floor(max / 4))) rivals = near;
    else if (rivals.length < max) return true;
    const ranked = rivals.flatMap((connection) => {
      const rank = connection.placeRank(nowMs);
      return rank ? [{ connection, rank }] : [];
    });
    const group = Math.min(...ranked.map(({ rank }) => rank[0]));
    const first = ranked.filter(({ rank }) => rank[0] === group);
    return this.#replace(lowest(first, ({ rank }) => rank[1])?.connection);
  }

  /**
   * If there are too many bodies, closes the connection with the slowest one, or with the oldest one if all are recent.
   */
  #makeRoomForBody(newcomer: Connection, nowMs: number): void {
    const bodies = this.#inState('reading').filter((each) => each !== newcomer);
    if (bodies.length < maxBodies(this.#options.connections)) return;
    const measured = bodies.filter((each) => Number.isFinite(each.rate(nowMs)));
    this.#replace(lowest(measured, (each) => each.rate(nowMs)) ?? lowest(bodies, ({ sinceMs }) => sinceMs));
  }

  #check(): void {
    const nowMs = this.#now();
    const { requestMs, unreadMs } = this.#options;
    for (const connection of [...this.#connections.values()]) {
      if (connection.isTooSlow(nowMs, requestMs)) this.#end(connection, 'slow');
      else if ((connection.unreadMs(nowMs) ?? 0) >= unreadMs) this.#end(connection, 'unread');
      else if (connection.state === 'reading') connection.markProgress(nowMs);
    }
    const goesOn = this.#connections.size > 0;
    this.#cancel = goesOn ? this.#options.clock.after(CHECK_INTERVAL_MS, () => this.#check()) : undefined;
  }

  #inState(state: Connection['state']): Connection[] {
    return [...this.#connections.values()].filter((each) => each.state === state);
  }

  #replace(connection: Connection | undefined): boolean {
    if (connection) this.#end(connection, 'replaced');
    return connection !== undefined;
  }

  #end(connection: Connection, why: EndReason): void {
    const { socket, stream, state, responses } = connection;
    this.#connections.delete(socket);
    for (const { req } of responses) req.emit(GIVEN_UP);
    const isUnanswered = responses.size === 1 && ![...responses][0]!.headersSent;
    if (state === 'reading' && isUnanswered && stream.writable) {
      stream.end(TOO_SLOW);
      // Destroy the connection if the client does not stop sending or does not read.
      stream.destroySoon();
      this.#options.clock.after(CHECK_INTERVAL_MS, () => socket.destroy());
    } else {
      socket.destroy();
    }
    this.#options.ended(why);
  }

  #now(): number {
    return this.#options.clock.monotonicMs();
  }
}

/** Closes the connection after the response. */
export function closeAfter(response: ServerResponse): void {
  if (!response.headersSent) response.setHeader('Connection', 'close');
}

function lowest<Each>(among: readonly Each[], value: (each: Each) => number): Each | undefined {
  const [first, ...rest] = among;
  return first && rest.reduce((least, each) => (value(each) < value(least) ? each : least), first);
}
