import type { IClientOptions, IPublishPacket, MqttClient } from 'mqtt';
import type { BrokerAddress } from './broker-address.ts';
import { BrokerError } from './broker-error.ts';
import { Receipts } from './receipts.ts';

/** A message as it came. `redelivered`: the broker may have sent it before. */
export interface Message {
  topic: string;
  payload: Uint8Array;
  qos: 0 | 1 | 2;
  retained: boolean;
  redelivered: boolean;
}

export interface ConnectionOptions {
  address: BrokerAddress;
  clientId: string;
  /** PEM of a private authority. */
  ca?: string;
  /** Takes one message; resolves when it is safe. Rejects when it is not and never will be on this connection. */
  take: (message: Message, connection: Connection) => Promise<void>;
}

const KEEPALIVE_S = 30;
const CONNECT_TIMEOUT_MS = 15_000;
const PUBLISH_TIMEOUT_MS = 10_000;
/** Messages whose handlers are at work. Beyond it the socket is not read: TCP holds the broker back. */
const MOST_AT_WORK = 1_000;

/**
 * One connection to a broker, from CONNECT to its end; never reconnects (that is `Broker`'s). MQTT 3.1.1 with a session that
 * the broker keeps, so that QoS 1 messages wait there while the gateway is away.
 *
 * mqtt.js confirms a message when `handleMessage` calls back and reads nothing until then: one message per disk commit. So
 * `handleMessage` calls back at once with an error, which makes mqtt.js leave the confirmation out, and PUBACK is written here
 * once the handler is done. Its four bytes are fixed (MQTT 3.1.1 section 3.4), which is why 5 is not spoken.
 */
export class Connection {
  readonly #client: MqttClient;
  readonly #options: ConnectionOptions;
  readonly #receipts: Receipts;
  readonly #held: (() => void)[] = [];
  #atWork = 0;
  #error: unknown;
  #isClosed = false;
  /** Resolves with the reason when the connection is over. */
  readonly closed: Promise<unknown>;
  /** The broker remembered this client: its subscriptions stand. */
  readonly sessionPresent: boolean;

  private constructor(client: MqttClient, sessionPresent: boolean, options: ConnectionOptions) {
    this.#client = client;
    this.#options = options;
    this.sessionPresent = sessionPresent;
    this.#receipts = new Receipts((messageId) => this.#confirm(messageId));
    client.handleMessage = (packet, done) => this.#receive(packet, done);
    client.on('error', (error) => {
      this.#error ??= error;
    });
    this.closed = new Promise((resolve) => {
      client.once('close', () => {
        this.#isClosed = true;
        resolve(this.#error ?? new Error('the broker closed the connection'));
      });
    });
  }

  /** Connects once. Rejects with the driver's error, or the signal's reason. */
  static async open(options: ConnectionOptions, signal: AbortSignal): Promise<Connection> {
    signal.throwIfAborted();
    // Only here: an agent without MQTT does not load it.
    const { connect } = await import('mqtt');
    const { address, ca, clientId } = options;
    const settings: IClientOptions = {
      ...address,
      clientId,
      clean: false,
      protocolVersion: 4,
      keepalive: KEEPALIVE_S,
      connectTimeout: CONNECT_TIMEOUT_MS,
      reconnectPeriod: 0,
      resubscribe: false,
      queueQoSZero: false,
      ...(ca === undefined ? {} : { ca }),
    };
    const client = connect(settings);
    return new Promise((resolve, reject) => {
      let failure: unknown;
      const end = (error: unknown) => {
        signal.removeEventListener('abort', onAbort);
        // Late errors of a client that is over have nobody to tell.
        client.on('error', () => {});
        client.end(true);
        reject(error);
      };
      const onAbort = () => end(signal.reason);
      const onError = (error: unknown) => {
        failure = error;
        // A broker that refuses (bad credentials) says so in CONNACK and closes.
        end(error);
      };
      const onClose = () => end(failure ?? new Error('the broker closed the connection'));
      signal.addEventListener('abort', onAbort, { once: true });
      client.once('error', onError);
      client.once('close', onClose);
      // Not at `connect`, which is a tick later: stored messages follow CONNACK in the same segment.
      client.once('packetreceive', (packet) => {
        if (packet.cmd !== 'connack' || (packet.returnCode ?? 0) !== 0) return;
        signal.removeEventListener('abort', onAbort);
        client.removeListener('error', onError);
        client.removeListener('close', onClose);
        const connection = new Connection(client, packet.sessionPresent === true, options);
        client.once('connect', () => resolve(connection));
        client.once('close', () => reject(new Error('the broker closed the connection')));
      });
    });
  }

  async subscribe(filter: string): Promise<void> {
    const granted = await this.#untilClosed(this.#client.subscribeAsync(filter, { qos: 1 }));
    if (granted.some((grant) => grant.qos === 128)) {
      throw new BrokerError(`the broker does not allow the subscription to ${filter}`, {
        code: 'broker.not_allowed',
        hint: 'Give this client the right to read the topic, in the broker.',
      });
    }
  }

  async unsubscribe(filter: string): Promise<void> {
    await this.#untilClosed(this.#client.unsubscribeAsync(filter));
  }

  /** Resolves once the broker has confirmed the message (QoS 1). */
  async publish(topic: string, payload: string | Uint8Array, retain: boolean, signal?: AbortSignal): Promise<void> {
    const sending = this.#client.publishAsync(topic, typeof payload === 'string' ? payload : Buffer.from(payload), {
      qos: 1,
      retain,
    });
    const cut = AbortSignal.any([AbortSignal.timeout(PUBLISH_TIMEOUT_MS), ...(signal ? [signal] : [])]);
    await this.#untilClosed(sending, cut);
  }

  /** Ends the session's connection, not the session. */
  async close(): Promise<void> {
    if (this.#client.connected) this.#client.end(false);
    else this.#client.end(true);
    const forced = setTimeout(() => this.#client.stream?.destroy(), 1_000);
    await this.closed;
    clearTimeout(forced);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** How many messages are not safe yet. */
  get atWork(): number {
    return this.#atWork;
  }

  #receive(packet: IPublishPacket, done: (error?: Error) => void): void {
    const receipt = packet.qos === 1 ? this.#receipts.expect(packet.messageId!) : () => {};
    const message: Message = {
      topic: packet.topic,
      payload: typeof packet.payload === 'string' ? Buffer.from(packet.payload) : packet.payload,
      qos: packet.qos,
      retained: packet.retain,
      redelivered: packet.dup,
    };
    this.#atWork++;
    this.#options
      .take(message, this)
      .then(receipt, () => {})
      .finally(() => {
        this.#atWork--;
        this.#held.shift()?.();
      });
    const goOn = () => done(new Error('confirmed later'));
    if (this.#atWork < MOST_AT_WORK) goOn();
    else this.#held.push(goOn);
  }

  #confirm(messageId: number): void {
    const { stream } = this.#client;
    if (!this.#client.connected || stream.destroyed) return;
    stream.write(Buffer.from([0x40, 0x02, messageId >> 8, messageId & 0xff]));
  }

  async #untilClosed<Result>(work: Promise<Result>, cut?: AbortSignal): Promise<Result> {
    work.catch(() => {});
    let onAbort = () => {};
    const aborted = new Promise<never>((_, reject) => {
      onAbort = () => reject(cut?.reason);
      if (cut?.aborted) onAbort();
      cut?.addEventListener('abort', onAbort, { once: true });
    });
    aborted.catch(() => {});
    const over = this.closed.then((reason) => {
      throw reason;
    });
    over.catch(() => {});
    try {
      return await Promise.race([work, over, aborted]);
    } finally {
      cut?.removeEventListener('abort', onAbort);
    }
  }
}
