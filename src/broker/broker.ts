import { earlierMs, identityCheckWithExpiry } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import { codeOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Redactor } from '../base/redactor.ts';
import { Repeats } from '../base/repeats.ts';
import { BrokerError, brokerBusy, brokerClosed, brokerTooLarge } from './broker-error.ts';
import type { BrokerSpec } from './broker-spec.ts';
import { Connection, RECEIVE_MAXIMUM } from './connection.ts';
import { ConnectionLoop } from './connection-loop.ts';
import { readCredentials } from './credentials.ts';
import { type DiscardedMessage, Discards } from './discards.ts';
import { Incoming } from './incoming.ts';
import { NameContest } from './name-contest.ts';
import { Presence } from './presence.ts';
import {
  differenceOf,
  type Filters,
  type MessageHandler,
  type SubscribeOptions,
  type Subscription,
  Subscriptions,
} from './subscriptions.ts';
import { type BrokerAddress, readBrokerAddress } from './transport.ts';

export type { MessageHandler } from './subscriptions.ts';

/**
 * One MQTT broker, shared by subscribers and publishers.
 *
 * States: away (connecting or waiting to reconnect), connected, stopped. In the state `away`, the broker stores
 * messages for this client's session. Publishing waits a few seconds for a connection, then fails so that the caller
 * can retry.
 *
 * Invariants: messages are acknowledged in order of arrival, each only after its handler has resolved. Only differences
 * are applied to the session's subscriptions, and shutdown does not change them. Messages without a subscriber are
 * acknowledged immediately. After a crash the broker redelivers unacknowledged messages, and their values are stored
 * again; values with their own time are then identical.
 */
export interface BrokerOptions {
  name: string;
  spec: BrokerSpec;
  /** Client ID of the broker session. Stable across restarts and unique per gateway. */
  clientId: string;
  clock: Clock;
  logger: Logger;
  /** PLATFORM_CA, for a broker whose source does not configure a CA. */
  platformCaFile?: string | undefined;
  /** Called when another client uses the same client ID. */
  nameTaken?(broker: string): void;
}

export interface BrokerState {
  name: string;
  connected: boolean;
  /** Monotonic time of the latest connect or disconnect. */
  sinceMs: number;
  /** Reason why the broker is disconnected: a code or a short message. */
  problem: string | undefined;
  /** Number of failed or lost connections. */
  failures: number;
  received: number;
  published: number;
  /** Number of messages that exceed a size limit. */
  discarded: number;
  /** Number of messages without a subscriber. */
  unwanted: number;
  /** Number of messages that the broker had sent before. */
  redelivered: number;
  window: { used: number; size: number };
  /** Earliest certificate expiry, as wall-clock time. */
  certificateEndsMs: number | undefined;
}

const MAX_PUBLISHING = 200;
const PRESENCE_MS = 500;
export class Broker {
  readonly name: string;
  readonly #options: BrokerOptions;
  readonly #address: BrokerAddress;
  readonly #subscriptions = new Subscriptions();
  readonly #incoming: Incoming;
  readonly #discards: Discards;
  readonly #contest: NameContest;
  readonly #presence: Presence;
  readonly #loop: ConnectionLoop<Connection>;
  readonly #redactor = new Redactor();
  readonly #repeats = new Repeats();
  #published = 0;
  /** Filters of the broker session; `undefined` if unknown. */
  #granted: Map<string, 0 | 1 | 2> | undefined = undefined;
  #onGranted: ((filters: Filters) => void) | undefined;
  #isSettling = false;
  #isUnsettled = false;
  #certificateEndsMs: number | undefined;
  #publishing = 0;

  /** Throws `broker.address`. */
  constructor(options: BrokerOptions) {
    this.name = options.name;
    this.#options = options;
    this.#address = readBrokerAddress(options.name, options.spec.url);
    this.#loop = new ConnectionLoop({
      name: options.name,
      clock: options.clock,
      logger: options.logger,
      redactor: this.#redactor,
      connect: async (signal) => {
        try {
          return await this.#connect(signal);
        } catch (error) {
          this.#contest.failed();
          throw error;
        }
      },
      serve: (connection) => this.#serve(connection),
      details: ({ version }) => ({ version }),
    });
    this.#presence = new Presence(options.spec.presence);
    this.#discards = new Discards(options);
    this.#contest = new NameContest(options.clock);
    this.#incoming = new Incoming({ ...options, subscriptions: this.#subscriptions });
  }

  /**
   * Ends the session because tags.yaml no longer contains this broker. Otherwise the broker would store messages that
   * are never fetched.
   */
  async leave(): Promise<void> {
    this.#subscriptions.clear();
    await this.#settle();
    await this.stop();
  }

  /**
   * Restores the filters of the session from a previous process; `undefined` if unknown. `onGranted` is called with
   * the filters after each change.
   */
  resume(filters: Filters | undefined, onGranted: (filters: Filters) => void): void {
    this.#onGranted = onGranted;
    if (this.#granted === undefined && filters) this.#granted = new Map(filters);
  }

  /** Connects, and reconnects until the broker is stopped. */
  start(signal?: AbortSignal): void {
    signal?.addEventListener('abort', () => void this.stop(0), { once: true });
    this.#loop.start();
  }

  /**
   * Waits up to `budgetMs` for running handlers, so that stored messages are acknowledged. Then closes the connection.
   * The session and its subscriptions remain: unacknowledged and newly published messages are delivered at the next
   * startup.
   */
  async stop(budgetMs = 2_000): Promise<void> {
    const { clock } = this.#options;
    const deadline = clock.monotonicMs() + budgetMs;
    const connection = this.#loop.current;
    this.#incoming.close();
    while (connection && connection.inProgress > 0 && clock.monotonicMs() < deadline) await clock.sleep(20);
    this.#loop.stop(brokerClosed(this.name));
    if (connection) await Promise.race([this.#presence.announce(connection, false), clock.sleep(PRESENCE_MS)]);
    await connection?.close();
    await this.#loop.stopped();
  }

  /**
   * Subscribes now and on every connection. Returns a function that unsubscribes. Changes made within one event loop
   * turn are combined.
   */
  subscribe(filter: string, handler: MessageHandler, options: SubscribeOptions = {}): () => void {
    const subscription: Subscription = { ...options, filter, handler };
    this.#subscriptions.add(subscription);
    this.#settleSoon();
    return () => {
      if (this.#subscriptions.delete(subscription)) this.#settleSoon();
    };
  }

  /**
   * Publishes with QoS 1 and resolves when the broker has acknowledged the message. Throws a `BrokerError`, usually
   * retryable, or the abort reason of the signal.
   */
  async publish(
    topic: string,
    payload: string | Uint8Array,
    options: {
      retain?: boolean;
      headers?: Readonly<Record<string, string>>;
      signal?: AbortSignal;
      beforeSend?: () => void;
    } = {},
  ): Promise<void> {
    if (this.#publishing >= MAX_PUBLISHING) throw brokerBusy(this.name);
    if (topic === '' || /[+#\0]/.test(topic)) {
      throw new BrokerError('invalid topic for publishing', { code: 'broker.topic' });
    }
    this.#publishing++;
    try {
      const connection = await this.#loop.untilConnected(options.signal);
      options.beforeSend?.();
      try {
        await connection.publish(topic, payload, options.retain ?? false, options.signal, options.headers);
      } catch (error) {
        options.signal?.throwIfAborted();
        if (codeOf(error) === 'broker.too_large') throw brokerTooLarge(this.name, error);
        throw new BrokerError(`the broker ${this.name} did not acknowledge a message`, {
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

  /**
   * Announces the presence again after another client announced its end. `sinceMs`: timestamp of that message. Returns
   * whether it was necessary.
   */
  contradictAbsence(sinceMs: number): boolean {
    return this.#presence.contradict(this.#loop.current, sinceMs);
  }

  state(): BrokerState {
    return {
      name: this.name,
      connected: this.#loop.current !== undefined,
      sinceMs: this.#loop.sinceMs,
      problem: this.#loop.problem,
      failures: this.#loop.failures,
      published: this.#published,
      ...this.#incoming.counts,
      discarded: this.#discards.count,
      window: { used: this.#loop.current?.unconfirmed ?? 0, size: RECEIVE_MAXIMUM },
      certificateEndsMs: this.#certificateEndsMs,
    };
  }

  async #connect(signal: AbortSignal): Promise<Connection> {
    const { name, spec, clientId, platformCaFile, clock } = this.#options;
    const will = this.#presence.will(clock.wallMs());
    const credentials = await readCredentials(name, spec, platformCaFile, this.#redactor);
    const { endsMs } = credentials;
    this.#certificateEndsMs = endsMs;
    credentials.checkServerIdentity = identityCheckWithExpiry((serverEndsMs) => {
      this.#certificateEndsMs = earlierMs(endsMs, serverEndsMs);
    });
    const options = {
      address: this.#address,
      credentials,
      clientId: spec.clientId ?? clientId,
      version: spec.version,
      sessionExpiryMs: spec.sessionExpiryMs,
      ...(will ? { will } : {}),
      clock,
      incoming: this.#incoming,
      discarded: (message: DiscardedMessage) => this.#discards.add(message),
    };
    try {
      return await Connection.open(options, signal);
    } catch (error) {
      // Only a broker response selects 3.1.1, and only for this connection.
      if (codeOf(error) !== 'broker.version') throw error;
      return await Connection.open({ ...options, version: 3 }, signal);
    }
  }

  /** Serves one connection until it ends. Returns the reason why it ended. */
  async #serve(connection: Connection): Promise<unknown> {
    if (this.#loop.signal.aborted) void connection.close();
    // A session that the broker has discarded has no filters; the filters of a session created elsewhere are unknown.
    if (!connection.sessionPresent) {
      this.#reportForgotten();
      this.#granted = new Map();
    }
    // Other clients may respond to the announcement immediately, so subscribe first.
    void this.#settle().then(() => this.#presence.announce(connection, true));
    const sinceMs = this.#options.clock.monotonicMs();
    const reason = await connection.closed;
    this.#incoming.ended();
    const { sessionPresent, wasResponsePending } = connection;
    if (this.#contest.ended({ reason, sinceMs, sessionPresent, wasResponsePending }))
      this.#options.nameTaken?.(this.name);
    return reason;
  }

  #settleSoon(): void {
    queueMicrotask(() => void this.#settle());
  }

  /** Applies the differences to the session's subscriptions. Adds new filters first, so that no message is missed. */
  async #settle(): Promise<void> {
    this.#isUnsettled = true;
    const connection = this.#loop.current;
    if (!connection || this.#incoming.isClosed || this.#isSettling) return;
    this.#isSettling = true;
    try {
      while (this.#isUnsettled && !connection.isClosed) {
        this.#isUnsettled = false;
        await this.#updateSession(connection);
      }
    } catch {
      // The connection was closed because a subscription received no response. The next connection repeats the
      // subscription.
    } finally {
      this.#isSettling = false;
    }
  }

  /** Rejected filters are not requested again on this connection unless the subscriptions change. */
  async #updateSession(connection: Connection): Promise<void> {
    const granted = this.#granted ?? new Map<string, 0 | 1 | 2>();
    this.#granted = granted;
    const { added, removed } = differenceOf(this.#subscriptions.wanted(), granted);
    const accepted = await Promise.all(chunksOf(added).map((some) => this.#subscribe(connection, some)));
    for (const filter of removed) {
      await connection.unsubscribe(filter);
      granted.delete(filter);
    }
    if (accepted.includes(true) || removed.length > 0) this.#onGranted?.(granted);
  }

  /** Returns `false` if the broker accepts none of the filters. */
  async #subscribe(connection: Connection, filters: readonly [string, 0 | 1 | 2][]): Promise<boolean> {
    const accepted = await connection.subscribe(filters);
    for (const [at, [filter, qos]] of filters.entries()) {
      if (accepted[at]) this.#granted?.set(filter, qos);
      else {
        this.#reportRejected(filter);
        this.#subscriptions.notifyRejected(filter);
      }
    }
    return accepted.includes(true);
  }

  /**
   * Logs that messages sent while the client was disconnected are lost. Only retained and new messages are received.
   */
  #reportForgotten(): void {
    const { clock, logger, spec } = this.#options;
    const isKept = spec.sessionExpiryMs > 0 && [...(this.#granted?.values() ?? [])].some((qos) => qos > 0);
    if (!isKept) return;
    const count = this.#repeats.note('session_forgotten', clock.monotonicMs());
    const hint = 'Check persistence and session expiry on the broker, and session_expiry of the source.';
    const fields = { event: 'broker.session_forgotten', broker: this.name, hint, count };
    logger[count === undefined ? 'debug' : 'warn'](fields, 'session lost by the broker, its queued messages are lost');
  }

  #reportRejected(filter: string): void {
    const { clock, logger } = this.#options;
    const count = this.#repeats.note(`not_allowed:${filter}`, clock.monotonicMs());
    const hint = 'Grant this client read access to the topic on the broker.';
    const fields = { event: 'broker.not_allowed', broker: this.name, topic: filter, hint, count };
    logger[count === undefined ? 'debug' : 'error'](fields, 'subscription rejected by the broker');
  }
}

/** Maximum number of filters per packet. Some brokers accept no more than eight. */
const MAX_TOGETHER = 8;

function chunksOf<Item>(items: readonly Item[]): Item[][] {
  const chunks: Item[][] = [];
  for (let from = 0; from < items.length; from += MAX_TOGETHER) chunks.push(items.slice(from, from + MAX_TOGETHER));
  return chunks;
}
