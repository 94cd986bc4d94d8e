/**
 * One broker in tags.yaml, shared by sources and publishers. Connects, serves the connection until it ends, waits, and
 * reconnects. `Broker` (MQTT) and `NatsBroker` define how a connection is opened, served and closed.
 *
 * States: disconnected (connecting or waiting to reconnect), connected, stopped. A connection that ends within seconds
 * counts as a failed attempt, so that the reconnect delay increases if the broker keeps closing connections.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf, SourceStopped } from '../base/errors.ts';
import { plain } from '../base/foreign-text.ts';
import type { Logger } from '../base/logger.ts';
import { Redactor } from '../base/redactor.ts';
import { Repeats } from '../base/repeats.ts';
import { type Backoff, fullJitterMs } from '../base/retry.ts';
import { BrokerError, redactedMessage, retryable, translated } from './broker-error.ts';
import type { BrokerSpec } from './broker-spec.ts';
import { BOUNDS, type ExceededBound } from './limits.ts';

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
  /** Reason why no messages are received. */
  problem: string | undefined;
  hint: string | undefined;
  /** Number of failed or lost connections. */
  failures: number;
  received: number;
  /** Number of redelivered messages. */
  redelivered: number;
  /** Number of messages discarded because they exceeded a size limit. */
  discarded: number;
  /** Unacknowledged messages. */
  window: { used: number; size: number | undefined };
  /** Earliest certificate expiry, as wall-clock time. */
  certificateEndsMs: number | undefined;
}

/** Options for a published message. */
export interface Publishing {
  retain?: boolean;
  /** MQTT 5 user properties, or NATS headers. */
  headers?: Readonly<Record<string, string>>;
  /** Message ID. A NATS stream stores only one message per ID. */
  id?: string;
  /** NATS: fails if no stream stores the subject, because offline subscribers would miss the message. */
  mustKeep?: boolean;
  signal?: AbortSignal;
  /** Called while connected, immediately before the message is sent. The message is not sent if this throws. */
  beforeSend?: () => void;
}

const RECONNECT: Backoff = { baseMs: 1_000, capMs: 30_000 };
const RECONNECT_FLOOR_MS = 250;
/** Delay after another client took over the session, so that two clients do not disconnect each other continuously. */
const TAKEN_OVER_MS = 60_000;
/** Minimum duration of a connection that does not count as a failed attempt, in milliseconds. */
const SHORT_MS = 5_000;
/** Minimum duration of a connection for its loss to be logged as a new failure, in milliseconds. */
export const STEADY_MS = 60_000;
/** Maximum time that publishers wait for a connection, and the interval at which they check for one, in milliseconds. */
const PATIENCE_MS = 5_000;
const CHECK_MS = 20;
const SHOWN_TOPIC = 100;
const RUNNING = 'Check that the broker is running and that its address in tags.yaml is correct.';

export abstract class BrokerClient<Connection, Spec> {
  readonly name: string;
  protected readonly options: BrokerOptions<Spec>;
  /** Removes the secrets of the connection from the server's error messages. */
  protected readonly redactor = new Redactor();
  protected readonly counts = { received: 0, redelivered: 0, discarded: 0 };
  /** Aborted when the client stops: no more messages are accepted. */
  protected readonly stopping = new AbortController();
  protected connection: Connection | undefined;
  protected certificateEndsMs: number | undefined;
  /** Number of consecutive failed attempts to connect. */
  protected attempt = 0;
  #running: Promise<void> | undefined;
  readonly #repeats = new Repeats();
  #problem: string | undefined;
  #hint: string | undefined;
  /** Whether the latest log entry reported the broker as disconnected. */
  #isReportedAway = true;
  #sinceMs: number;
  #failures = 0;

  constructor(options: BrokerOptions<Spec>) {
    this.name = options.name;
    this.options = options;
    this.#sinceMs = options.clock.monotonicMs();
  }

  protected abstract connect(signal: AbortSignal): Promise<Connection>;
  /** Serves one connection. Resolves with the reason when it ends. */
  protected abstract serve(connection: Connection): Promise<unknown>;
  protected abstract close(connection: Connection): Promise<void>;
  /** Protocol or server version of a connection. */
  protected abstract versionOf(connection: Connection): number | string;
  /** Address in the configuration, for example `10.0.0.5 port 1883`. */
  protected abstract get place(): string;
  /** Number of messages whose handlers are running. */
  protected abstract get inProgress(): number;
  abstract publish(topic: string, payload: string | Uint8Array, options?: Publishing): Promise<void>;

  /** Connects, and reconnects until the client is stopped. */
  start(): void {
    this.#running ??= this.#run();
  }

  /**
   * Waits up to `budgetMs` for running handlers, so that stored messages are acknowledged. Then closes the connection.
   * Unacknowledged and newly published messages are delivered at the next startup.
   */
  async stop(budgetMs = 2_000): Promise<void> {
    const { clock } = this.options;
    const deadlineMs = clock.monotonicMs() + budgetMs;
    this.stopping.abort(retryable('broker.closed', `the connection to the broker ${this.name} is closed`));
    while (this.connection && this.inProgress > 0 && clock.monotonicMs() < deadlineMs) await clock.sleep(CHECK_MS);
    if (this.connection) await this.close(this.connection);
    await this.#running;
  }

  /** Stops the client when tags.yaml no longer contains the broker. A NATS consumer and its messages remain. */
  async leave(): Promise<void> {
    await this.stop();
  }

  /** Time of the latest connection, or `undefined` if there is none. */
  get connectedSinceMs(): number | undefined {
    return this.connection === undefined ? undefined : this.#sinceMs;
  }

  state(): BrokerState {
    const connected = this.connection !== undefined;
    return {
      name: this.name,
      connected,
      sinceMs: this.#sinceMs,
      problem: connected ? undefined : this.#problem,
      hint: connected ? undefined : this.#hint,
      failures: this.#failures,
      ...this.counts,
      window: { used: this.inProgress, size: undefined },
      certificateEndsMs: this.certificateEndsMs,
    };
  }

  /**
   * Returns the current connection, or the next one if it is established within a few seconds. Throws a retryable
   * `BrokerError`, or the abort reason of the signal.
   */
  protected async connected(signal: AbortSignal | undefined): Promise<Connection> {
    const { clock } = this.options;
    const cut = AbortSignal.any([this.stopping.signal, ...(signal ? [signal] : [])]);
    const deadlineMs = clock.monotonicMs() + PATIENCE_MS;
    while (this.connection === undefined) {
      if (clock.monotonicMs() >= deadlineMs)
        throw retryable('broker.away', `the broker ${this.name} is not connected`, RUNNING);
      await clock.sleep(CHECK_MS, cut);
    }
    return this.connection;
  }

  /**
   * Logs a problem, with decreasing frequency while it is repeated. `key`: identifies the problem, by default its event.
   * Returns whether this repetition was logged.
   */
  protected report(
    fields: { event: string; [field: string]: unknown },
    message: string,
    key = fields.event,
    level: 'warn' | 'error' = 'warn',
  ): boolean {
    const { clock, logger } = this.options;
    const count = this.#repeats.note(key, clock.monotonicMs());
    logger[count === undefined ? 'debug' : level]({ ...fields, broker: this.name, count }, message);
    return count !== undefined;
  }

  /** Ends a problem, so that its next occurrence is logged. */
  protected endReport(key: string): void {
    this.#repeats.end(key);
  }

  /** Ends a problem, and logs its end if the problem was reported. */
  protected reportOver(key: string, fields: { event: string; [field: string]: unknown }, message: string): void {
    const { clock, logger } = this.options;
    const over = this.#repeats.over(key, clock.monotonicMs());
    if (over !== undefined) logger.info({ ...fields, broker: this.name, ...over }, message);
  }

  /** Counts and reports a message over a size limit. `bytes`: size of the whole message. */
  protected reportDiscarded(topic: string, bytes: number, bound: ExceededBound): void {
    this.counts.discarded++;
    const fields = { topic: plain(topic.slice(0, SHOWN_TOPIC)), bytes, bound, max_bytes: BOUNDS[bound] };
    this.report({ event: 'broker.discarded', ...fields }, 'message too large, discarded', `discarded ${bound}`);
  }

  /** Reports a message that was rejected by its handler. Ignores rejections during a shutdown or reload. */
  protected reportRejected(topic: string, error: unknown): void {
    if (error instanceof SourceStopped) return;
    const code = codeOf(error);
    const fields = { event: 'broker.refused', topic, code };
    this.report(fields, 'message not stored yet, not acknowledged', `refused:${code}`);
  }

  async #run(): Promise<void> {
    const { clock } = this.options;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      let reason: unknown;
      try {
        const connection = await this.connect(signal);
        const version = this.versionOf(connection);
        const fields = { event: 'broker.connected', attempts: this.attempt + 1, version, broker: this.name };
        if (this.#isReportedAway) this.options.logger.info(fields, 'connected to broker');
        this.#isReportedAway = false;
        this.#change(connection);
        if (signal.aborted) void this.close(connection);
        reason = await this.serve(connection);
      } catch (error) {
        reason = error;
      }
      const wasConnected = this.connection !== undefined;
      const lastedMs = wasConnected ? clock.monotonicMs() - this.#sinceMs : 0;
      if (wasConnected) this.#change(undefined);
      if (signal.aborted) break;
      if (lastedMs >= SHORT_MS) this.attempt = 0;
      // Two clients with the same ID disconnect each other many times per minute, which is logged as one failure.
      if (lastedMs >= STEADY_MS) this.endReport('broker.away');
      this.#reportAway(reason, wasConnected);
      const backoffMs = fullJitterMs(this.attempt++, RECONNECT, () => clock.random(), RECONNECT_FLOOR_MS);
      const isTakenOver = codeOf(reason) === 'broker.name_taken';
      if (isTakenOver) this.options.nameTaken?.(this.name);
      await clock.sleep(isTakenOver ? TAKEN_OVER_MS : backoffMs, signal).catch(() => {});
    }
  }

  #change(connection: Connection | undefined): void {
    this.connection = connection;
    this.#sinceMs = this.options.clock.monotonicMs();
  }

  #reportAway(reason: unknown, wasConnected: boolean): void {
    const error = translated(reason);
    const text = redactedMessage(error, this.redactor);
    const code = codeOf(error);
    // The messages of system errors differ, and can be empty for a host with several addresses.
    const isForeign = !(error instanceof BrokerError);
    this.#problem = isForeign && !wasConnected ? `failed to connect to ${this.place}: ${code ?? text}` : text;
    this.#failures++;
    this.#hint = error instanceof BrokerError ? error.hint : undefined;
    const fields = { event: 'broker.away', code, error: text, hint: this.#hint };
    const isLogged = this.report(fields, 'broker unavailable, retrying');
    this.#isReportedAway ||= isLogged;
  }
}
