/**
 * One connection to a broker, from CONNECT to its end; `Broker` reconnects. mqtt-packet makes and parses the packets. The exchange between
 * them is implemented here, because existing clients confirm a message before it can be on disk, or stop reading while one waits.
 *
 * Invariants: QoS 1 and 2 are confirmed (PUBACK, PUBREC) after the handler resolved, in the order of arrival; the keep-alive never waits;
 * a session is never ended from here (no clean start, no change of its expiry). Unconfirmed messages arrive again.
 */
import type { Duplex } from 'node:stream';
import type { IPublishPacket, Packet, Parser } from 'mqtt-packet';
import type { Clock } from '../base/clock.ts';
import type { BrokerAddress } from './broker-address.ts';
import { BrokerError, brokerHungUp, brokerSilent, clientRefused, connectionEnded } from './broker-error.ts';
import type { Credentials } from './credentials.ts';
import { type DiscardedMessage, MAX_PACKET_BYTES } from './discards.ts';
import { Exchanges } from './exchanges.ts';
import { type DiscardedPublish, PacketFraming } from './packet-framing.ts';
import { confirmationsOf, type Expected, type Receipt, Receipts } from './receipts.ts';
import { openTransport } from './transport.ts';

export interface Message {
  topic: string;
  payload: Uint8Array;
  qos: 0 | 1 | 2;
  retained: boolean;
  /** The broker may have sent it before. */
  redelivered: boolean;
  /** Of QoS 1 and 2. */
  messageId: number | undefined;
  /** User properties of MQTT 5, by their names in lower case; the first of each. */
  headers?: ReadonlyMap<string, string>;
  /** Of topic and payload, where there is a message id. */
  hash?: string;
}

export interface ConnectionOptions {
  address: BrokerAddress;
  credentials: Credentials;
  clientId: string;
  version: 5 | 3;
  sessionExpiryMs: number;
  /** What the broker says for this client, retained, when the connection breaks. */
  will?: { topic: string; payload: string };
  clock: Clock;
  incoming: Receiver;
  /** Reports a message that exceeds a bound. */
  discarded(message: DiscardedMessage): void;
}

export interface Receiver {
  /** The broker took the client in; messages that it kept follow. */
  greeted(sessionPresent: boolean): void;
  /**
   * Takes one message; resolves when it is safe. Rejects when it is not and never will be on this connection. Messages that become
   * safe together share a promise, because each costs as much as all.
   */
  take(message: Message, connection: Connection): Promise<void>;
  /** The broker will not send these again: PUBACK was sent, or PUBREL came. */
  done(messageIds: readonly number[]): void;
  /** Confirmations were sent: how many messages wait for theirs now. */
  confirmed(waiting: number): void;
}

const KEEPALIVE_S = 30;
const CONNECT_TIMEOUT_MS = 15_000;
/** How many messages a broker may give unconfirmed: two commits' worth, so that one is filled while the other is written. */
export const RECEIVE_MAXIMUM = 2_000;
/** Beyond it the socket is not read: TCP holds back a broker that keeps to no window. */
const MAX_AT_WORK = 4_000;
const MAX_BYTES_AT_WORK = 16 * 1024 * 1024;
const MAX_HEADERS = 50;
/** Topic and headers of a message are smaller. */
const HEAD_BYTES = 256 * 1024;

/** Messages that came one after the other and become safe together. */
interface Safe {
  taken: Promise<void>;
  messages: number;
  bytes: number;
  expected: Expected[];
}

export class Connection {
  readonly #stream: Duplex;
  readonly #options: ConnectionOptions;
  readonly #encode: (packet: Packet) => Buffer;
  readonly #receipts = new Receipts((receipts) => this.#confirm(receipts));
  readonly #exchanges: Exchanges;
  readonly #atWork = { messages: 0, bytes: 0 };
  #together: Safe | undefined;
  /** What the broker takes: by a larger one it ends the connection. */
  #maxPacketBytes = Number.POSITIVE_INFINITY;
  #isPaused = false;
  #isGreeted = false;
  #isClosed = false;
  #error: unknown;
  #lastSentMs = 0;
  #lastHeardMs = 0;
  /** Of the connection, or the last pause's end. */
  #readingSinceMs: number;
  #cancelKeepalive: () => void = () => {};
  readonly #ended = Promise.withResolvers<unknown>();
  /** Resolves with the reason when the connection is over. */
  readonly closed = this.#ended.promise;
  /** The broker remembered this client: its subscriptions stand, and what it sent before comes again. */
  sessionPresent = false;
  wasAnswerPending = false;

  private constructor(stream: Duplex, parser: Parser, encode: (packet: Packet) => Buffer, options: ConnectionOptions) {
    this.#stream = stream;
    this.#options = options;
    this.#encode = encode;
    this.#readingSinceMs = options.clock.monotonicMs();
    this.#exchanges = new Exchanges({
      clock: options.clock,
      send: (packet) => this.#send(packet),
      readingSinceMs: () => (this.#isPaused ? undefined : this.#readingSinceMs),
      fail: (error) => this.#fail(error),
    });
    stream.on('error', (error) => {
      this.#error ??= error;
    });
    stream.once('close', () => this.#over());
    parser.on('error', (error: unknown) => this.#fail(error));
    const framing = new PacketFraming({
      version: options.version,
      accept: (bytes) => void parser.parse(bytes),
      discard: (publish) => this.#discard(publish),
    });
    stream.on('data', (bytes: Buffer) => {
      this.#lastHeardMs = options.clock.monotonicMs();
      try {
        framing.push(bytes);
      } catch (error) {
        this.#fail(error);
      }
    });
  }

  /** Connects once. Rejects with a `BrokerError` where the broker refuses, with the system's error, or the signal's reason. */
  static async open(options: ConnectionOptions, signal: AbortSignal): Promise<Connection> {
    const cut = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT_MS)]);
    // Only here: an agent without MQTT does not load it.
    const { default: mqtt } = await import('mqtt-packet');
    const stream = await openTransport(options.address, options.credentials, cut);
    const protocolVersion = options.version === 5 ? 5 : 4;
    const parser = mqtt.parser({ protocolVersion });
    const connection = new Connection(stream, parser, (packet) => mqtt.generate(packet, { protocolVersion }), options);
    const onAbort = () => connection.#fail(cut.reason);
    cut.addEventListener('abort', onAbort, { once: true });
    try {
      await connection.#greet(parser);
    } finally {
      cut.removeEventListener('abort', onAbort);
    }
    return connection;
  }

  async #greet(parser: Parser): Promise<void> {
    const { clientId, version, sessionExpiryMs, credentials, address, will } = this.#options;
    const username = credentials.username ?? address.username;
    const password = credentials.password ?? address.password;
    const greeted = new Promise<void>((resolve, reject) => {
      void this.closed.then((reason) => reject(reason));
      parser.once('packet', (packet) => {
        if (packet.cmd !== 'connack') return this.#fail(new Error('the broker answered CONNECT with something else'));
        const code = packet.reasonCode ?? packet.returnCode ?? 0;
        if (code !== 0) return this.#fail(clientRefused(code, version));
        this.#isGreeted = true;
        this.sessionPresent = packet.sessionPresent === true;
        this.#options.incoming.greeted(this.sessionPresent);
        this.#exchanges.allow(packet.properties?.receiveMaximum);
        this.#maxPacketBytes = packet.properties?.maximumPacketSize ?? Number.POSITIVE_INFINITY;
        const keepaliveS = (packet.properties as { serverKeepAlive?: number } | undefined)?.serverKeepAlive;
        // Not a tick later: stored messages follow CONNACK in the same segment.
        parser.on('packet', (next) => this.#hear(next));
        this.#keepAlive(keepaliveS ?? KEEPALIVE_S);
        resolve();
      });
    });
    this.#send({
      cmd: 'connect',
      protocolId: 'MQTT',
      protocolVersion: version === 5 ? 5 : 4,
      clientId,
      clean: false,
      keepalive: KEEPALIVE_S,
      ...(username === undefined ? {} : { username }),
      ...(password === undefined ? {} : { password: Buffer.from(password) }),
      ...(will ? { will: { topic: will.topic, payload: Buffer.from(will.payload), qos: 1, retain: true } } : {}),
      ...(version === 5
        ? {
            properties: {
              sessionExpiryInterval: Math.round(sessionExpiryMs / 1000),
              receiveMaximum: RECEIVE_MAXIMUM,
              maximumPacketSize: MAX_PACKET_BYTES,
            },
          }
        : {}),
    });
    await greeted;
  }

  /** Gives for each filter whether the broker takes it. */
  async subscribe(filters: readonly (readonly [filter: string, qos: 0 | 1 | 2])[]): Promise<boolean[]> {
    // Retained messages only where the subscription is new to the session.
    const options = this.#options.version === 5 ? { nl: false, rap: false, rh: 1 } : {};
    const codes = await this.#exchanges.subscribe(filters.map(([topic, qos]) => ({ topic, qos, ...options })));
    return codes.map((code) => code < 0x80);
  }

  async unsubscribe(filter: string): Promise<void> {
    await this.#exchanges.unsubscribe([filter]);
  }

  /** Resolves once the broker has confirmed the message (QoS 1). Headers are user properties, which 3.1.1 does not know. */
  async publish(
    topic: string,
    payload: string | Uint8Array,
    retain: boolean,
    signal?: AbortSignal,
    headers?: Readonly<Record<string, string>>,
  ): Promise<void> {
    if (headers && this.#options.version !== 5) {
      throw new BrokerError('the broker does not speak MQTT 5, and the message has headers', {
        code: 'broker.version',
      });
    }
    const properties = headers ? { properties: { userProperties: { ...headers } } } : {};
    const message = { topic, payload: Buffer.from(payload), retain, ...properties };
    if (message.payload.length > this.#maxPacketBytes - HEAD_BYTES) {
      const bytes = this.#encode({ cmd: 'publish', messageId: 1, qos: 1, dup: false, ...message }).length;
      if (bytes > this.#maxPacketBytes) {
        throw new BrokerError(`the broker takes ${this.#maxPacketBytes} bytes`, { code: 'broker.too_large' });
      }
    }
    await this.#exchanges.publish(message, signal);
  }

  /** Ends the connection, not the session. What was sent is on its way when it resolves. */
  async close(): Promise<void> {
    if (!this.#isClosed) {
      this.#send({ cmd: 'disconnect', ...(this.#options.version === 5 ? { reasonCode: 0 } : {}) } as Packet);
      this.#stream.end();
      this.#stream.resume();
    }
    const cancel = this.#options.clock.after(1_000, () => this.#stream.destroy());
    await this.closed;
    cancel();
  }

  get version(): 5 | 3 {
    return this.#options.version;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** How many messages are not safe yet. */
  get atWork(): number {
    return this.#atWork.messages;
  }

  /** How many of QoS 1 and 2 are not confirmed yet. */
  get unconfirmed(): number {
    return this.#receipts.waiting;
  }

  #hear(packet: Packet): void {
    switch (packet.cmd) {
      case 'publish':
        this.#receive(packet);
        return;
      case 'pubrel':
        this.#send({ cmd: 'pubcomp', messageId: packet.messageId! } as Packet);
        this.#options.incoming.done([packet.messageId!]);
        return;
      case 'disconnect':
        this.#fail(connectionEnded(packet.reasonCode ?? 0));
        return;
      default:
        this.#exchanges.answered(packet);
    }
  }

  #receive(packet: IPublishPacket): void {
    const { qos, messageId } = packet;
    const expected = qos === 0 ? undefined : this.#receipts.expect(messageId!, qos);
    // A copy: a slice would keep the whole chunk of the socket in memory while the message waits.
    const payload = Buffer.from(packet.payload);
    const bytes = packet.length ?? payload.length;
    const { topic, retain, dup } = packet;
    const message: Message = {
      topic,
      payload,
      qos,
      retained: retain,
      redelivered: dup && this.sessionPresent,
      messageId,
    };
    const properties = packet.properties?.userProperties;
    if (properties) message.headers = headersOf(properties);
    this.#atWork.messages++;
    this.#atWork.bytes += bytes;
    const taken = this.#options.incoming.take(message, this);
    const together = this.#together?.taken === taken ? this.#together : this.#await(taken);
    together.messages++;
    together.bytes += bytes;
    if (expected) together.expected.push(expected);
    this.#regulate();
  }

  #discard({ topic, bytes, bound, qos, messageId }: DiscardedPublish): void {
    if (this.#isClosed || !this.#isGreeted) return;
    if (qos !== 0) this.#receipts.ready(this.#receipts.expect(messageId!, qos));
    this.#options.discarded({ topic, bytes, bound });
  }

  #await(taken: Promise<void>): Safe {
    const together: Safe = { taken, messages: 0, bytes: 0, expected: [] };
    this.#together = together;
    const over = () => {
      if (this.#together === together) this.#together = undefined;
      this.#atWork.messages -= together.messages;
      this.#atWork.bytes -= together.bytes;
      this.#regulate();
    };
    taken.then(() => {
      for (const one of together.expected) this.#receipts.ready(one);
      over();
    }, over);
    return together;
  }

  #regulate(): void {
    const isFull = this.#atWork.messages >= MAX_AT_WORK || this.#atWork.bytes >= MAX_BYTES_AT_WORK;
    if (isFull === this.#isPaused || this.#isClosed) return;
    this.#isPaused = isFull;
    if (isFull) this.#stream.pause();
    else {
      this.#lastHeardMs = this.#options.clock.monotonicMs();
      this.#readingSinceMs = this.#lastHeardMs;
      this.#stream.resume();
    }
  }

  #confirm(receipts: readonly Receipt[]): void {
    if (this.#isClosed) return;
    this.#write(confirmationsOf(receipts));
    this.#options.incoming.done(receipts.filter(({ qos }) => qos === 1).map(({ messageId }) => messageId));
    this.#options.incoming.confirmed(this.#receipts.waiting);
  }

  #send(packet: Packet): void {
    this.#write(this.#encode(packet));
  }

  #write(bytes: Buffer): void {
    if (this.#isClosed || this.#stream.writableEnded) return;
    this.#lastSentMs = this.#options.clock.monotonicMs();
    this.#stream.write(bytes);
  }

  /** Asks when nothing was sent for a while; a broker that says nothing for long, while it is listened to, is away. */
  #keepAlive(seconds: number): void {
    if (seconds === 0 || this.#isClosed) return;
    const { clock } = this.#options;
    this.#cancelKeepalive = clock.after(seconds * 250, () => {
      const nowMs = clock.monotonicMs();
      if (!this.#isPaused && nowMs - this.#lastHeardMs > seconds * 1_500) {
        return this.#fail(brokerSilent());
      }
      if (nowMs - this.#lastSentMs >= seconds * 700 || nowMs - this.#lastHeardMs >= seconds * 700) {
        this.#send({ cmd: 'pingreq' });
      }
      this.#keepAlive(seconds);
    });
  }

  #fail(error: unknown): void {
    this.#error ??= error;
    this.#stream.destroy();
    this.#over();
  }

  #over(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#cancelKeepalive();
    const reason = this.#error ?? brokerHungUp(this.#options.version === 5 && !this.#isGreeted);
    this.wasAnswerPending = this.#exchanges.isAnswerPending;
    this.#exchanges.end(reason);
    this.#ended.resolve(reason);
  }
}

function headersOf(properties: Readonly<Record<string, string | string[]>>): ReadonlyMap<string, string> {
  const some = Object.entries(properties).slice(0, MAX_HEADERS);
  return new Map(some.map(([name, value]) => [name.toLowerCase(), [value].flat()[0] ?? '']));
}
