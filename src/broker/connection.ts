/**
 * One connection to a broker, from CONNECT to disconnection; `Broker` reconnects. Packets are encoded and parsed by
 * mqtt-packet. The packet exchange is implemented here, because existing clients acknowledge messages before they can
 * be on disk, or stop reading while a message is waiting.
 *
 * Invariants: QoS 1 and 2 messages are acknowledged (PUBACK, PUBREC) in order of arrival, after the handler has
 * resolved. While a subscriber is full, the socket is not read, so the broker stores the messages. The keep-alive is
 * never delayed. A session is never ended here (no clean start, no change to its expiry). Unacknowledged messages are
 * redelivered. The packet ID of a request is free after the broker has responded. A publish counts towards the broker's
 * receive maximum until its PUBACK, even if its caller is no longer waiting (MQTT 5 section 4.9).
 */
import type { Duplex } from 'node:stream';
import mqtt, { type IConnackPacket, type IPublishPacket, type Packet } from 'mqtt-packet';
import { type Clock, raced } from '../base/clock.ts';
import type { Publishing } from './broker-client.ts';
import { BrokerError, brokerHungUp, brokerSilent, clientRejected, connectionEnded } from './broker-error.ts';
import type { Credentials } from './credentials.ts';
import { type ExceededBound, MAX_PACKET_BYTES } from './limits.ts';
import { type DiscardedPublish, PacketReader, protocolVersionOf } from './packets.ts';
import { openTransport } from './transport.ts';

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

export interface Subscription {
  /** Topic filter. */
  topic: string;
  qos: 0 | 1 | 2;
  /** Whether retained messages are sent even if the session already contains the subscription. */
  resendsRetained: boolean;
}

export interface ConnectionOptions {
  address: URL;
  credentials: Credentials;
  clientId: string;
  version: 5 | 3;
  sessionExpiryMs: number;
  /** Retained message that the broker publishes when the connection is lost. */
  will: { topic: string; payload: string } | undefined;
  clock: Clock;
  receiver: Receiver;
}

/** Handler of received messages. */
export interface Receiver {
  /** Resolves when the message is stored. Rejects only if the connection ends or no more messages are accepted. */
  receive(message: Message, connection: Connection): Promise<void>;
  /** Reports a message over a size limit, which is acknowledged. `bytes`: size of the whole packet. */
  discard(topic: string, bytes: number, bound: ExceededBound): void;
  /** Whether no more messages should be read. */
  isFull(): boolean;
  /** Called when the broker is probably waiting for an acknowledgement, so that an early commit is useful. */
  stalled(): void;
}

/** A QoS 1 or 2 message that is not acknowledged yet. */
interface Receipt {
  messageId: number;
  qos: 1 | 2;
  isStored: boolean;
}

/** A SUBSCRIBE, UNSUBSCRIBE or PUBLISH of this client without a response. */
interface Request extends PromiseWithResolvers<number[]> {
  isPublish: boolean;
  /** Monotonic time since which a response is expected. */
  sentMs: number;
}

const KEEPALIVE_S = 30;
const CONNECT_TIMEOUT_MS = 15_000;
/** Maximum interval between checks of the connection, in milliseconds. */
const CHECK_MS = 5_000;
/** Interval at which a full subscriber is checked, in milliseconds. */
const FULL_CHECK_MS = 10;
const CLOSE_MS = 1_000;
/** Time within which the broker must respond to a request. */
const RESPONSE_TIMEOUT_MS = 10_000;
/** Maximum number of unacknowledged publishes per connection. */
const MAX_PUBLISHES = 1_000;
/** Interval at which callers check whether the broker accepts another publish, in milliseconds. */
const PUBLISH_CHECK_MS = 10;
const MAX_IDS = 65_535;
const TOO_LARGE = 0x95;
/** Maximum number of unacknowledged messages: two commits, so that one can be filled while the other is written. */
export const RECEIVE_MAXIMUM = 2_000;
/** Limit above which the socket is not read, so that TCP throttles a broker that ignores the receive maximum. */
const MAX_IN_PROGRESS = 4_000;
const MAX_BYTES_IN_PROGRESS = 16 * 1024 * 1024;
const MAX_HEADERS = 50;
/**
 * A broker with a full window sends nothing until messages are acknowledged, and does not report the size of the
 * window. The smallest default among common brokers is 10 (HiveMQ; 20 in Mosquitto).
 */
const MIN_WINDOW = 10;
/** Time without a packet after which the window may be full, in milliseconds. */
const STALL_MS = 20;
/** Minimum interval between two early commits, in milliseconds. */
const EARLY_COMMIT_MS = 100;

export class Connection {
  readonly #stream: Duplex;
  readonly #options: ConnectionOptions;
  readonly #reader: PacketReader;
  readonly #greeted = Promise.withResolvers<void>();
  readonly #ended = Promise.withResolvers<unknown>();
  readonly #closing = new AbortController();
  /** In order of arrival. */
  readonly #receipts: Receipt[] = [];
  readonly #inProgress = { messages: 0, bytes: 0 };
  /** By packet ID, in the order in which they were sent. */
  readonly #requests = new Map<number, Request>();
  #publishes = 0;
  #nextId = 1;
  /** Number of unacknowledged publishes that the broker accepts (MQTT 5, Receive Maximum). */
  #maxPublishes = MAX_PUBLISHES;
  /** Packet size limit of the broker, which closes the connection after a larger packet. */
  #maxPacketBytes = Number.POSITIVE_INFINITY;
  #keepaliveMs = KEEPALIVE_S * 1_000;
  #isGreeted = false;
  #isPaused = false;
  #isConfirming = false;
  #isClosed = false;
  #lastSentMs = 0;
  #lastHeardMs = 0;
  #lastEarlyCommitMs = Number.NEGATIVE_INFINITY;
  #cancelWatch: (() => void) | undefined;
  /** Resolves with the reason when the connection ends. */
  readonly closed = this.#ended.promise;
  /**
   * Whether the broker kept the session. If so, its subscriptions exist, and unacknowledged messages are redelivered.
   */
  sessionPresent = false;

  private constructor(stream: Duplex, options: ConnectionOptions) {
    this.#stream = stream;
    this.#options = options;
    this.#reader = new PacketReader(options.version);
    this.#greeted.promise.catch(() => {});
    // While the socket is paused, only these events report its end.
    stream.on('error', (error) => this.end(error));
    stream.once('close', () => this.end(undefined));
  }

  /** Connects once. Rejects with a `BrokerError`, a system error, or the abort reason of the signal. */
  static async open(options: ConnectionOptions, signal: AbortSignal): Promise<Connection> {
    const cut = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT_MS)]);
    const connection = new Connection(await openTransport(options.address, options.credentials, cut), options);
    const onAbort = () => connection.end(cut.reason);
    cut.addEventListener('abort', onAbort, { once: true });
    try {
      void connection.#read();
      connection.#sendConnect();
      await connection.#greeted.promise;
    } finally {
      cut.removeEventListener('abort', onAbort);
    }
    void connection.#keepAlive();
    return connection;
  }

  /** Handles all packets until the connection ends. Does not read while a subscriber is full. */
  async #read(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#closing;
    try {
      for await (const chunk of this.#stream as AsyncIterable<Buffer>) {
        // Drains the remaining data, because a socket with unread data is reset.
        if (signal.aborted) continue;
        this.#lastHeardMs = clock.monotonicMs();
        for (const packet of this.#reader.read(chunk)) this.#handle(packet);
        if (this.#isFull) await this.#pauseWhileFull(signal);
      }
      this.end(undefined);
    } catch (error) {
      this.end(error);
    }
  }

  async #pauseWhileFull(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    this.#isPaused = true;
    while (this.#isFull && !signal.aborted) await clock.sleep(FULL_CHECK_MS, signal).catch(() => {});
    this.#isPaused = false;
    this.#lastHeardMs = clock.monotonicMs();
    for (const request of this.#requests.values()) request.sentMs = this.#lastHeardMs;
  }

  #handle(packet: Packet | DiscardedPublish): void {
    if (!this.#isGreeted) {
      if (packet.cmd !== 'connack') throw new Error('the broker responded to CONNECT with another packet');
      this.#greet(packet);
    } else if (packet.cmd === 'publish') this.#receive(packet);
    else if (packet.cmd === 'discarded') {
      const receipt = this.#expect(packet);
      if (receipt) this.#confirm(receipt);
      this.#options.receiver.discard(packet.topic, packet.bytes, packet.bound);
    } else if (packet.cmd === 'pubrel') this.#send({ cmd: 'pubcomp', messageId: packet.messageId! });
    else if (packet.cmd === 'disconnect') throw connectionEnded(packet.reasonCode ?? 0);
    else this.#handleResponse(packet);
  }

  #sendConnect(): void {
    const { clientId, version, sessionExpiryMs, credentials, will } = this.#options;
    const { username, password } = credentials;
    const properties = {
      sessionExpiryInterval: Math.round(sessionExpiryMs / 1000),
      receiveMaximum: RECEIVE_MAXIMUM,
      maximumPacketSize: MAX_PACKET_BYTES,
    };
    this.#send({
      cmd: 'connect',
      protocolId: 'MQTT',
      protocolVersion: protocolVersionOf(version),
      clientId,
      clean: sessionExpiryMs === 0,
      keepalive: KEEPALIVE_S,
      ...(username === undefined ? {} : { username }),
      ...(password === undefined ? {} : { password: Buffer.from(password) }),
      ...(will ? { will: { topic: will.topic, payload: Buffer.from(will.payload), qos: 1, retain: true } } : {}),
      ...(version === 5 ? { properties } : {}),
    });
  }

  #greet({ reasonCode, returnCode, sessionPresent, properties }: IConnackPacket): void {
    const code = reasonCode ?? returnCode ?? 0;
    if (code !== 0) throw clientRejected(code, this.#options.version);
    this.#isGreeted = true;
    this.sessionPresent = sessionPresent;
    const { receiveMaximum, maximumPacketSize, serverKeepAlive } = properties ?? {};
    if (receiveMaximum !== undefined) this.#maxPublishes = Math.min(receiveMaximum, MAX_PUBLISHES);
    if (maximumPacketSize !== undefined) this.#maxPacketBytes = maximumPacketSize;
    // 0 disables the keep-alive.
    if (serverKeepAlive !== undefined) this.#keepaliveMs = serverKeepAlive * 1_000 || Number.POSITIVE_INFINITY;
    this.#greeted.resolve();
  }

  #receive(packet: IPublishPacket): void {
    const receipt = this.#expect(packet);
    const { topic, qos, retain: retained, length: bytes = 0 } = packet;
    const payload = packet.payload as Buffer;
    const message: Message = { topic, payload, qos, retained, redelivered: packet.dup && this.sessionPresent };
    const properties = packet.properties?.userProperties;
    if (properties) message.headers = headersOf(properties);
    this.#inProgress.messages++;
    this.#inProgress.bytes += bytes;
    const end = () => {
      this.#inProgress.messages--;
      this.#inProgress.bytes -= bytes;
    };
    this.#options.receiver.receive(message, this).then(() => {
      if (receipt) this.#confirm(receipt);
      end();
    }, end);
    if (receipt) this.#watchForStall();
  }

  get #isFull(): boolean {
    const { messages, bytes } = this.#inProgress;
    return messages >= MAX_IN_PROGRESS || bytes >= MAX_BYTES_IN_PROGRESS || this.#options.receiver.isFull();
  }

  #expect({ qos, messageId }: { qos: 0 | 1 | 2; messageId?: number | undefined }): Receipt | undefined {
    if (qos === 0) return undefined;
    const receipt = { messageId: messageId!, qos, isStored: false };
    this.#receipts.push(receipt);
    return receipt;
  }

  /** The messages of one commit are acknowledged in one write. */
  #confirm(receipt: Receipt): void {
    receipt.isStored = true;
    if (this.#isConfirming || this.#receipts[0] !== receipt) return;
    this.#isConfirming = true;
    setImmediate(() => this.#acknowledge());
  }

  /** Acknowledges stored messages in order of arrival (MQTT 5 section 4.6). */
  #acknowledge(): void {
    this.#isConfirming = false;
    const first = this.#receipts.findIndex(({ isStored }) => !isStored);
    const stored = this.#receipts.splice(0, first < 0 ? this.#receipts.length : first);
    // PUBACK and PUBREC without a reason code, which means success (MQTT 5 section 3.4.2.1).
    const packets = Buffer.allocUnsafe(4 * stored.length);
    for (const [at, { messageId, qos }] of stored.entries()) {
      packets.writeUInt16BE(qos === 1 ? 0x4002 : 0x5002, 4 * at);
      packets.writeUInt16BE(messageId, 4 * at + 2);
    }
    if (stored.length > 0) this.#write(packets);
  }

  /** Requests an early commit if nothing arrives while enough messages to fill a window are unacknowledged. */
  #watchForStall(): void {
    const { clock, receiver } = this.#options;
    if (this.#cancelWatch || this.#isClosed) return;
    const dueMs = Math.max(this.#lastHeardMs + STALL_MS, this.#lastEarlyCommitMs + EARLY_COMMIT_MS);
    this.#cancelWatch = clock.after(dueMs - clock.monotonicMs(), () => {
      this.#cancelWatch = undefined;
      if (this.unconfirmed < MIN_WINDOW) return;
      if (clock.monotonicMs() - this.#lastHeardMs < STALL_MS) return this.#watchForStall();
      this.#lastEarlyCommitMs = clock.monotonicMs();
      receiver.stalled();
    });
  }

  /** Returns whether the broker accepts each subscription. A 3.1.1 broker always resends retained messages. */
  async subscribe(wanted: readonly Subscription[]): Promise<boolean[]> {
    const supportsOptions = this.#options.version === 5;
    const subscriptions = wanted.map(({ topic, qos, resendsRetained }) => ({
      topic,
      qos,
      ...(supportsOptions ? { nl: false, rap: false, rh: resendsRetained ? 0 : 1 } : {}),
    }));
    const codes = await this.#request({ cmd: 'subscribe', subscriptions });
    return wanted.map((_, at) => (codes[at] ?? 0x80) < 0x80);
  }

  async unsubscribe(filter: string): Promise<void> {
    await this.#request({ cmd: 'unsubscribe', unsubscriptions: [filter] });
  }

  /**
   * Resolves when the broker has acknowledged the message (QoS 1). Headers are user properties, which 3.1.1 does not
   * support. Rejects with a `BrokerError`, the reason why the connection ended, or the abort reason of the signal.
   */
  async publish(
    topic: string,
    payload: string | Uint8Array,
    { retain = false, headers, signal }: Pick<Publishing, 'retain' | 'headers' | 'signal'>,
  ): Promise<void> {
    if (headers && this.version !== 5) {
      throw new BrokerError('headers require MQTT 5, which the broker does not support', { code: 'broker.version' });
    }
    const { clock } = this.#options;
    const cut = AbortSignal.any([this.#closing.signal, ...(signal ? [signal] : [])]);
    const deadlineMs = clock.monotonicMs() + RESPONSE_TIMEOUT_MS;
    cut.throwIfAborted();
    while (this.#publishes >= this.#maxPublishes) {
      if (clock.monotonicMs() >= deadlineMs) throw brokerSilent();
      await clock.sleep(PUBLISH_CHECK_MS, cut);
    }
    const properties = headers ? { properties: { userProperties: { ...headers } } } : {};
    const message = { topic, payload: Buffer.from(payload), qos: 1, dup: false, retain, ...properties };
    const [code = 0] = await raced(this.#request({ cmd: 'publish', ...message }), cut);
    // 0x10: accepted, but there are no subscribers.
    if (code >= 0x80) {
      const why = code === TOO_LARGE ? 'broker.too_large' : 'broker.publish';
      throw new BrokerError(`the broker rejected the message (reason ${code})`, { code: why });
    }
  }

  /** Resolves with the reason codes of the response. Rejects if the response is late or the connection ends. */
  #request(packet: { cmd: Packet['cmd']; [member: string]: unknown }): Promise<number[]> {
    const { signal } = this.#closing;
    if (signal.aborted) return Promise.reject(signal.reason);
    // There are always far fewer requests than IDs.
    while (this.#requests.has(this.#nextId)) this.#nextId = (this.#nextId % MAX_IDS) + 1;
    const messageId = this.#nextId;
    this.#send({ ...packet, messageId } as Packet);
    const isPublish = packet.cmd === 'publish';
    const request = { ...Promise.withResolvers<number[]>(), isPublish, sentMs: this.#lastSentMs };
    this.#requests.set(messageId, request);
    if (isPublish) this.#publishes++;
    return request.promise;
  }

  /** Ignores a response that does not belong to a request. */
  #handleResponse(packet: Packet): void {
    const request = this.#requests.get(packet.messageId ?? 0);
    if (!request) return;
    this.#requests.delete(packet.messageId!);
    if (request.isPublish) this.#publishes--;
    const { granted, reasonCode = 0 } = packet as { granted?: number[]; reasonCode?: number };
    request.resolve(granted ?? [reasonCode]);
  }

  /** Acknowledges stored messages, and ends the connection but not the session. Resolves when all data has been sent. */
  async close(): Promise<void> {
    if (!this.#isClosed) {
      this.#closing.abort(new BrokerError('the connection was closed', { code: 'broker.closed' }));
      this.#acknowledge();
      this.#send({ cmd: 'disconnect', ...(this.version === 5 ? { reasonCode: 0 } : {}) });
      this.#stream.end();
    }
    const cancel = this.#options.clock.after(CLOSE_MS, () => this.end(undefined));
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
    return this.#receipts.length;
  }

  /** Throws `broker.too_large`. */
  #send(packet: Packet): void {
    const bytes = mqtt.generate(packet, { protocolVersion: protocolVersionOf(this.version) });
    if (bytes.length > this.#maxPacketBytes) {
      throw new BrokerError(`the broker accepts at most ${this.#maxPacketBytes} bytes`, { code: 'broker.too_large' });
    }
    this.#write(bytes);
  }

  #write(bytes: Buffer): void {
    if (this.#isClosed || this.#stream.writableEnded) return;
    this.#lastSentMs = this.#options.clock.monotonicMs();
    this.#stream.write(bytes);
  }

  /** Sends PINGREQ when idle. Ends the connection if the broker is silent, unless reading is paused. */
  async #keepAlive(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#closing;
    const isOpen = () => !signal.aborted;
    try {
      while (isOpen()) {
        await clock.sleep(Math.min(CHECK_MS, this.#keepaliveMs / 4), signal);
        const silentMs = clock.monotonicMs() - this.#lastHeardMs;
        const unsentMs = clock.monotonicMs() - this.#lastSentMs;
        if (!this.#isPaused) {
          if (silentMs > 1.5 * this.#keepaliveMs) throw brokerSilent();
          this.#rejectOverdue();
        }
        if (Math.max(silentMs, unsentMs) >= 0.7 * this.#keepaliveMs) this.#send({ cmd: 'pingreq' });
      }
    } catch (error) {
      if (isOpen()) this.end(error);
    }
  }

  /** Rejects requests without a timely response. Their packet IDs stay in use. */
  #rejectOverdue(): void {
    const latestMs = this.#options.clock.monotonicMs() - RESPONSE_TIMEOUT_MS;
    for (const { sentMs, reject } of this.#requests.values()) {
      if (sentMs <= latestMs) reject(brokerSilent());
    }
  }

  #hungUpHint(): string | undefined {
    const { clientId, version } = this.#options;
    // MQTT 3.1.1 brokers and Mosquitto 2.0 do not report that another client has taken over the session.
    if (this.#isGreeted) return `Check that no other client uses the client ID ${clientId}.`;
    return version === 5 ? 'If the broker does not support MQTT 5, set version: 3 in the source.' : undefined;
  }

  /** Ends the connection immediately. `error`: the reason; by default, the broker closed the connection. */
  end(error: unknown): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const reason = error ?? brokerHungUp(this.#hungUpHint());
    this.#closing.abort(reason);
    this.#cancelWatch?.();
    this.#stream.destroy();
    for (const { reject } of this.#requests.values()) reject(reason);
    this.#greeted.reject(reason);
    this.#ended.resolve(reason);
  }
}

function headersOf(properties: Readonly<Record<string, string | string[]>>): ReadonlyMap<string, string> {
  const some = Object.entries(properties).slice(0, MAX_HEADERS);
  return new Map(some.map(([name, value]) => [name.toLowerCase(), [value].flat()[0] ?? '']));
}
