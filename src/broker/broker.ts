/**
 * One MQTT broker, shared by subscribers and publishers. While the client is disconnected, the broker stores messages
 * for its session.
 *
 * Invariants: messages are acknowledged in order of arrival, each only after its handlers have resolved. A message that
 * a handler rejects is redelivered to the handler until the connection ends. Messages without a subscriber are
 * acknowledged immediately. All filters are requested on each connection, because a broker may have restored an older
 * session. Shutdown does not change the session. After a crash, the broker redelivers unacknowledged messages, and
 * their values are stored again. Duplicates of values with their own timestamp are identical.
 */
import { earlierMs, identityCheckWithExpiry } from '../base/certificates.ts';
import { codeOf } from '../base/errors.ts';
import { BrokerClient, type BrokerState, type Publishing, STEADY_MS } from './broker-client.ts';
import { BrokerError, brokerTooLarge, notAcknowledged, READ_ACCESS } from './broker-error.ts';
import { type BrokerSpec, placeOf } from './broker-spec.ts';
import { Connection, type Message, RECEIVE_MAXIMUM, type Receiver, type Subscription } from './connection.ts';
import { readCredentials } from './credentials.ts';

/**
 * Called with each message on the connection. Returns `undefined` if the subscriber does not use the topic. Otherwise,
 * resolves when the message is stored or can be discarded, and rejects if the message must be redelivered.
 */
export type MessageHandler = (message: Message) => Promise<void> | undefined;

export interface SubscribeOptions {
  qos?: 0 | 1 | 2;
  /** Group of clients that share the messages of this subscription. */
  share?: string | undefined;
  /**
   * Additional topics, which are not shared and are requested before the filters. The broker resends the retained
   * messages of these topics on each connection and for each new subscriber.
   */
  stateTopics?: readonly string[];
  /** Whether retained messages are used. They are then requested once, even if the session contains the filters. */
  wantsRetained?: boolean;
  /** Called when the broker is waiting for an acknowledgement, so that an early commit is useful. */
  stalled?(): void;
  /** Called when the broker accepts or rejects a filter. */
  permitted?(filter: string, isPermitted: boolean): void;
  /** Whether no more messages should be read. */
  isFull?(): boolean;
}

interface Subscriber extends SubscribeOptions {
  handler: MessageHandler;
  /** Filters by the name in the SUBSCRIBE packet, which begins with `$share/` for a shared subscription. */
  filters: ReadonlyMap<string, string>;
  states: ReadonlySet<string>;
}

interface Wanted extends Subscription {
  /** Whether the topic is one of the `stateTopics`. */
  isState: boolean;
}

const PRESENCE_MS = 500;
/** Interval at which a rejected message is redelivered, in milliseconds. */
const RETRY_MS = 1_000;
/** Interval at which rejected filters are requested again, in milliseconds. */
const REJECTED_MS = 60_000;
/** Errors of connections that the broker closed. */
const CLOSED_BY_BROKER: ReadonlySet<string | undefined> = new Set(['broker.hung_up', 'broker.ended', 'ECONNRESET']);
/** Maximum number of filters per packet. Some brokers accept no more than eight. */
const MAX_TOGETHER = 8;
/** Number of connections closed by the broker in response to a filter before the filter is skipped. */
const MAX_CLOSURES = 2;

/** Message that waits for the next retry of its topic. `arrival`: its number in order of arrival. */
interface RejectedMessage {
  arrival: number;
  retry: () => void;
}

export class Broker extends BrokerClient<Connection, BrokerSpec> {
  readonly kind = 'mqtt';
  readonly #subscribers = new Set<Subscriber>();
  /** Filters that were requested on the current connection, with their QoS. */
  readonly #requested = new Map<string, 0 | 1 | 2>();
  /** Filters whose retained messages were requested by a subscriber that uses them. */
  readonly #retainedReceived = new Set<string>();
  /** Filters in the broker session. Filters without a subscriber are removed from the session. */
  readonly #granted = new Set<string>();
  #onGranted: ((filters: ReadonlySet<string>) => void) | undefined;
  /** Filters in the latest call of `#onGranted`. */
  #reportedFilters = '';
  /** Pending changes to the session; one at a time. */
  #settling: Promise<void> = Promise.resolve();
  #isSettlingSoon = false;
  /**
   * Filters without a response to their latest request. Some brokers close the connection on a SUBSCRIBE for a topic
   * that this client is not allowed to read, or do not respond. To find the topic, these filters are requested one by
   * one on the next connection. The values are the numbers of connections that the broker closed during such a request.
   */
  readonly #unanswered = new Map<string, number>();
  /** Skipped filters, which are requested again after a steady connection has ended. */
  readonly #forbidden = new Set<string>();
  /** Rejected messages and those that wait behind them, by topic. */
  readonly #rejected = new Map<string, RejectedMessage[]>();
  /** Timestamp of the announced presence, as Unix time in milliseconds. */
  #presenceMs = 0;
  /** Latest connection on which the presence was announced. */
  #announcedOn: Connection | undefined;

  protected get place(): string {
    const { host, port } = placeOf(this.options.spec.url);
    return `${host} port ${port}`;
  }

  /** Ends the session, because otherwise the broker would store messages that are never fetched. */
  override async leave(): Promise<void> {
    this.#subscribers.clear();
    this.#settleSoon();
    await this.#settling;
    await this.stop();
  }

  /**
   * `filters`: filters of the session according to a previous process. `onGranted` is called with all filters of the
   * session after each change.
   */
  resume(filters: Iterable<string>, onGranted: (filters: ReadonlySet<string>) => void): void {
    this.#onGranted = onGranted;
    this.#reportedFilters = [...filters].join();
    for (const filter of filters) this.#granted.add(filter);
  }

  /**
   * Subscribes now and on every connection. Returns a function that unsubscribes. Changes made within one event loop
   * turn are combined.
   */
  subscribe(filters: readonly string[], handler: MessageHandler, options: SubscribeOptions = {}): () => void {
    const { share, stateTopics = [], wantsRetained = false } = options;
    const named = filters.map(
      (filter) => [share === undefined ? filter : `$share/${share}/${filter}`, filter] as const,
    );
    const subscriber = {
      ...options,
      handler,
      filters: new Map([...stateTopics.map((topic) => [topic, topic] as const), ...named]),
      states: new Set(stateTopics),
    };
    for (const name of subscriber.filters.keys()) {
      if (!wantsRetained) this.#retainedReceived.delete(name);
      const isMissingRetained = subscriber.states.has(name) || (wantsRetained && !this.#retainedReceived.has(name));
      // Request rejected filters again.
      if (isMissingRetained || !this.#granted.has(name)) this.#requested.delete(name);
      this.#forbidden.delete(name);
    }
    this.#subscribers.add(subscriber);
    this.#settleSoon();
    return () => {
      this.#subscribers.delete(subscriber);
      this.#settleSoon();
    };
  }

  /**
   * Publishes with QoS 1 and resolves when the broker has acknowledged the message. Throws a `BrokerError`, usually
   * retryable, or the abort reason of the signal.
   */
  async publish(topic: string, payload: string | Uint8Array, options: Publishing = {}): Promise<void> {
    const { signal, beforeSend } = options;
    if (topic === '' || /[+#\0]/.test(topic)) {
      throw new BrokerError('invalid topic for publishing', { code: 'broker.topic' });
    }
    const connection = await this.connected(signal);
    beforeSend?.();
    try {
      await connection.publish(topic, payload, options);
    } catch (error) {
      signal?.throwIfAborted();
      throw codeOf(error) === 'broker.too_large' ? brokerTooLarge(this.name, error) : notAcknowledged(this.name, error);
    }
  }

  override state(): BrokerState {
    return { ...super.state(), window: { used: this.connection?.unconfirmed ?? 0, size: RECEIVE_MAXIMUM } };
  }

  protected get inProgress(): number {
    return this.connection?.inProgress ?? 0;
  }

  protected versionOf({ version }: Connection): number {
    return version;
  }

  protected async connect(signal: AbortSignal): Promise<Connection> {
    const { name, spec, clientId, platformCaFile, clock } = this.options;
    this.#presenceMs = Math.max(this.#presenceMs, Math.round(clock.wallMs()));
    const { presence } = spec;
    const credentials = await readCredentials(name, spec, platformCaFile, this.redactor);
    const { endsMs } = credentials;
    this.certificateEndsMs = endsMs;
    credentials.checkServerIdentity = identityCheckWithExpiry((serverEndsMs) => {
      this.certificateEndsMs = earlierMs(endsMs, serverEndsMs);
    });
    const parts = {
      address: new URL(spec.url),
      credentials,
      clientId: spec.clientId ?? clientId,
      sessionExpiryMs: spec.sessionExpiryMs,
      will: presence === undefined ? undefined : { topic: presence, payload: this.#presencePayload(false) },
      clock,
      receiver: this.#receiver(),
    };
    // Only a broker response selects 3.1.1, and only for this connection.
    return await Connection.open({ ...parts, version: spec.version }, signal).catch((error: unknown) => {
      if (codeOf(error) !== 'broker.version') throw error;
      return Connection.open({ ...parts, version: 3 }, signal);
    });
  }

  #receiver(): Receiver {
    return {
      receive: (message, connection) => this.#receive(message, connection),
      discard: (...message) => this.reportDiscarded(...message),
      isFull: () => {
        for (const { isFull } of this.#subscribers) if (isFull?.()) return true;
        return false;
      },
      stalled: () => {
        for (const { stalled } of this.#subscribers) stalled?.();
      },
    };
  }

  protected async serve(connection: Connection): Promise<unknown> {
    const { clock, spec } = this.options;
    if (!connection.sessionPresent) {
      const hint =
        'Check persistence and session expiry on the broker, session_expiry of the source, and other programs with the same client ID.';
      const isLost = this.#granted.size > 0 && spec.qos > 0 && spec.sessionExpiryMs > 0;
      const fields = { event: 'broker.session_forgotten', hint };
      if (isLost) this.report(fields, 'session lost by the broker, queued messages lost');
      this.#granted.clear();
    }
    this.#requested.clear();
    this.#settleSoon();
    // Other clients may respond to the announcement immediately, so subscribe first.
    void this.#settling.then(() => this.#announce(connection, true));
    const requestRejected = () => {
      for (const filter of this.#requested.keys()) if (!this.#granted.has(filter)) this.#requested.delete(filter);
      this.#settleSoon();
      cancel = clock.after(REJECTED_MS, requestRejected);
    };
    let cancel = clock.after(REJECTED_MS, requestRejected);
    const sinceMs = clock.monotonicMs();
    const reason = await connection.closed;
    cancel();
    // The update records whether the request for a filter ended the connection.
    await this.#settling;
    if (clock.monotonicMs() - sinceMs >= STEADY_MS) this.#forbidden.clear();
    return reason;
  }

  protected async close(connection: Connection): Promise<void> {
    await Promise.race([this.#announce(connection, false), this.options.clock.sleep(PRESENCE_MS)]);
    await connection.close();
  }

  /**
   * Delivers a message. Redelivers it if its handler rejects it, for example because a reload replaces its source; later
   * messages of the topic wait behind it. Rejects when the connection ends or no more messages are accepted.
   */
  async #receive(message: Message, connection: Connection): Promise<void> {
    const { topic } = message;
    this.stopping.signal.throwIfAborted();
    const arrival = ++this.counts.received;
    if (message.redelivered) this.counts.redelivered++;
    for (let mustWait = this.#rejected.has(topic); ; mustWait = true) {
      if (mustWait) await this.#untilRetry(topic, arrival);
      this.stopping.signal.throwIfAborted();
      if (connection.isClosed) throw new BrokerError('the connection has ended', { code: 'broker.ended' });
      try {
        await this.#deliver(message);
        return;
      } catch (error) {
        this.reportRejected(topic, error);
      }
    }
  }

  /** Resolves at the next retry of the topic. Its messages continue in order of arrival. */
  #untilRetry(topic: string, arrival: number): Promise<void> {
    const { promise, resolve: retry } = Promise.withResolvers<void>();
    const rejected = this.#rejected.get(topic) ?? [];
    rejected.push({ arrival, retry });
    if (rejected.length > 1) return promise;
    this.#rejected.set(topic, rejected);
    const retryAll = () => {
      this.#rejected.delete(topic);
      for (const one of rejected.sort((a, b) => a.arrival - b.arrival)) one.retry();
    };
    void this.options.clock.sleep(RETRY_MS, this.stopping.signal).then(retryAll, retryAll);
    return promise;
  }

  /** Discards messages without a subscriber. The session may contain a filter from an earlier configuration. */
  #deliver(message: Message): Promise<unknown> | undefined {
    let handled: Promise<unknown> | undefined;
    for (const { handler } of this.#subscribers) {
      const one = handler(message);
      handled = handled && one ? Promise.all([handled, one]) : (handled ?? one);
    }
    return handled;
  }

  /** Updates the session after all changes of this event loop turn. */
  #settleSoon(): void {
    if (this.#isSettlingSoon) return;
    this.#isSettlingSoon = true;
    this.#settling = this.#settling
      .then(() => {
        this.#isSettlingSoon = false;
        return this.#updateSession();
      })
      // The connection ended without a response. The next connection repeats the request.
      .catch(() => {});
  }

  /** Requests all filters once per connection, before it removes unused filters, so that no message is missed. */
  async #updateSession(): Promise<void> {
    const { connection } = this;
    if (connection === undefined || this.stopping.signal.aborted) return;
    const wanted = new Map<string, Wanted>();
    for (const { filters, states, qos = 1, wantsRetained = false } of this.#subscribers) {
      for (const topic of filters.keys()) {
        const isMissingRetained = wantsRetained && !this.#retainedReceived.has(topic);
        const other = wanted.get(topic);
        wanted.set(topic, {
          topic,
          qos: Math.max(qos, other?.qos ?? 0) as 0 | 1 | 2,
          isState: states.has(topic) || other?.isState === true,
          resendsRetained: states.has(topic) || isMissingRetained || other?.resendsRetained === true,
        });
      }
    }
    const added = [...wanted.values()].filter(
      ({ topic, qos }) => this.#requested.get(topic) !== qos && !this.#forbidden.has(topic),
    );
    const removed = [...this.#granted].filter((filter) => !wanted.has(filter));
    const suspects = added.filter(({ topic }) => this.#unanswered.has(topic));
    const others = added.filter(({ topic }) => !this.#unanswered.has(topic));
    // Availability precedes the retained values of a device.
    await this.#requestEach(
      connection,
      suspects.filter(({ isState }) => isState),
    );
    if (!this.#isSettlingSoon) await this.#requestTogether(connection, others);
    await this.#requestEach(
      connection,
      suspects.filter(({ isState }) => !isState),
    );
    for (const filter of removed) {
      await connection.unsubscribe(filter);
      this.#granted.delete(filter);
      this.#requested.delete(filter);
    }
    const granted = [...this.#granted].join();
    if (granted !== this.#reportedFilters) this.#onGranted?.(this.#granted);
    this.#reportedFilters = granted;
  }

  /** Ends the connection if a packet has no response. */
  async #requestTogether(connection: Connection, added: readonly Subscription[]): Promise<void> {
    const packets: Promise<void>[] = [];
    for (const { topic } of added) this.#unanswered.set(topic, 0);
    for (let at = 0; at < added.length; at += MAX_TOGETHER) {
      packets.push(this.#request(connection, added.slice(at, at + MAX_TOGETHER)));
    }
    await Promise.all(packets).catch((error: unknown) => {
      connection.end(error);
      throw error;
    });
  }

  /** Stops before a pending update, which requests the remaining filters, so that a reload does not wait for each response. */
  async #requestEach(connection: Connection, subscriptions: readonly Subscription[]): Promise<void> {
    for (const one of subscriptions) {
      if (this.#isSettlingSoon) return;
      await this.#requestAlone(connection, one);
    }
  }

  async #requestAlone(connection: Connection, subscription: Subscription): Promise<void> {
    const { topic } = subscription;
    try {
      await this.#request(connection, [subscription]);
    } catch (error) {
      if (this.stopping.signal.aborted) throw error;
      const { isClosed } = connection;
      const closures = this.#unanswered.get(topic)! + (CLOSED_BY_BROKER.has(codeOf(error)) ? 1 : 0);
      this.#unanswered.set(topic, closures);
      if (!isClosed || closures >= MAX_CLOSURES) {
        this.#unanswered.delete(topic);
        this.#forbidden.add(topic);
        this.#reportPermission(topic, false);
        // Reset the delay, because a connection can succeed without the filter.
        this.attempt = 0;
      }
      if (isClosed) throw error;
    }
  }

  async #request(connection: Connection, subscriptions: readonly Subscription[]): Promise<void> {
    const accepted = await connection.subscribe(subscriptions);
    for (const [at, { topic, qos, resendsRetained }] of subscriptions.entries()) {
      this.#requested.set(topic, qos);
      if (resendsRetained) this.#retainedReceived.add(topic);
      this.#unanswered.delete(topic);
      if (accepted[at]) this.#granted.add(topic);
      else this.#granted.delete(topic);
      this.#reportPermission(topic, accepted[at]!);
    }
  }

  #reportPermission(topic: string, isPermitted: boolean): void {
    const fields = { event: 'broker.not_allowed', topic, hint: READ_ACCESS };
    const key = `not_allowed:${topic}`;
    if (isPermitted) this.endReport(key);
    else this.report(fields, 'subscription rejected by the broker', key, 'error');
    for (const { filters, permitted } of [...this.#subscribers]) {
      const filter = filters.get(topic);
      if (filter !== undefined) permitted?.(filter, isPermitted);
    }
  }

  /**
   * Announces this client as online again after it was announced as offline at `sinceMs`, in Unix milliseconds. Returns
   * false before the first announcement on a connection, which supersedes the offline message.
   */
  contradictAbsence(sinceMs: number): boolean {
    const { connection } = this;
    if (connection === undefined || connection !== this.#announcedOn) return false;
    this.#presenceMs = Math.max(this.#presenceMs, sinceMs);
    void this.#announce(connection, true);
    return true;
  }

  async #announce(connection: Connection, isOnline: boolean): Promise<void> {
    const { presence } = this.options.spec;
    if (presence === undefined) return;
    this.#announcedOn = connection;
    // If publishing fails, the connection has ended, and the will reports the state.
    await connection.publish(presence, this.#presencePayload(isOnline), { retain: true }).catch(() => {});
  }

  /**
   * Edge nodes ignore a message that is older than the latest one, so the will and the announcements of a connection
   * have the same timestamp (Eclipse Sparkplug 3.0, chapter 5.9). Only a repeated announcement can have a later one.
   * Edge nodes then ignore the will of this connection, which cannot be changed.
   */
  #presencePayload(online: boolean): string {
    return JSON.stringify({ online, timestamp: this.#presenceMs });
  }
}
