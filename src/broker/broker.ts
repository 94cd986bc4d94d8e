/**
 * One MQTT broker, shared by subscribers and publishers.
 *
 * States: disconnected (connecting or waiting to reconnect), connected, stopped. While disconnected, the broker stores
 * messages for this client's session.
 *
 * Invariants: messages are acknowledged in order of arrival, each only after its handlers have resolved. A message that
 * a handler rejects is redelivered to the handler until the connection ends. Messages without a subscriber are acknowledged
 * immediately. Only differences are applied to the session's subscriptions, and shutdown does not change them. After a
 * crash the broker redelivers unacknowledged messages, and their values are stored again; values with their own time are
 * then identical.
 */
import { earlierMs, identityCheckWithExpiry } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import { codeOf, SourceStopped } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Redactor } from '../base/redactor.ts';
import { type Backoff, fullJitterMs } from '../base/retry.ts';
import { BrokerError, brokerClosed, brokerTooLarge, notAcknowledged } from './broker-error.ts';
import { BrokerLog } from './broker-log.ts';
import type { BrokerSpec } from './broker-spec.ts';
import { Connection, type Message, RECEIVE_MAXIMUM } from './connection.ts';
import { ConnectionLoop } from './connection-loop.ts';
import { readCredentials } from './credentials.ts';
import { reportDiscarded } from './discards.ts';
import type { DiscardedPublish } from './packets.ts';
import {
  type Filters,
  type MessageHandler,
  type SubscribeOptions,
  type Subscription,
  Subscriptions,
} from './subscriptions.ts';
import { readBrokerAddress } from './transport.ts';

export interface BrokerOptions<Spec = BrokerSpec> {
  name: string;
  spec: Spec;
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
  /** Reason why no messages are received: a code or a short message. */
  problem: string | undefined;
  /** Number of failed or lost connections. */
  failures: number;
  received: number;
  /** Number of messages that the broker had sent before. */
  redelivered: number;
  /** Number of messages that exceed a size limit. */
  discarded: number;
  /** Unacknowledged messages. */
  window: { used: number; size: number | undefined };
  /** Earliest certificate expiry, as wall-clock time. */
  certificateEndsMs: number | undefined;
}

/** Options for a published message. */
export interface Publishing {
  retain?: boolean;
  /** MQTT 5 user properties. */
  headers?: Readonly<Record<string, string>>;
  /** Message ID. A NATS stream stores only one message per ID. */
  id?: string;
  /** NATS: fails if no stream stores the subject, because offline subscribers would miss the message. */
  mustKeep?: boolean;
  signal?: AbortSignal;
  /** Called once the broker is connected, immediately before the message is sent. An exception prevents that. */
  beforeSend?: () => void;
}

const STOP_CHECK_MS = 20;
const PRESENCE_MS = 500;
const RETRY: Backoff = { baseMs: 200, capMs: 5_000 };
const RETRY_FLOOR_MS = 50;
/**
 * Two clients with the same client ID end each other's connections. MQTT 5 has a reason code for this case, which some
 * brokers omit and MQTT 3.1.1 lacks. Without the code, several consecutive connections that the broker accepts with
 * their session and closes within seconds indicate another client. A restarting broker refuses connections for some
 * time, and a broker that closes a connection because of a request does not respond to that request.
 */
const HUNG_UP: ReadonlySet<string | undefined> = new Set(['broker.hung_up', 'ECONNRESET']);
const SHORT_MS = 5_000;
const MANY_SHORT = 5;
/** Maximum number of filters per packet. Some brokers accept no more than eight. */
const MAX_TOGETHER = 8;

export class Broker {
  readonly name: string;
  readonly #options: BrokerOptions;
  readonly #address: URL;
  readonly #log: BrokerLog;
  readonly #loop: ConnectionLoop<Connection>;
  readonly #redactor = new Redactor();
  readonly #subscriptions = new Subscriptions();
  readonly #presence: Presence;
  readonly #closing = new AbortController();
  readonly #counts = { received: 0, redelivered: 0, discarded: 0, unwanted: 0, published: 0 };
  /** Filters of the broker session; `undefined` if unknown. */
  #granted: Map<string, 0 | 1 | 2> | undefined = undefined;
  #onGranted: ((filters: Filters) => void) | undefined;
  #isSettling = false;
  #isUnsettled = false;
  #certificateEndsMs: number | undefined;
  /** Number of consecutive connections that the broker closed within seconds without a reason. */
  #shortConnections = 0;

  /** Throws `broker.address`. */
  constructor(options: BrokerOptions) {
    this.name = options.name;
    this.#options = options;
    this.#address = readBrokerAddress(options.name, options.spec.url);
    this.#log = new BrokerLog(options);
    this.#presence = new Presence(options.spec.presence);
    this.#loop = new ConnectionLoop({
      name: options.name,
      clock: options.clock,
      log: this.#log,
      redactor: this.#redactor,
      connect: (signal) => this.#connect(signal),
      serve: (connection) => this.#serve(connection),
      version: ({ version }) => version,
    });
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
  start(): void {
    this.#loop.start();
  }

  /**
   * Waits up to `budgetMs` for running handlers, so that stored messages are acknowledged. Then closes the connection.
   * The session and its subscriptions remain: unacknowledged and newly published messages are delivered at the next
   * startup.
   */
  async stop(budgetMs = 2_000): Promise<void> {
    const { clock } = this.#options;
    const deadlineMs = clock.monotonicMs() + budgetMs;
    this.#closing.abort(brokerClosed(this.name));
    while ((this.#loop.current?.inProgress ?? 0) > 0 && clock.monotonicMs() < deadlineMs) {
      await clock.sleep(STOP_CHECK_MS);
    }
    await this.#loop.stop(async (connection) => {
      await Promise.race([this.#presence.announce(connection, false), clock.sleep(PRESENCE_MS)]);
      await connection.close();
    });
  }

  /**
   * Subscribes now and on every connection. Returns a function that unsubscribes. Changes made within one event loop
   * turn are combined.
   */
  subscribe(filter: string, handler: MessageHandler, options: SubscribeOptions = {}): () => void {
    const subscription: Subscription = { ...options, filter, handler };
    this.#subscriptions.add(subscription);
    const settleSoon = () => queueMicrotask(() => void this.#settle());
    settleSoon();
    return () => {
      if (this.#subscriptions.delete(subscription)) settleSoon();
    };
  }

  /**
   * Publishes with QoS 1 and resolves when the broker has acknowledged the message. Throws a `BrokerError`, usually
   * retryable, or the abort reason of the signal.
   */
  async publish(topic: string, payload: string | Uint8Array, options: Publishing = {}): Promise<void> {
    const { retain = false, headers, signal, beforeSend } = options;
    if (topic === '' || /[+#\0]/.test(topic)) {
      throw new BrokerError('invalid topic for publishing', { code: 'broker.topic' });
    }
    await this.#loop.publish(async (connection) => {
      beforeSend?.();
      try {
        await connection.publish(topic, payload, retain, signal, headers);
      } catch (error) {
        signal?.throwIfAborted();
        if (codeOf(error) === 'broker.too_large') throw brokerTooLarge(this.name, error);
        throw notAcknowledged(this.name, error);
      }
    }, signal);
    this.#counts.published++;
  }

  /**
   * Announces the presence again after another client announced its end. `sinceMs`: timestamp of that message. Returns
   * whether it was necessary.
   */
  contradictAbsence(sinceMs: number): boolean {
    return this.#presence.contradict(this.#loop.current, sinceMs);
  }

  /** `unwanted`: number of messages without a subscriber. */
  state(): BrokerState & { published: number; unwanted: number } {
    return {
      ...this.#loop.state(),
      ...this.#counts,
      window: { used: this.#loop.current?.unconfirmed ?? 0, size: RECEIVE_MAXIMUM },
      certificateEndsMs: this.#certificateEndsMs,
    };
  }

  async #connect(signal: AbortSignal): Promise<Connection> {
    const { name, spec, clientId, platformCaFile, clock } = this.#options;
    const will = this.#presence.will(clock.wallMs());
    try {
      const credentials = await readCredentials(name, spec, platformCaFile, this.#redactor);
      const { endsMs } = credentials;
      this.#certificateEndsMs = endsMs;
      credentials.checkServerIdentity = identityCheckWithExpiry((serverEndsMs) => {
        this.#certificateEndsMs = earlierMs(endsMs, serverEndsMs);
      });
      const open = (version: 5 | 3) =>
        Connection.open(
          {
            address: this.#address,
            credentials,
            clientId: spec.clientId ?? clientId,
            version,
            sessionExpiryMs: spec.sessionExpiryMs,
            will,
            clock,
            receiver: this.#receiver,
          },
          signal,
        );
      // Only a broker response selects 3.1.1, and only for this connection.
      return await open(spec.version).catch((error: unknown) => {
        if (codeOf(error) !== 'broker.version') throw error;
        return open(3);
      });
    } catch (error) {
      this.#shortConnections = 0;
      throw error;
    }
  }

  /** Serves one connection until it ends. Returns the reason why it ended. */
  async #serve(connection: Connection): Promise<unknown> {
    const { clock, nameTaken, spec } = this.#options;
    if (this.#loop.signal.aborted) void connection.close();
    // A session that the broker has discarded has no filters; the filters of a session created elsewhere are unknown.
    if (!connection.sessionPresent) {
      const isLost = [...(this.#granted?.values() ?? [])].some((qos) => qos > 0) && spec.sessionExpiryMs > 0;
      const hint = 'Check persistence and session expiry on the broker, and session_expiry of the source.';
      const fields = { event: 'broker.session_forgotten', hint };
      if (isLost) this.#log.report(fields, 'session lost by the broker, queued messages lost');
      this.#granted = new Map();
    }
    // Other clients may respond to the announcement immediately, so subscribe first.
    void this.#settle().then(() => this.#presence.announce(connection, true));
    const sinceMs = clock.monotonicMs();
    const reason = await connection.closed;
    const code = codeOf(reason);
    const isShort = clock.monotonicMs() - sinceMs < SHORT_MS && HUNG_UP.has(code) && connection.sessionPresent;
    if (!connection.wasResponsePending) this.#shortConnections = isShort ? this.#shortConnections + 1 : 0;
    if (code === 'broker.name_taken' || this.#shortConnections >= MANY_SHORT) nameTaken?.(this.name);
    return reason;
  }

  /** Passes the messages of all connections to the subscribers. */
  readonly #receiver = {
    receive: (message: Message, connection: Connection) => this.#receive(message, connection),
    discard: (message: DiscardedPublish) => {
      this.#counts.discarded++;
      reportDiscarded(this.#log, message);
    },
    isFull: () => this.#subscriptions.isFull,
    stalled: () => this.#subscriptions.notifyStalled(),
  };

  /**
   * Delivers a message. Redelivers it if its handler rejects it, for example because a reload replaces its source. Rejects when the
   * connection ends or no more messages are accepted.
   */
  async #receive(message: Message, connection: Connection): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#closing;
    signal.throwIfAborted();
    this.#counts.received++;
    if (message.redelivered) this.#counts.redelivered++;
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#deliver(message);
      } catch (error) {
        reportRefused(this.#log, message.topic, error);
        await clock.sleep(
          fullJitterMs(attempt, RETRY, () => clock.random(), RETRY_FLOOR_MS),
          signal,
        );
        if (connection.isClosed) throw error;
      }
    }
  }

  async #deliver(message: Message): Promise<void> {
    const handlers = this.#subscriptions.handlersOf(message.topic);
    // The session may still contain a subscription from an earlier configuration.
    if (handlers.length === 0) this.#counts.unwanted++;
    else if (handlers.length === 1) await handlers[0]!(message);
    else await Promise.all(handlers.map((handler) => handler(message)));
  }

  /** Applies the differences to the session's subscriptions. Adds new filters first, so that no message is missed. */
  async #settle(): Promise<void> {
    this.#isUnsettled = true;
    const connection = this.#loop.current;
    if (!connection || this.#closing.signal.aborted || this.#isSettling) return;
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
    this.#granted ??= new Map();
    const granted = this.#granted;
    const { added, removed } = this.#subscriptions.difference(granted);
    const chunks = Array.from({ length: Math.ceil(added.length / MAX_TOGETHER) }, (_, n) =>
      added.slice(n * MAX_TOGETHER, (n + 1) * MAX_TOGETHER),
    );
    const accepted = (await Promise.all(chunks.map((chunk) => connection.subscribe(chunk)))).flat();
    const hint = 'Grant this client read access to the topic on the broker.';
    for (const [at, [topic, qos]] of added.entries()) {
      if (accepted[at]) granted.set(topic, qos);
      else {
        const key = `not_allowed:${topic}`;
        const fields = { event: 'broker.not_allowed', topic, hint };
        this.#log.report(fields, 'subscription rejected by the broker', { key, level: 'error' });
        this.#subscriptions.notifyRejected(topic);
      }
    }
    for (const filter of removed) {
      await connection.unsubscribe(filter);
      granted.delete(filter);
    }
    if (accepted.includes(true) || removed.length > 0) this.#onGranted?.(granted);
  }
}

/** Reports that the handler of a message rejected it. Ignores rejections during a shutdown or reload. */
export function reportRefused(log: BrokerLog, topic: string, error: unknown): void {
  if (error instanceof SourceStopped) return;
  const code = codeOf(error);
  const fields = { event: 'broker.refused', topic, code };
  log.report(fields, 'message not stored yet, not acknowledged', { key: `refused:${code}` });
}

/** Returns a client name for inspection. */
export const inspectionName = (clock: Clock) => `tagferry-look-${Math.floor(clock.random() * 1e9).toString(36)}`;

/**
 * State of a Sparkplug host application that a client announces on one topic, retained and through its will (Eclipse
 * Sparkplug 3.0, chapter 5.9). Edge nodes ignore a message that is older than the latest one, so the will and the
 * announcements of a connection have the same timestamp. Only a contradiction can have a later one; edge nodes then
 * ignore the will of this connection, which cannot be changed.
 */
class Presence {
  readonly #topic: string | undefined;
  /** Unix time since which the state applies, in milliseconds. */
  #sinceMs = 0;
  /** Latest connection on which the application was announced as online. */
  #announcedOn: Connection | undefined;

  /** Without a topic, nothing is announced. */
  constructor(topic: string | undefined) {
    this.#topic = topic;
  }

  /** Returns the will of a connection that is opened now. */
  will(wallMs: number): { topic: string; payload: string } | undefined {
    this.#sinceMs = Math.max(this.#sinceMs, Math.round(wallMs));
    return this.#topic === undefined ? undefined : { topic: this.#topic, payload: this.#payload(false) };
  }

  async announce(connection: Connection, isOnline: boolean): Promise<void> {
    if (this.#topic === undefined) return;
    this.#announcedOn = connection;
    // If publishing fails, the connection has ended, and the will reports the state.
    await connection.publish(this.#topic, this.#payload(isOnline), true).catch(() => {});
  }

  /**
   * Announces the application as online again after another client announced it as offline, with a timestamp that is
   * not older. Returns false before the first announcement on a connection, because that announcement follows.
   */
  contradict(connection: Connection | undefined, offlineSinceMs: number): boolean {
    if (connection === undefined || connection !== this.#announcedOn) return false;
    this.#sinceMs = Math.max(this.#sinceMs, offlineSinceMs);
    void this.announce(connection, true);
    return true;
  }

  #payload(online: boolean): string {
    return JSON.stringify({ online, timestamp: this.#sinceMs });
  }
}
