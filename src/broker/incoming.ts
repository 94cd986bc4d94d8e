/**
 * What a broker sends: handed to who wants it, asked again where that cannot take it now, and watched for the moment in which
 * the broker has given all that it gives before something is confirmed. One for all connections of a broker.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf, SourceStopped } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { type Backoff, fullJitterMs } from '../base/retry.ts';
import { brokerClosed } from './broker-error.ts';
import { type Connection, type Message, RECEIVE_MAXIMUM, type Receiver } from './connection.ts';
import type { MessageHandler, Subscriptions } from './subscriptions.ts';
import { hashOf, UnconfirmedMessages } from './unconfirmed.ts';
import { BrokerWindow } from './window.ts';

export interface IncomingOptions {
  /** Of the broker. */
  name: string;
  subscriptions: Subscriptions;
  clock: Clock;
  logger: Logger;
  /** Ends what waits to ask a handler again. */
  signal: AbortSignal;
}

const HANDLER_RETRY: Backoff = { baseMs: 1_000, capMs: 15_000 };
const HANDLER_RETRY_FLOOR_MS = 200;
/** A broker whose window is full has sent nothing for so long. */
const STALL_MS = 20;

/** Messages for which a handler gave one answer. */
interface Together {
  answer: Promise<void>;
  connection: Connection;
  messages: Message[];
  taken: Promise<void>;
}

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
  /** What was handed on last, to which the next may belong. */
  #last: Together | undefined;

  constructor(options: IncomingOptions) {
    this.#options = options;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get windowSize(): number | undefined {
    return this.#window.size;
  }

  /** Takes nothing more: what comes is not confirmed, and comes again. */
  close(): void {
    this.#isClosed = true;
    this.ended();
  }

  /** The connection is over. */
  ended(): void {
    this.#cancelWatch();
    this.#isWatching = false;
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
    if (messageId === undefined) return this.#handOn(message, connection);
    this.#watch(connection);
    const hash = hashOf(message);
    message.hash = hash;
    const before = message.redelivered ? this.unconfirmed.find({ messageId, hash }) : undefined;
    if (before !== undefined) return this.#takeAgain(before, { ...message, messageId, hash }, connection);
    if (message.redelivered) this.counts.retaken++;
    const work = this.#handOn(message, connection);
    this.unconfirmed.begin(messageId, hash, work);
    return work;
  }

  /** One that was handed on before: it is safe with what became of that. */
  async #takeAgain(
    before: Promise<void>,
    message: Message & { messageId: number; hash: string },
    connection: Connection,
  ): Promise<void> {
    if (await wentWell(before)) {
      this.counts.redelivered++;
      return;
    }
    const work = this.#handOn(message, connection);
    this.unconfirmed.begin(message.messageId, message.hash, work);
    await work;
  }

  #handOn(message: Message, connection: Connection): Promise<void> {
    const handlers = this.#options.subscriptions.handlersOf(message.topic);
    const [first] = handlers;
    if (first === undefined) {
      // Of a subscription that an earlier configuration made, and the session holds on to.
      this.counts.unwanted++;
      return DONE;
    }
    if (handlers.length === 1) return this.#handle(first, message, connection);
    return Promise.all(handlers.map((handler) => this.#handle(handler, message, connection))).then(() => {});
  }

  /** Hands a message on. Those for which a handler gives the same answer, which becomes theirs together, share what is given. */
  #handle(handler: MessageHandler, message: Message, connection: Connection): Promise<void> {
    const answer = answerOf(handler, message);
    const last = this.#last;
    if (last && last.answer === answer && last.connection === connection) {
      last.messages.push(message);
      return last.taken;
    }
    const messages = [message];
    const over = () => {
      if (this.#last?.answer === answer) this.#last = undefined;
    };
    const taken = answer.then(over, async (error: unknown) => {
      over();
      await Promise.all(messages.map((one) => this.#askAgain(handler, one, connection, error)));
    });
    this.#last = { answer, connection, messages, taken };
    return taken;
  }

  /** Asks a handler until it takes the message or the connection is over, which the broker answers by sending it again. */
  async #askAgain(handler: MessageHandler, message: Message, connection: Connection, refusal: unknown): Promise<void> {
    const { clock, signal } = this.#options;
    if (message.qos === 0) {
      this.counts.dropped++;
      return this.#tell('broker.dropped', message, refusal, 'a message of QoS 0 could not be taken and is lost');
    }
    this.#tell('broker.refused', message, refusal, 'a message cannot be taken now; the broker keeps it');
    let error = refusal;
    for (let attempt = 0; ; attempt++) {
      const waitMs = fullJitterMs(attempt, HANDLER_RETRY, () => clock.random(), HANDLER_RETRY_FLOOR_MS);
      await clock.sleep(waitMs, signal);
      if (connection.isClosed) throw error;
      try {
        return await handler(message);
      } catch (again) {
        error = again;
      }
    }
  }

  #tell(event: 'broker.dropped' | 'broker.refused', message: Message, error: unknown, words: string): void {
    const { name, clock, logger } = this.#options;
    const code = codeOf(error);
    const count =
      error instanceof SourceStopped ? undefined : this.#repeats.note(`${event}:${code}`, clock.monotonicMs());
    const fields = { event, broker: name, topic: message.topic, code, count };
    logger[count === undefined ? 'debug' : 'warn'](fields, words);
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

function answerOf(handler: MessageHandler, message: Message): Promise<void> {
  try {
    return handler(message);
  } catch (error) {
    return Promise.reject(error);
  }
}

function wentWell(work: Promise<void>): Promise<boolean> {
  return work.then(
    () => true,
    () => false,
  );
}
