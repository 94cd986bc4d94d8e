/**
 * One connection to a broker, from CONNECT to disconnection; `Broker` reconnects. Packets are encoded and parsed by
 * mqtt-packet. The packet exchange is implemented here, because existing clients acknowledge messages before they can
 * be on disk, or stop reading while a message is waiting.
 *
 * Invariants: QoS 1 and 2 messages are acknowledged (PUBACK, PUBREC) in order of arrival, after the handler has
 * resolved. The keep-alive is never delayed. A session is never ended here (no clean start, no change to its expiry).
 * Unacknowledged messages are redelivered.
 */
import type { Duplex } from 'node:stream';
import type { Packet, Parser } from 'mqtt-packet';
import type { Clock } from '../base/clock.ts';
import { BrokerError, brokerHungUp, brokerSilent, clientRejected, connectionEnded } from './broker-error.ts';
import type { Credentials } from './credentials.ts';
import { type DiscardedMessage, MAX_PACKET_BYTES } from './discards.ts';
import { Exchanges } from './exchanges.ts';
import { type DiscardedPublish, PacketFraming, type PublishPacket } from './packet-framing.ts';
import { type Receipt, Receipts } from './receipts.ts';
import { type BrokerAddress, openTransport } from './transport.ts';

export interface Message {
  topic: string;
  payload: Uint8Array;
  qos: 0 | 1 | 2;
  retained: boolean;
  /** Whether the broker may have sent the message before. */
  redelivered: boolean;
  /** MQTT 5 user properties by lower-case name; only the first value of each name. */
  headers?: ReadonlyMap<string, string>;
}

export interface ConnectionOptions {
  address: BrokerAddress;
  credentials: Credentials;
  clientId: string;
  version: 5 | 3;
  sessionExpiryMs: number;
  /** Retained message that the broker publishes when the connection is lost. */
  will?: { topic: string; payload: string };
  clock: Clock;
  incoming: Receiver;
  /** Called for a message that exceeds a size limit. */
  discarded(message: DiscardedMessage): void;
}

export interface Receiver {
  /** Whether no more messages should be read. */
  readonly isFull: boolean;
  /** Resolves when messages can be read again. */
  untilRoom(): Promise<void>;
  /** Resolves when the message is stored. Rejects only if the connection ends or no more messages are accepted. */
  receive(message: Message, connection: Connection): Promise<void>;
}

const KEEPALIVE_S = 30;
const CONNECT_TIMEOUT_MS = 15_000;
/** Maximum number of unacknowledged messages: two commits, so that one can be filled while the other is written. */
export const RECEIVE_MAXIMUM = 2_000;
/** Limit above which the socket is not read, so that TCP throttles a broker that ignores the receive maximum. */
const MAX_IN_PROGRESS = 4_000;
const MAX_BYTES_IN_PROGRESS = 16 * 1024 * 1024;
const MAX_HEADERS = 50;
/** Upper bound for the size of a message's topic and headers. */
const HEAD_BYTES = 256 * 1024;

export class Connection {
  readonly #stream: Duplex;
  readonly #options: ConnectionOptions;
  readonly #encode: (packet: Packet) => Buffer;
  readonly #receipts = new Receipts((receipts) => this.#confirm(receipts));
  readonly #exchanges: Exchanges;
  readonly #inProgress = { messages: 0, bytes: 0 };
  /** Packet size limit of the broker, which closes the connection after a larger packet. */
  #maxPacketBytes = Number.POSITIVE_INFINITY;
  #isPaused = false;
  #isGreeted = false;
  #isClosed = false;
  #error: unknown;
  #lastSentMs = 0;
  #lastHeardMs = 0;
  /** Monotonic time at which the connection was opened or the latest pause ended. */
  #readingSinceMs: number;
  #cancelKeepalive: () => void = () => {};
  readonly #ended = Promise.withResolvers<unknown>();
  /** Resolves with the reason when the connection ends. */
  readonly closed = this.#ended.promise;
  /**
   * Whether the broker kept the session. If so, its subscriptions exist, and unacknowledged messages are redelivered.
   */
  sessionPresent = false;
  wasResponsePending = false;

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
    stream.once('close', () => this.#end());
    parser.on('error', (error: unknown) => this.#fail(error));
    const framing = new PacketFraming({
      version: options.version,
      accept: (bytes) => void parser.parse(bytes),
      publish: (packet) => {
        if (this.#isGreeted) this.#receive(packet);
        else this.#fail(connackMissing());
      },
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

  /** Connects once. Rejects with a `BrokerError`, a system error, or the abort reason of the signal. */
  static async open(options: ConnectionOptions, signal: AbortSignal): Promise<Connection> {
    const cut = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT_MS)]);
    // Loaded only if MQTT is configured.
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
        if (packet.cmd !== 'connack') return this.#fail(connackMissing());
        const code = packet.reasonCode ?? packet.returnCode ?? 0;
        if (code !== 0) return this.#fail(clientRejected(code, version));
        this.#isGreeted = true;
        this.sessionPresent = packet.sessionPresent === true;
        this.#exchanges.allow(packet.properties?.receiveMaximum);
        this.#maxPacketBytes = packet.properties?.maximumPacketSize ?? Number.POSITIVE_INFINITY;
        const keepaliveS = (packet.properties as { serverKeepAlive?: number } | undefined)?.serverKeepAlive;
        // Attached in the same tick, because stored messages can follow CONNACK in the same segment.
        parser.on('packet', (next) => this.#handle(next));
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

  /** Returns whether the broker accepts each filter. */
  async subscribe(filters: readonly (readonly [filter: string, qos: 0 | 1 | 2])[]): Promise<boolean[]> {
    // Requests retained messages only if the subscription is new to the session.
    const options = this.#options.version === 5 ? { nl: false, rap: false, rh: 1 } : {};
    const codes = await this.#exchanges.subscribe(filters.map(([topic, qos]) => ({ topic, qos, ...options })));
    return codes.map((code) => code < 0x80);
  }

  async unsubscribe(filter: string): Promise<void> {
    await this.#exchanges.unsubscribe([filter]);
  }

  /**
   * Resolves when the broker has acknowledged the message (QoS 1). Headers are user properties, which 3.1.1 does not
   * support.
   */
  async publish(
    topic: string,
    payload: string | Uint8Array,
    retain: boolean,
    signal?: AbortSignal,
    headers?: Readonly<Record<string, string>>,
  ): Promise<void> {
    if (headers && this.#options.version !== 5) {
      throw new BrokerError('headers require MQTT 5, which the broker does not support', {
        code: 'broker.version',
      });
    }
    const properties = headers ? { properties: { userProperties: { ...headers } } } : {};
    const message = { topic, payload: Buffer.from(payload), retain, ...properties };
    if (message.payload.length > this.#maxPacketBytes - HEAD_BYTES) {
      const bytes = this.#encode({ cmd: 'publish', messageId: 1, qos: 1, dup: false, ...message }).length;
      if (bytes > this.#maxPacketBytes) {
        throw new BrokerError(`the broker accepts at most ${this.#maxPacketBytes} bytes`, { code: 'broker.too_large' });
      }
    }
    await this.#exchanges.publish(message, signal);
  }

  /** Ends the connection but not the session. Resolves when pending data has been sent. */
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

  /** Number of messages that are not stored yet. */
  get inProgress(): number {
    return this.#inProgress.messages;
  }

  /** Number of QoS 1 and 2 messages that are not acknowledged yet. */
  get unconfirmed(): number {
    return this.#receipts.waiting;
  }

  #handle(packet: Packet): void {
    switch (packet.cmd) {
      case 'publish':
        this.#receive(packet);
        return;
      case 'pubrel':
        this.#send({ cmd: 'pubcomp', messageId: packet.messageId! } as Packet);
        return;
      case 'disconnect':
        this.#fail(connectionEnded(packet.reasonCode ?? 0));
        return;
      default:
        this.#exchanges.handleResponse(packet);
    }
  }

  #receive(packet: PublishPacket): void {
    const { qos, messageId } = packet;
    const receipt = qos === 0 ? undefined : this.#receipts.expect(messageId!, qos);
    // Copied, because a slice would keep the whole socket chunk in memory while the message is waiting.
    const payload = Buffer.from(packet.payload);
    const bytes = packet.length ?? payload.length;
    const { topic, retain: retained } = packet;
    const redelivered = packet.dup && this.sessionPresent;
    const message: Message = { topic, payload, qos, retained, redelivered };
    const properties = packet.properties?.userProperties;
    if (properties) message.headers = headersOf(properties);
    this.#inProgress.messages++;
    this.#inProgress.bytes += bytes;
    const end = () => {
      this.#inProgress.messages--;
      this.#inProgress.bytes -= bytes;
      this.#regulate();
    };
    this.#options.incoming.receive(message, this).then(() => {
      if (receipt) this.#receipts.ready(receipt);
      end();
    }, end);
    this.#regulate();
  }

  #discard({ topic, bytes, bound, qos, messageId }: DiscardedPublish): void {
    if (this.#isClosed || !this.#isGreeted) return;
    if (qos !== 0) this.#receipts.ready(this.#receipts.expect(messageId!, qos));
    this.#options.discarded({ topic, bytes, bound });
  }

  /** Pauses the socket while too much is in progress. Messages that have already arrived are still processed. */
  #regulate(): void {
    const { incoming } = this.#options;
    const { messages, bytes } = this.#inProgress;
    const isFull = messages >= MAX_IN_PROGRESS || bytes >= MAX_BYTES_IN_PROGRESS || incoming.isFull;
    if (isFull === this.#isPaused || this.#isClosed) return;
    this.#isPaused = isFull;
    if (isFull) {
      this.#stream.pause();
      if (incoming.isFull) void incoming.untilRoom().then(() => this.#regulate());
    } else {
      this.#lastHeardMs = this.#options.clock.monotonicMs();
      this.#readingSinceMs = this.#lastHeardMs;
      this.#stream.resume();
    }
  }

  #confirm(receipts: readonly Receipt[]): void {
    if (this.#isClosed) return;
    // PUBACK and PUBREC without a reason code, which means success (MQTT 5 section 3.4.2.1).
    const packets = Buffer.allocUnsafe(4 * receipts.length);
    for (let at = 0; at < receipts.length; at++) {
      const { messageId, qos } = receipts[at]!;
      packets.writeUInt16BE(qos === 1 ? 0x4002 : 0x5002, 4 * at);
      packets.writeUInt16BE(messageId, 4 * at + 2);
    }
    this.#write(packets);
  }

  #send(packet: Packet): void {
    this.#write(this.#encode(packet));
  }

  #write(bytes: Buffer): void {
    if (this.#isClosed || this.#stream.writableEnded) return;
    this.#lastSentMs = this.#options.clock.monotonicMs();
    this.#stream.write(bytes);
  }

  /**
   * Sends PINGREQ when idle. A broker that stays silent while its connection is being read is considered disconnected.
   */
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
    this.#end();
  }

  #end(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#cancelKeepalive();
    const reason = this.#error ?? brokerHungUp(this.#options.version === 5 && !this.#isGreeted);
    this.wasResponsePending = this.#exchanges.isResponsePending;
    this.#exchanges.end(reason);
    this.#ended.resolve(reason);
  }
}

const connackMissing = () => new Error('the broker responded to CONNECT with another packet');

function headersOf(properties: Readonly<Record<string, string | string[]>>): ReadonlyMap<string, string> {
  const some = Object.entries(properties).slice(0, MAX_HEADERS);
  return new Map(some.map(([name, value]) => [name.toLowerCase(), [value].flat()[0] ?? '']));
}
