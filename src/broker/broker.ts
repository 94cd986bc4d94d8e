import type { Clock } from '../clock.ts';
import { codeOf, messageOf } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { Repeats } from '../repeats.ts';
import { type Backoff, fullJitterMs } from '../retry.ts';
import { type BrokerAddress, readBrokerAddress } from './broker-address.ts';
import { BrokerError, brokerAway, brokerBusy, brokerClosed } from './broker-error.ts';
import { Connection, type Message } from './connection.ts';
import { topicFits } from './topic-filter.ts';

/**
 * One MQTT broker, shared by whoever subscribes to it and whoever publishes.
 *
 * States: away (connecting, or waiting to), connected, stopped. While away the broker keeps QoS 1 messages for this client's
 * session; publishing waits a few seconds for the connection and then fails, for the caller to try again.
 *
 * Invariants: a message is confirmed (PUBACK) only after its handler resolved, in the order of arrival. A handler that rejects
 * is asked again until it resolves or the connection ends: so a full buffer holds the broker back and loses nothing.
 * A crash leaves unconfirmed messages with the broker, which sends them again.
 */
export interface BrokerOptions {
  name: string;
  /** May hold user and password; never logged. */
  url: string;
  /** The same at every start and different on every gateway: the broker keeps the session under it. */
  clientId: string;
  clock: Clock;
  logger: Logger;
  ca?: string;
}

/** Takes a message. Resolves when it is safe (on disk) or when it never will be of use; rejects to be asked again. */
export type MessageHandler = (message: Message) => Promise<void>;

export interface BrokerState {
  name: string;
  connected: boolean;
  /** Why it is away: a code or a short message. */
  problem: string | undefined;
  received: number;
  published: number;
  /** QoS 0 messages whose handler refused them: nobody sends them again. */
  dropped: number;
}

const RECONNECT: Backoff = { baseMs: 1_000, capMs: 30_000 };
const RECONNECT_FLOOR_MS = 250;
const HANDLER_RETRY: Backoff = { baseMs: 1_000, capMs: 15_000 };
/** How long a message to be published waits for the connection. */
const PUBLISH_WAIT_MS = 5_000;
const MOST_PUBLISHING = 200;
const UNWANTED_WAIT_MS = 5_000;
/** A connection that lasted so long was one: what ends it is a trouble of its own. */
const STEADY_MS = 60_000;

interface Subscription {
  filter: string;
  handler: MessageHandler;
}

export class Broker {
  readonly name: string;
  readonly #options: BrokerOptions;
  readonly #address: BrokerAddress;
  readonly #subscriptions = new Set<Subscription>();
  readonly #stopping = new AbortController();
  #connection: Connection | undefined;
  #loop: Promise<void> | undefined;
  #problem: string | undefined;
  #onConnected: (() => void)[] = [];
  /** Filters that the broker's session holds. */
  readonly #granted = new Set<string>();
  readonly #repeats = new Repeats();
  /** Whether the log's last word was that the broker is away. */
  #saidAway = true;
  #closing = false;
  #publishing = 0;
  #received = 0;
  #published = 0;
  #dropped = 0;

  /** Throws `broker.address`. */
  constructor(options: BrokerOptions) {
    this.name = options.name;
    this.#options = options;
    this.#address = readBrokerAddress(options.name, options.url);
  }

  /** Begins to connect, for as long as it takes. */
  start(signal?: AbortSignal): void {
    signal?.addEventListener('abort', () => void this.stop(0), { once: true });
    this.#loop ??= this.#run();
  }

  /**
   * Lets handlers at work finish within `budgetMs`, so that what is on disk is confirmed, and ends the connection. What is
   * not confirmed comes again.
   */
  async stop(budgetMs = 2_000): Promise<void> {
    const { clock } = this.#options;
    const deadline = clock.monotonicMs() + budgetMs;
    const connection = this.#connection;
    this.#closing = true;
    while (connection && connection.atWork > 0 && clock.monotonicMs() < deadline) await clock.sleep(20);
    this.#stopping.abort(brokerClosed(this.name));
    await connection?.close();
    await this.#loop;
  }

  /** Subscribes, now and at every connection. Returns what takes it back. */
  subscribe(filter: string, handler: MessageHandler): () => void {
    const subscription = { filter, handler };
    const isFirst = !this.#isWanted(filter);
    this.#subscriptions.add(subscription);
    if (isFirst && this.#connection) void this.#subscribeNow(this.#connection, filter);
    return () => {
      if (!this.#subscriptions.delete(subscription) || this.#isWanted(filter)) return;
      this.#granted.delete(filter);
      // Best effort: the broker is asked again when a message comes that nobody wants.
      this.#connection?.unsubscribe(filter).catch(() => {});
    };
  }

  /** Publishes with QoS 1; resolves once the broker confirmed it. Throws `BrokerError`, mostly retryable, or the signal's reason. */
  async publish(
    topic: string,
    payload: string | Uint8Array,
    options: { retain?: boolean; signal?: AbortSignal } = {},
  ): Promise<void> {
    if (this.#publishing >= MOST_PUBLISHING) throw brokerBusy(this.name);
    if (topic === '' || /[+#\0]/.test(topic)) {
      throw new BrokerError('the topic cannot be published to', { code: 'broker.topic' });
    }
    this.#publishing++;
    try {
      const connection = this.#connection ?? (await this.#untilConnected(options.signal));
      try {
        await connection.publish(topic, payload, options.retain ?? false, options.signal);
      } catch (error) {
        options.signal?.throwIfAborted();
        throw new BrokerError(`the broker ${this.name} did not confirm a message`, {
          code: 'broker.publish',
          retryable: true,
          cause: error,
        });
      }
      this.#published++;
    } finally {
      this.#publishing--;
    }
  }

  state(): BrokerState {
    return {
      name: this.name,
      connected: this.#connection !== undefined,
      problem: this.#connection ? undefined : this.#problem,
      received: this.#received,
      published: this.#published,
      dropped: this.#dropped,
    };
  }

  async #run(): Promise<void> {
    const { clock, logger } = this.#options;
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted; ) {
      try {
        const connection = await Connection.open(
          {
            address: this.#address,
            clientId: this.#options.clientId,
            ...(this.#options.ca === undefined ? {} : { ca: this.#options.ca }),
            take: (message, connection) => this.#take(message, connection),
          },
          signal,
        );
        const fields = { event: 'broker.connected', broker: this.name, attempts: failures + 1 };
        logger[this.#saidAway ? 'info' : 'debug'](fields, 'a broker is connected');
        this.#saidAway = false;
        failures = 0;
        const sinceMs = clock.monotonicMs();
        const reason = await this.#hold(connection);
        // Two clients of one name throw each other out many times a minute: that is one trouble, not many.
        if (clock.monotonicMs() - sinceMs >= STEADY_MS) this.#repeats.end('away');
        if (!signal.aborted) this.#tellAway(reason);
      } catch (error) {
        if (signal.aborted) break;
        this.#tellAway(error);
      }
      const wait = fullJitterMs(failures++, RECONNECT, () => clock.random(), RECONNECT_FLOOR_MS);
      await clock.sleep(wait, signal).catch(() => {});
    }
  }

  /** Everything of one connection, until it ends. Gives the reason. */
  async #hold(connection: Connection): Promise<unknown> {
    this.#connection = connection;
    this.#problem = undefined;
    if (this.#stopping.signal.aborted) void connection.close();
    for (const tell of this.#onConnected.splice(0)) tell();
    // What this process has subscribed and the broker remembers is left alone: each subscription repeats retained messages.
    if (!connection.sessionPresent) this.#granted.clear();
    for (const filter of new Set([...this.#subscriptions].map((one) => one.filter))) {
      if (!this.#granted.has(filter)) void this.#subscribeNow(connection, filter);
    }
    const reason = await connection.closed;
    this.#connection = undefined;
    return reason;
  }

  async #subscribeNow(connection: Connection, filter: string): Promise<void> {
    try {
      await connection.subscribe(filter);
      this.#granted.add(filter);
    } catch (error) {
      if (!(error instanceof BrokerError)) return;
      const count = this.#repeats.note(`not_allowed:${filter}`, this.#options.clock.monotonicMs());
      const fields = { event: 'broker.not_allowed', broker: this.name, topic: filter, hint: error.hint, count };
      this.#options.logger[count === undefined ? 'debug' : 'error'](fields, 'a broker refuses a subscription');
    }
  }

  async #take(message: Message, connection: Connection): Promise<void> {
    // At a stop nobody is there to take it: it is not confirmed, and comes again.
    if (this.#closing) throw brokerClosed(this.name);
    this.#received++;
    let wanted = this.#whoWants(message.topic);
    if (wanted.length === 0) {
      // What the session kept comes with the connection, perhaps before a source has subscribed.
      await this.#options.clock.sleep(UNWANTED_WAIT_MS, this.#stopping.signal);
      wanted = this.#whoWants(message.topic);
    }
    // Still nobody: a subscription of an earlier configuration, which the session holds on to.
    if (wanted.length === 0) connection.unsubscribe(message.topic).catch(() => {});
    await Promise.all(wanted.map((one) => this.#handle(one, message, connection)));
  }

  /** Asks a handler until it takes the message or the connection is over, which the broker answers by sending it again. */
  async #handle(subscription: Subscription, message: Message, connection: Connection): Promise<void> {
    const { clock, logger } = this.#options;
    for (let attempt = 0; ; attempt++) {
      try {
        return await subscription.handler(message);
      } catch (error) {
        if (message.qos === 0) {
          this.#dropped++;
          return;
        }
        if (attempt === 0) {
          const code = codeOf(error);
          const count = this.#repeats.note(`refused:${code}`, clock.monotonicMs());
          const fields = { event: 'broker.refused', broker: this.name, topic: message.topic, code, count };
          logger[count === undefined ? 'debug' : 'warn'](fields, 'a message cannot be taken now; the broker keeps it');
        }
        const wait = fullJitterMs(attempt, HANDLER_RETRY, () => clock.random(), 200);
        await clock.sleep(wait, this.#stopping.signal);
        if (connection.isClosed) throw error;
      }
    }
  }

  #whoWants(topic: string): Subscription[] {
    return [...this.#subscriptions].filter((one) => topicFits(one.filter, topic));
  }

  #untilConnected(signal: AbortSignal | undefined): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const cut = AbortSignal.any([this.#stopping.signal, ...(signal ? [signal] : [])]);
      if (cut.aborted) return reject(cut.reason);
      const over = (settle: () => void) => {
        cancel();
        cut.removeEventListener('abort', onAbort);
        this.#onConnected = this.#onConnected.filter((one) => one !== onConnected);
        settle();
      };
      const onConnected = () =>
        over(() => (this.#connection ? resolve(this.#connection) : reject(brokerAway(this.name))));
      const onAbort = () => over(() => reject(cut.reason));
      const cancel = this.#options.clock.after(PUBLISH_WAIT_MS, () => over(() => reject(brokerAway(this.name))));
      cut.addEventListener('abort', onAbort, { once: true });
      this.#onConnected.push(onConnected);
    });
  }

  #isWanted(filter: string): boolean {
    return [...this.#subscriptions].some((one) => one.filter === filter);
  }

  #tellAway(error: unknown): void {
    this.#problem = codeOf(error) ?? messageOf(error);
    const { clock, logger } = this.#options;
    const count = this.#repeats.note('away', clock.monotonicMs());
    const fields = { event: 'broker.away', broker: this.name, reason: this.#problem, count };
    logger[count === undefined ? 'debug' : 'warn'](fields, 'a broker is away; it is tried again until it answers');
    this.#saidAway ||= count !== undefined;
  }
}
