import { earlierMs, tellingIdentity } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import { codeOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Redactor } from '../base/redactor.ts';
import { Repeats } from '../base/repeats.ts';
import { type BrokerAddress, readBrokerAddress } from './broker-address.ts';
import { BrokerError, brokerBusy, brokerClosed, brokerTooLarge } from './broker-error.ts';
import type { BrokerSpec } from './broker-spec.ts';
import { Connection } from './connection.ts';
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

export type { MessageHandler } from './subscriptions.ts';

/**
 * One MQTT broker, shared by whoever subscribes to it and whoever publishes.
 *
 * States: away (connecting, or waiting to), connected, stopped. While away the broker keeps messages for this client's session;
 * publishing waits a few seconds for the connection and then fails, for the caller to try again.
 *
 * Invariants: a message is confirmed only after its handler resolved, in the order of arrival. If a handler rejects a message, the
 * message is retried until the connection ends, and later messages wait behind it (`OrderedQueue`). The session's
 * subscriptions follow what is wanted by the difference, and a stop changes none of them. A message that nobody wants is confirmed at
 * once. A crash leaves unconfirmed messages with the broker, which sends them again; those that were on disk by then are known
 * (`UnconfirmedMessages`) and not taken twice.
 */
export interface BrokerOptions {
  name: string;
  spec: BrokerSpec;
  /** The same at every start and different on every gateway: the broker keeps the session under it. */
  clientId: string;
  clock: Clock;
  logger: Logger;
  /** PLATFORM_CA, for a broker whose source names no authority of its own. */
  platformCaFile?: string | undefined;
  /** Another client uses the client id of this one. */
  nameTaken?(broker: string): void;
}

export interface BrokerState {
  name: string;
  connected: boolean;
  /** Monotonic: since when it is connected, or away. */
  sinceMs: number;
  /** Why it is away: a code or a short message. */
  problem: string | undefined;
  /** Connections that failed or ended. */
  failures: number;
  received: number;
  published: number;
  /** QoS 0 messages whose handler refused them: nobody sends them again. */
  dropped: number;
  /** Messages that exceed a bound. */
  discarded: number;
  /** Messages that nobody here wants. */
  unwanted: number;
  /** Messages that came a second time, and were not taken again. */
  redelivered: number;
  /** Messages that the broker had sent before, and that were taken. */
  retaken: number;
  window: { used: number; size: number | undefined };
  /** By the wall clock: when the first of its certificates ends. */
  certificateEndsMs: number | undefined;
}

/** What is known of the broker's session from an earlier process. */
export interface KeptSession {
  /** Filters that the session holds; `undefined` where that is not known. */
  filters: Filters | undefined;
  unconfirmed: Iterable<readonly [messageId: number, hash: string]>;
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
  readonly #loop: ConnectionLoop<Connection>;
  readonly #redactor = new Redactor();
  readonly #repeats = new Repeats();
  #published = 0;
  /** Filters that the broker's session holds; `undefined` where that is not known. */
  #granted: Map<string, 0 | 1 | 2> | undefined = undefined;
  #onGranted: ((filters: Filters) => void) | undefined;
  #isSettling = false;
  #isUnsettled = false;
  #certificateEndsMs: number | undefined;
  #publishing = 0;
  /** Of the connection that is there, or tried. */
  #presence: Presence | undefined;

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
      hold: (connection) => this.#hold(connection),
      details: ({ version }) => ({ version }),
    });
    this.#discards = new Discards(options);
    this.#contest = new NameContest(options.clock);
    this.#incoming = new Incoming({ ...options, subscriptions: this.#subscriptions, signal: this.#loop.signal });
  }

  /** Takes leave of everything: tags.yaml no longer names this broker. What it keeps for us nobody would fetch. */
  async leave(): Promise<void> {
    this.#subscriptions.clear();
    await this.#settle();
    await this.stop();
  }

  /** What an earlier process knew. `onGranted` is told what the session holds whenever that changes. */
  resume(kept: KeptSession, onGranted: (filters: Filters) => void): void {
    this.#onGranted = onGranted;
    if (this.#granted === undefined && kept.filters) this.#granted = new Map(kept.filters);
    this.#incoming.unconfirmed.restore(kept.unconfirmed);
  }

  /** Begins to connect, for as long as it takes. */
  start(signal?: AbortSignal): void {
    signal?.addEventListener('abort', () => void this.stop(0), { once: true });
    this.#loop.start();
  }

  /**
   * Lets handlers at work finish within `budgetMs`, so that what is on disk is confirmed, and ends the connection. The session
   * stays, with all its subscriptions: what is not confirmed, and what is published meanwhile, comes at the next start.
   */
  async stop(budgetMs = 2_000): Promise<void> {
    const { clock } = this.#options;
    const deadline = clock.monotonicMs() + budgetMs;
    const connection = this.#loop.current;
    this.#incoming.close();
    while (connection && connection.atWork > 0 && clock.monotonicMs() < deadline) await clock.sleep(20);
    this.#loop.stop(brokerClosed(this.name));
    if (connection) await Promise.race([this.#tellPresence(connection, false), clock.sleep(PRESENCE_MS)]);
    await connection?.close();
    await this.#loop.stopped();
  }

  /** Subscribes, now and at every connection. Returns what takes it back; several changes in one turn are one. */
  subscribe(filter: string, handler: MessageHandler, options: SubscribeOptions = {}): () => void {
    const subscription: Subscription = { ...options, filter, handler };
    this.#subscriptions.add(subscription);
    this.#settleSoon();
    return () => {
      if (this.#subscriptions.delete(subscription)) this.#settleSoon();
    };
  }

  /** Ids of messages whose confirmation was sent since the last call: their records may go from the disk. */
  takeForgotten(): readonly number[] {
    return this.#incoming.unconfirmed.takeForgotten();
  }

  /** Publishes with QoS 1; resolves once the broker confirmed it. Throws `BrokerError`, mostly retryable, or the signal's reason. */
  async publish(
    topic: string,
    payload: string | Uint8Array,
    options: { retain?: boolean; headers?: Readonly<Record<string, string>>; signal?: AbortSignal } = {},
  ): Promise<void> {
    if (this.#publishing >= MAX_PUBLISHING) throw brokerBusy(this.name);
    if (topic === '' || /[+#\0]/.test(topic)) {
      throw new BrokerError('the topic cannot be published to', { code: 'broker.topic' });
    }
    this.#publishing++;
    try {
      const connection = await this.#loop.untilConnected(options.signal);
      try {
        await connection.publish(topic, payload, options.retain ?? false, options.signal, options.headers);
      } catch (error) {
        options.signal?.throwIfAborted();
        if (codeOf(error) === 'broker.too_large') throw brokerTooLarge(this.name, error);
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
      connected: this.#loop.current !== undefined,
      sinceMs: this.#loop.sinceMs,
      problem: this.#loop.problem,
      failures: this.#loop.failures,
      published: this.#published,
      ...this.#incoming.counts,
      discarded: this.#discards.count,
      window: { used: this.#loop.current?.unconfirmed ?? 0, size: this.#incoming.windowSize },
      certificateEndsMs: this.#certificateEndsMs,
    };
  }

  async #connect(signal: AbortSignal): Promise<Connection> {
    const { name, spec, clientId, platformCaFile, clock } = this.#options;
    this.#presence = spec.presence === undefined ? undefined : new Presence(spec.presence, clock.wallMs());
    const credentials = await readCredentials(name, spec, platformCaFile, this.#redactor);
    const { endsMs } = credentials;
    this.#certificateEndsMs = endsMs;
    credentials.checkServerIdentity = tellingIdentity((serverEndsMs) => {
      this.#certificateEndsMs = earlierMs(endsMs, serverEndsMs);
    });
    const options = {
      address: this.#address,
      credentials,
      clientId: spec.clientId ?? clientId,
      version: spec.version,
      sessionExpiryMs: spec.sessionExpiryMs,
      ...(this.#presence ? { will: this.#presence.message(false) } : {}),
      clock,
      incoming: this.#incoming,
      discarded: (message: DiscardedMessage) => this.#discards.add(message),
    };
    try {
      return await Connection.open(options, signal);
    } catch (error) {
      // Only the broker's own response selects 3.1.1, and only for this connection.
      if (codeOf(error) !== 'broker.version') throw error;
      return await Connection.open({ ...options, version: 3 }, signal);
    }
  }

  /** Everything of one connection, until it ends. Gives the reason. */
  async #hold(connection: Connection): Promise<unknown> {
    if (this.#loop.signal.aborted) void connection.close();
    // A session that the broker has forgotten holds nothing; of one that was made by others nothing is known.
    if (!connection.sessionPresent) {
      this.#tellForgotten();
      this.#granted = new Map();
    }
    void this.#settle().then(() => this.#tellPresence(connection, true));
    const sinceMs = this.#options.clock.monotonicMs();
    const reason = await connection.closed;
    this.#incoming.ended();
    const { sessionPresent, wasAnswerPending } = connection;
    if (this.#contest.ended({ reason, sinceMs, sessionPresent, wasAnswerPending }))
      this.#options.nameTaken?.(this.name);
    return reason;
  }

  /** After the subscriptions: who sees it may speak at once. */
  async #tellPresence(connection: Connection, isThere: boolean): Promise<void> {
    const said = this.#presence?.message(isThere);
    // Where it fails the connection is over, and the will says it.
    if (said) await connection.publish(said.topic, said.payload, true).catch(() => {});
  }

  #settleSoon(): void {
    queueMicrotask(() => void this.#settle());
  }

  /** Makes the session hold what is wanted, by the difference. What is new comes first, so that nothing falls between. */
  async #settle(): Promise<void> {
    this.#isUnsettled = true;
    const connection = this.#loop.current;
    if (!connection || this.#incoming.isClosed || this.#isSettling) return;
    this.#isSettling = true;
    try {
      while (this.#isUnsettled && !connection.isClosed) {
        this.#isUnsettled = false;
        await this.#askFor(connection);
      }
    } catch {
      // A subscription without a response has ended the connection: the next one settles.
    } finally {
      this.#isSettling = false;
    }
  }

  /** What is refused is not asked for again on this connection, unless something else changes. */
  async #askFor(connection: Connection): Promise<void> {
    const granted = this.#granted ?? new Map<string, 0 | 1 | 2>();
    this.#granted = granted;
    const { fresh, gone } = differenceOf(this.#subscriptions.wanted(), granted);
    const taken = await Promise.all(chunksOf(fresh).map((some) => this.#subscribe(connection, some)));
    for (const filter of gone) {
      await connection.unsubscribe(filter);
      granted.delete(filter);
    }
    if (taken.includes(true) || gone.length > 0) this.#onGranted?.(granted);
  }

  /** `false` where the broker takes none of them. */
  async #subscribe(connection: Connection, filters: readonly [string, 0 | 1 | 2][]): Promise<boolean> {
    const taken = await connection.subscribe(filters);
    for (const [at, [filter, qos]] of filters.entries()) {
      if (taken[at]) this.#granted?.set(filter, qos);
      else {
        this.#tellRefused(filter);
        this.#subscriptions.tellRefused(filter);
      }
    }
    return taken.includes(true);
  }

  /** What came while this client was away is lost: retained messages and later ones alone come. */
  #tellForgotten(): void {
    const { clock, logger, spec } = this.#options;
    const isKept = spec.sessionExpiryMs > 0 && [...(this.#granted?.values() ?? [])].some((qos) => qos > 0);
    if (!isKept) return;
    const count = this.#repeats.note('session_forgotten', clock.monotonicMs());
    const hint =
      'Look at persistence and at the expiry of sessions in the broker, and at session_expiry of the source.';
    const fields = { event: 'broker.session_forgotten', broker: this.name, hint, count };
    logger[count === undefined ? 'debug' : 'warn'](
      fields,
      'a broker has forgotten this client: what it kept for it is lost',
    );
  }

  #tellRefused(filter: string): void {
    const { clock, logger } = this.#options;
    const count = this.#repeats.note(`not_allowed:${filter}`, clock.monotonicMs());
    const hint = 'Give this client the right to read the topic, in the broker.';
    const fields = { event: 'broker.not_allowed', broker: this.name, topic: filter, hint, count };
    logger[count === undefined ? 'debug' : 'error'](fields, 'a broker refuses a subscription');
  }
}

/** Some brokers take eight filters in one packet, and no more. */
const MAX_TOGETHER = 8;

function chunksOf<Item>(items: readonly Item[]): Item[][] {
  const chunks: Item[][] = [];
  for (let from = 0; from < items.length; from += MAX_TOGETHER) chunks.push(items.slice(from, from + MAX_TOGETHER));
  return chunks;
}
