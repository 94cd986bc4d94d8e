/**
 * Maintains one connection to a broker: connects, serves the connection until it ends, waits, and reconnects. The
 * owner defines how a connection is opened and served.
 *
 * States: disconnected (connecting or waiting to reconnect), connected, stopped. Publishing waits a few seconds for a
 * connection, then fails so that the caller can retry.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf } from '../base/errors.ts';
import type { Redactor } from '../base/redactor.ts';
import { type Backoff, fullJitterMs } from '../base/retry.ts';
import { BrokerError, brokerAway, brokerClosed, redactedMessage, translated } from './broker-error.ts';
import type { BrokerLog } from './broker-log.ts';

export interface ConnectionLoopOptions<Connection> {
  /** Name of the broker. */
  name: string;
  clock: Clock;
  log: BrokerLog;
  /** Removes the secrets of this connection from the server's error messages. */
  redactor: Redactor;
  connect(signal: AbortSignal): Promise<Connection>;
  /** Serves one connection; resolves with the reason when it ends. */
  serve(connection: Connection): Promise<unknown>;
  /** Protocol or server version of a connection. */
  version(connection: Connection): number | string;
}

const RECONNECT: Backoff = { baseMs: 1_000, capMs: 30_000 };
const RECONNECT_FLOOR_MS = 250;
/** Delay after another client took over the session, so that two clients do not disconnect each other continuously. */
const TAKEN_OVER_MS = 60_000;
/** Maximum time that callers wait for a connection, and the interval at which they check for one, in milliseconds. */
const PATIENCE_MS = 5_000;
const CHECK_MS = 20;
/** Duration after which a connection counts as stable, so that its loss is logged as a new failure. */
const STEADY_MS = 60_000;
const MAX_PUBLISHING = 200;

export class ConnectionLoop<Connection> {
  readonly #options: ConnectionLoopOptions<Connection>;
  readonly #stopping = new AbortController();
  readonly signal = this.#stopping.signal;
  #current: Connection | undefined;
  #running: Promise<void> | undefined;
  #publishing = 0;
  #problem: string | undefined;
  /** Whether the latest log entry reported the broker as disconnected. */
  #reportedAway = true;
  /** Monotonic time of the latest connect or disconnect. */
  #sinceMs: number;
  /** Number of failed or lost connections. */
  #failures = 0;

  constructor(options: ConnectionLoopOptions<Connection>) {
    this.#options = options;
    this.#sinceMs = options.clock.monotonicMs();
  }

  start(): void {
    this.#running ??= this.#run();
  }

  get current(): Connection | undefined {
    return this.#current;
  }

  state() {
    const connected = this.#current !== undefined;
    const problem = connected ? undefined : this.#problem;
    return { name: this.#options.name, connected, sinceMs: this.#sinceMs, problem, failures: this.#failures };
  }

  /** Stops reconnecting. `close` ends the current connection. */
  async stop(close: (connection: Connection) => Promise<void>): Promise<void> {
    this.#stopping.abort(brokerClosed(this.#options.name));
    if (this.#current) await close(this.#current);
    await this.#running;
  }

  /**
   * Sends a message on the current connection, or on the next one if it is established within a few seconds. Throws a
   * `BrokerError`, usually retryable, or the abort reason of the signal.
   */
  async publish(send: (connection: Connection) => Promise<void>, signal: AbortSignal | undefined): Promise<void> {
    const { name } = this.#options;
    if (this.#publishing >= MAX_PUBLISHING) {
      throw new BrokerError(`too many messages are waiting for the broker ${name}`, {
        code: 'broker.busy',
        retryable: true,
      });
    }
    this.#publishing++;
    try {
      await send(await this.#untilConnected(signal));
    } finally {
      this.#publishing--;
    }
  }

  async #untilConnected(signal: AbortSignal | undefined): Promise<Connection> {
    const { name, clock } = this.#options;
    const cut = AbortSignal.any([this.signal, ...(signal ? [signal] : [])]);
    const deadlineMs = clock.monotonicMs() + PATIENCE_MS;
    while (this.#current === undefined) {
      if (clock.monotonicMs() >= deadlineMs) throw brokerAway(name);
      await clock.sleep(CHECK_MS, cut);
    }
    return this.#current;
  }

  async #run(): Promise<void> {
    const { clock, log, connect, serve, version } = this.#options;
    let attempt = 1;
    while (!this.signal.aborted) {
      let reason: unknown;
      try {
        const connection = await connect(this.signal);
        const fields = { event: 'broker.connected', attempts: attempt, version: version(connection) };
        if (this.#reportedAway) log.info(fields, 'connected to broker');
        this.#reportedAway = false;
        attempt = 1;
        this.#change(connection);
        reason = await serve(connection);
        // Two clients with the same ID disconnect each other many times per minute, which is logged as one failure.
        if (clock.monotonicMs() - this.#sinceMs >= STEADY_MS) log.end('broker.away');
      } catch (error) {
        reason = error;
      }
      if (this.#current) this.#change(undefined);
      if (this.signal.aborted) break;
      this.#reportUnavailable(reason);
      const backoffMs = fullJitterMs(attempt - 1, RECONNECT, () => clock.random(), RECONNECT_FLOOR_MS);
      const waitMs = codeOf(reason) === 'broker.name_taken' ? TAKEN_OVER_MS : backoffMs;
      await clock.sleep(waitMs, this.signal).catch(() => {});
      attempt++;
    }
  }

  #change(connection: Connection | undefined): void {
    this.#current = connection;
    this.#sinceMs = this.#options.clock.monotonicMs();
  }

  #reportUnavailable(reason: unknown): void {
    const { log, redactor } = this.#options;
    const error = translated(reason);
    const text = redactedMessage(error, redactor);
    const code = codeOf(error);
    this.#problem = code === undefined || code === 'broker.certificate' ? text : code;
    this.#failures++;
    const hint = error instanceof BrokerError ? error.hint : undefined;
    const isLogged = log.report({ event: 'broker.away', code, error: text, hint }, 'broker unavailable, retrying');
    this.#reportedAway ||= isLogged;
  }
}
