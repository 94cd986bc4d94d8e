/**
 * Passes the messages of a broker to its subscribers. Each broker has one instance, which is used for all its
 * connections.
 *
 * The order of messages is preserved: if a handler rejects a message, this message and all later ones wait in an
 * `OrderedQueue`. The receive maximum limits waiting QoS 1 and 2 messages, because none of them is acknowledged. For
 * QoS 0, the limit is fixed; further messages are dropped and counted. When the connection ends, the broker sends
 * waiting QoS 1 and 2 messages again; QoS 0 messages are lost.
 *
 * If messages are unacknowledged and no further messages arrive, the broker may be waiting for acknowledgements.
 * Brokers do not report the size of this window. Subscribers are then notified, so that they commit early. If no
 * messages follow the acknowledgements, the broker was only idle. Subscribers are then not notified again at that
 * number of messages, because each early commit wears the flash memory.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf, SourceStopped } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { brokerBusy, brokerClosed } from './broker-error.ts';
import type { Connection, Message, Receiver } from './connection.ts';
import { OrderedQueue } from './ordered-queue.ts';
import type { Subscriptions } from './subscriptions.ts';
import { hashOf, UnconfirmedMessages } from './unconfirmed.ts';

export interface IncomingOptions {
  /** Name of the broker. */
  name: string;
  subscriptions: Subscriptions;
  clock: Clock;
  logger: Logger;
  /** Stops retries. */
  signal: AbortSignal;
}

/** Number of waiting messages at which further QoS 0 messages are dropped. */
const MAX_WAITING_UNCONFIRMED = 1_000;
/** Duration of silence after which the broker's window may be full, in milliseconds. */
const STALL_MS = 20;
/** Time within which a broker with a full window sends more messages after acknowledgements, in milliseconds. */
const RESUME_MS = 100;
/** Smallest default window among common brokers (HiveMQ; 20 in Mosquitto). */
const MIN_WINDOW = 10;

interface Arrival {
  message: Message;
  connection: Connection;
}

const LOG_MESSAGES = {
  'broker.dropped': 'QoS 0 message dropped',
  'broker.refused': 'message deferred, later messages are waiting for it',
} as const;
const DONE = Promise.resolve();

export class Incoming implements Receiver {
  readonly counts = { received: 0, dropped: 0, unwanted: 0, redelivered: 0, storedAgain: 0 };
  readonly unconfirmed = new UnconfirmedMessages();
  readonly #options: IncomingOptions;
  readonly #repeats = new Repeats();
  #lastArrivalMs = 0;
  /** Number of unacknowledged messages when subscribers were last notified; undefined after the next message. */
  #stalledAt: number | undefined;
  #acknowledgedMs = 0;
  /** Highest number of unacknowledged messages at which the broker was found to be only idle. */
  #idleUpTo = MIN_WINDOW - 1;
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
      onRejected: ({ message }, error) => this.#report('broker.refused', message, error),
      clock,
      signal,
    });
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Stops accepting messages. The broker keeps unacknowledged messages. */
  close(): void {
    this.#isClosed = true;
    this.ended();
  }

  /** Handles the loss of the connection: the broker sends waiting QoS 1 and 2 messages again. */
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
    this.#stalledAt = undefined;
    this.#idleUpTo = MIN_WINDOW - 1;
    if (!sessionPresent) this.unconfirmed.clear();
  }

  done(messageIds: readonly number[]): void {
    this.#acknowledgedMs = this.#options.clock.monotonicMs();
    for (const messageId of messageIds) this.unconfirmed.confirmed(messageId);
  }

  receive(message: Message, connection: Connection): Promise<void> {
    if (this.#isClosed) return Promise.reject(brokerClosed(this.#options.name));
    this.counts.received++;
    const { messageId } = message;
    const arrival = { message, connection };
    if (messageId === undefined) {
      if (this.#queue.waiting < MAX_WAITING_UNCONFIRMED) return this.#queue.offer(arrival);
      this.#drop(message, brokerBusy(this.#options.name));
      return DONE;
    }
    this.#watch(connection);
    const hash = hashOf(message);
    message.hash = hash;
    const before = message.redelivered ? this.unconfirmed.find({ messageId, hash }) : undefined;
    if (before === undefined && message.redelivered) this.counts.storedAgain++;
    const stored = before === undefined ? this.#queue.offer(arrival) : this.#storedBefore(before, arrival);
    this.unconfirmed.begin(messageId, hash, stored);
    return stored;
  }

  /**
   * Handles a redelivered message. It is stored with the first delivery, or delivered again if the first delivery
   * fails.
   */
  #storedBefore(before: Promise<void>, arrival: Arrival): Promise<void> {
    return before.then(
      () => {
        this.counts.redelivered++;
      },
      () => this.#queue.offer(arrival),
    );
  }

  /** If one of several handlers rejects the message, the retry calls all of them again. */
  #deliver({ message }: Arrival): Promise<void> {
    const handlers = this.#options.subscriptions.handlersOf(message.topic);
    const [first, ...others] = handlers;
    if (first === undefined) {
      // The session still contains a subscription from an earlier configuration.
      this.counts.unwanted++;
      return DONE;
    }
    if (others.length === 0) return first(message);
    return Promise.all(handlers.map((handler) => handler(message))).then(() => {});
  }

  #drop(message: Message, error: unknown): void {
    this.counts.dropped++;
    this.#report('broker.dropped', message, error);
  }

  #report(event: keyof typeof LOG_MESSAGES, message: Message, error: unknown): void {
    const { name, clock, logger } = this.#options;
    const code = codeOf(error);
    const count =
      error instanceof SourceStopped ? undefined : this.#repeats.note(`${event}:${code}`, clock.monotonicMs());
    const fields = { event, broker: name, topic: message.topic, code, count };
    logger[count === undefined ? 'debug' : 'warn'](fields, LOG_MESSAGES[event]);
  }

  /** Notifies subscribers if no message arrives while enough messages to fill the window are unacknowledged. */
  #watch(connection: Connection): void {
    const { clock, subscriptions } = this.#options;
    this.#lastArrivalMs = clock.monotonicMs();
    this.#learnFrom(this.#lastArrivalMs - this.#acknowledgedMs <= RESUME_MS);
    if (this.#isWatching) return;
    this.#isWatching = true;
    const check = (afterMs: number) => {
      this.#cancelWatch = clock.after(afterMs, () => {
        const quietMs = clock.monotonicMs() - this.#lastArrivalMs;
        if (quietMs < STALL_MS) return check(STALL_MS - quietMs);
        this.#isWatching = false;
        this.#stalledAt = connection.unconfirmed;
        if (this.#stalledAt > this.#idleUpTo) subscriptions.notifyStalled();
      });
    };
    check(STALL_MS);
  }

  /**
   * `resumed`: the first message after the silence immediately followed the acknowledgements, so the window was full.
   */
  #learnFrom(resumed: boolean): void {
    if (this.#stalledAt === undefined) return;
    if (resumed) this.#idleUpTo = Math.max(MIN_WINDOW - 1, Math.min(this.#idleUpTo, this.#stalledAt - 1));
    else this.#idleUpTo = Math.max(this.#idleUpTo, this.#stalledAt);
    this.#stalledAt = undefined;
  }
}
