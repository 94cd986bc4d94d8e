/**
 * Passes the messages of a broker to its subscribers. Each broker has one instance, which is used for all its
 * connections.
 *
 * A message is acknowledged when the promises of its handlers resolve. While a subscriber cannot accept more, the
 * connection is not read, so the broker stores the messages. A message that a handler rejects, for example because a
 * reload replaces its source, is delivered again until the connection ends.
 *
 * A broker with a full window sends nothing until messages are acknowledged, and does not report the size of the window.
 * If enough messages are unacknowledged and none arrives for a moment, subscribers therefore commit early.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf, SourceStopped } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { type Backoff, fullJitterMs } from '../base/retry.ts';
import { brokerClosed } from './broker-error.ts';
import type { Connection, Message, Receiver } from './connection.ts';
import type { Subscriptions } from './subscriptions.ts';

export interface IncomingOptions {
  /** Name of the broker. */
  name: string;
  subscriptions: Subscriptions;
  clock: Clock;
  logger: Logger;
}

/** Duration of silence after which the broker's window may be full, in milliseconds. */
const STALL_MS = 20;
/** Smallest default window among common brokers (HiveMQ; 20 in Mosquitto). */
const MIN_WINDOW = 10;
const RETRY: Backoff = { baseMs: 200, capMs: 5_000 };
const RETRY_FLOOR_MS = 50;

export class Incoming implements Receiver {
  /** `unwanted`: messages without a subscriber. `redelivered`: messages that the broker had sent before. */
  readonly counts = { received: 0, unwanted: 0, redelivered: 0 };
  readonly #options: IncomingOptions;
  readonly #repeats = new Repeats();
  #lastArrivalMs = 0;
  #cancelWatch: (() => void) | undefined;
  readonly #closing = new AbortController();

  constructor(options: IncomingOptions) {
    this.#options = options;
  }

  get isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Stops accepting messages. The broker keeps unacknowledged messages. */
  close(): void {
    this.#closing.abort(brokerClosed(this.#options.name));
    this.ended();
  }

  /** Handles the loss of the connection. */
  ended(): void {
    this.#cancelWatch?.();
    this.#cancelWatch = undefined;
  }

  get isFull(): boolean {
    return this.#options.subscriptions.isFull;
  }

  untilRoom(): Promise<void> {
    return this.#options.subscriptions.untilRoom();
  }

  receive(message: Message, connection: Connection): Promise<void> {
    if (this.isClosed) return Promise.reject(brokerClosed(this.#options.name));
    this.counts.received++;
    if (message.redelivered) this.counts.redelivered++;
    if (message.qos > 0) this.#watch(connection);
    return this.#deliver(message).catch((error: unknown) => this.#retry(message, connection, error));
  }

  /** Rejects when the connection ends or no more messages are accepted. */
  async #retry(message: Message, connection: Connection, rejection: unknown): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#closing;
    let error = rejection;
    for (let attempt = 0; ; attempt++) {
      this.#report(message, error);
      await clock.sleep(
        fullJitterMs(attempt, RETRY, () => clock.random(), RETRY_FLOOR_MS),
        signal,
      );
      if (connection.isClosed) throw error;
      try {
        return await this.#deliver(message);
      } catch (again) {
        error = again;
      }
    }
  }

  async #deliver(message: Message): Promise<void> {
    const handlers = this.#options.subscriptions.handlersOf(message.topic);
    // The session may still contain a subscription from an earlier configuration.
    if (handlers.length === 0) this.counts.unwanted++;
    else if (handlers.length === 1) await handlers[0]!(message);
    else await Promise.all(handlers.map((handler) => handler(message)));
  }

  #report({ topic }: Message, error: unknown): void {
    if (error instanceof SourceStopped) return;
    const { name, clock, logger } = this.#options;
    const code = codeOf(error);
    const count = this.#repeats.note(String(code), clock.monotonicMs());
    const fields = { event: 'broker.refused', broker: name, topic, code, count };
    logger[count === undefined ? 'debug' : 'warn'](fields, 'message not stored yet, not acknowledged');
  }

  /** Notifies subscribers if no message arrives while enough messages to fill a window are unacknowledged. */
  #watch(connection: Connection): void {
    const { clock, subscriptions } = this.#options;
    this.#lastArrivalMs = clock.monotonicMs();
    if (this.#cancelWatch !== undefined) return;
    const check = (afterMs: number) => {
      this.#cancelWatch = clock.after(afterMs, () => {
        const quietMs = clock.monotonicMs() - this.#lastArrivalMs;
        if (quietMs < STALL_MS) return check(STALL_MS - quietMs);
        this.#cancelWatch = undefined;
        if (connection.unconfirmed >= MIN_WINDOW) subscriptions.notifyStalled();
      });
    };
    check(STALL_MS);
  }
}
