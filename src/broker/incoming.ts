/**
 * Messages of a broker on their way to the subscribers. One per broker, for all of its connections.
 *
 * Messages keep their order: if a handler rejects one, it and all later messages wait in an `OrderedQueue`. The receive maximum bounds
 * waiting messages of QoS 1 and 2, because none of them is confirmed. Of QoS 0 a fixed number waits, later ones are dropped and
 * counted. When the connection ends, the broker sends waiting messages of QoS 1 and 2 again; those of QoS 0 are lost.
 *
 * This part also detects when the broker sends nothing more before a confirmation.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf, SourceStopped } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { brokerBusy, brokerClosed } from './broker-error.ts';
import { type Connection, type Message, RECEIVE_MAXIMUM, type Receiver } from './connection.ts';
import { OrderedQueue } from './ordered-queue.ts';
import type { MessageHandler, Subscriptions } from './subscriptions.ts';
import { hashOf, UnconfirmedMessages } from './unconfirmed.ts';
import { BrokerWindow } from './window.ts';

export interface IncomingOptions {
  /** Of the broker. */
  name: string;
  subscriptions: Subscriptions;
  clock: Clock;
  logger: Logger;
  /** Ends retries. */
  signal: AbortSignal;
}

/** Messages of QoS 0 are dropped while this many messages wait. */
const MAX_WAITING_UNCONFIRMED = 1_000;
/** A broker whose window is full has sent nothing for so long. */
const STALL_MS = 20;

interface Arrival {
  message: Message;
  connection: Connection;
  /** Handlers that stored the message while another one of the same topic rejected it. */
  storedBy: Set<MessageHandler> | undefined;
}

const WORDS = {
  'broker.dropped': 'message of QoS 0 dropped',
  'broker.refused': 'message deferred, later messages wait behind it',
} as const;
const DONE = Promise.resolve();

export class Incoming implements Receiver {
  readonly counts = { received: 0, dropped: 0, unwanted: 0, redelivered: 0, retaken: 0 };
  readonly unconfirmed = new UnconfirmedMessages();
  readonly #options: IncomingOptions;
  readonly #repeats = new Repeats();
  #window = new BrokerWindow(RECEIVE_MAXIMUM);
  #lastArrivalMs = 0;
  #isWatching = false;
  #cancelWatch: () => void = () => {};
  #isClosed = false;
  readonly #queue: OrderedQueue<Arrival>;

  constructor(options: IncomingOptions) {
    this.#options = options;
    const { clock, signal } = options;
    this.#queue = new OrderedQueue({
      deliver: (arrival) => this.#deliver(arrival),
      isOver: ({ connection }) => this.#isClosed || connection.isClosed,
      onRefused: ({ message }, error) => this.#tell('broker.refused', message, error),
      clock,
      signal,
    });
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get windowSize(): number | undefined {
    return this.#window.size;
  }

  /** Accepts no further messages. The broker keeps those that are not confirmed. */
  close(): void {
    this.#isClosed = true;
    this.ended();
  }

  /** The connection ended: the broker sends waiting messages of QoS 1 and 2 again. */
  ended(): void {
    this.#cancelWatch();
    this.#isWatching = false;
    const error = brokerClosed(this.#options.name);
    for (const { message } of this.#queue.clear(error)) {
      if (message.messageId === undefined) this.#drop(message, error);
      else this.unconfirmed.failed(message.messageId);
    }
  }

  greeted(sessionPresent: boolean): void {
    this.#window = new BrokerWindow(RECEIVE_MAXIMUM);
    if (!sessionPresent) this.unconfirmed.clear();
  }

  done(messageIds: readonly number[]): void {
    for (const messageId of messageIds) this.unconfirmed.confirmed(messageId);
  }

  confirmed(waiting: number): void {
    if (waiting === 0) this.#window.confirmed(this.#options.clock.monotonicMs());
  }

  take(message: Message, connection: Connection): Promise<void> {
    if (this.#isClosed) return Promise.reject(brokerClosed(this.#options.name));
    this.counts.received++;
    const { messageId } = message;
    const arrival = { message, connection, storedBy: undefined };
    if (messageId === undefined) {
      if (this.#queue.waiting < MAX_WAITING_UNCONFIRMED) return this.#queue.offer(arrival);
      this.#drop(message, brokerBusy(this.#options.name));
      return DONE;
    }
    this.#watch(connection);
    const hash = hashOf(message);
    message.hash = hash;
    const before = message.redelivered ? this.unconfirmed.find({ messageId, hash }) : undefined;
    if (before === undefined && message.redelivered) this.counts.retaken++;
    const stored = before === undefined ? this.#queue.offer(arrival) : this.#storedBefore(before, arrival);
    this.unconfirmed.begin(messageId, hash, stored);
    return stored;
  }

  /** The message arrived before: it is stored with that delivery, or delivered again if that delivery fails. */
  #storedBefore(before: Promise<void>, arrival: Arrival): Promise<void> {
    return before.then(
      () => {
        this.counts.redelivered++;
      },
      () => this.#queue.offer(arrival),
    );
  }

  #deliver(arrival: Arrival): Promise<void> {
    const { message, storedBy } = arrival;
    const handlers = this.#options.subscriptions.handlersOf(message.topic);
    const [first] = handlers;
    if (first === undefined) {
      // Of a subscription from an earlier configuration that the session still contains.
      this.counts.unwanted++;
      return DONE;
    }
    if (handlers.length === 1 && storedBy === undefined) return first(message);
    return this.#deliverToAll(handlers, arrival);
  }

  /** Rejects if one of the handlers did. The others are not asked again. */
  async #deliverToAll(handlers: readonly MessageHandler[], arrival: Arrival): Promise<void> {
    arrival.storedBy ??= new Set();
    const { message, storedBy } = arrival;
    const open = handlers.filter((handler) => !storedBy.has(handler));
    const outcomes = await Promise.allSettled(open.map(async (handler) => handler(message)));
    for (const [at, { status }] of outcomes.entries()) if (status === 'fulfilled') storedBy.add(open[at]!);
    const failed = outcomes.find((outcome) => outcome.status === 'rejected');
    if (failed) throw failed.reason;
  }

  #drop(message: Message, error: unknown): void {
    this.counts.dropped++;
    this.#tell('broker.dropped', message, error);
  }

  #tell(event: keyof typeof WORDS, message: Message, error: unknown): void {
    const { name, clock, logger } = this.#options;
    const code = codeOf(error);
    const count =
      error instanceof SourceStopped ? undefined : this.#repeats.note(`${event}:${code}`, clock.monotonicMs());
    const fields = { event, broker: name, topic: message.topic, code, count };
    logger[count === undefined ? 'debug' : 'warn'](fields, WORDS[event]);
  }

  /** Nothing came for a moment, while messages wait to be confirmed: the broker may have given all it gives. */
  #watch(connection: Connection): void {
    const { clock, subscriptions } = this.#options;
    this.#lastArrivalMs = clock.monotonicMs();
    this.#window.arrived(this.#lastArrivalMs);
    if (this.#isWatching) return;
    this.#isWatching = true;
    const look = (afterMs: number) => {
      this.#cancelWatch = clock.after(afterMs, () => {
        const quietMs = clock.monotonicMs() - this.#lastArrivalMs;
        if (quietMs < STALL_MS) return look(STALL_MS - quietMs);
        this.#isWatching = false;
        const { unconfirmed } = connection;
        if (unconfirmed > 0 && this.#window.stalled(unconfirmed)) subscriptions.tellStalled();
      });
    };
    look(STALL_MS);
  }
}
