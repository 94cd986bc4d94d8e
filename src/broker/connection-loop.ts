/**
 * Maintains one connection to a broker: connects, serves the connection until it ends, waits, and reconnects. The
 * owner of the loop defines how a connection is opened and served.
 *
 * States: away (connecting or waiting to reconnect), connected, stopped.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Redactor } from '../base/redactor.ts';
import { Repeats } from '../base/repeats.ts';
import { type Backoff, fullJitterMs } from '../base/retry.ts';
import { BrokerError, brokerAway, certificateError, redactedMessage } from './broker-error.ts';

export interface ConnectionLoopOptions<Connection> {
  /** Name of the broker. */
  name: string;
  clock: Clock;
  logger: Logger;
  /** Removes the secrets of this connection from the server's error messages. */
  redactor: Redactor;
  connect(signal: AbortSignal): Promise<Connection>;
  /** Serves one connection; resolves with the reason when it ends. */
  serve(connection: Connection): Promise<unknown>;
  /** Log fields of a connection. */
  details(connection: Connection): Readonly<Record<string, unknown>>;
}

const RECONNECT: Backoff = { baseMs: 1_000, capMs: 30_000 };
const RECONNECT_FLOOR_MS = 250;
/** Delay after another client took over the session, so that two clients do not disconnect each other continuously. */
const TAKEN_OVER_MS = 60_000;
/** Maximum time that callers wait for a connection, in milliseconds. */
const PATIENCE_MS = 5_000;
/** Duration after which a connection counts as stable, so that its loss is logged as a new failure. */
const STEADY_MS = 60_000;

export class ConnectionLoop<Connection> {
  readonly #options: ConnectionLoopOptions<Connection>;
  readonly #stopping = new AbortController();
  readonly #repeats = new Repeats();
  #current: Connection | undefined;
  #running: Promise<void> | undefined;
  #onConnected: (() => void)[] = [];
  /** Whether the latest log entry reported the broker as disconnected. */
  #reportedAway = true;
  #problem: string | undefined;
  /** Monotonic time of the latest connect or disconnect. */
  sinceMs: number;
  /** Number of failed or lost connections. */
  failures = 0;

  constructor(options: ConnectionLoopOptions<Connection>) {
    this.#options = options;
    this.sinceMs = options.clock.monotonicMs();
  }

  start(): void {
    this.#running ??= this.#run();
  }

  get signal(): AbortSignal {
    return this.#stopping.signal;
  }

  get current(): Connection | undefined {
    return this.#current;
  }

  /** Reason why the broker is disconnected: a code or a short message. */
  get problem(): string | undefined {
    return this.#current ? undefined : this.#problem;
  }

  /** Stops reconnecting. The owner ends the current connection. */
  stop(reason: Error): void {
    this.#stopping.abort(reason);
  }

  async stopped(): Promise<void> {
    await this.#running;
  }

  /**
   * Resolves with the connection, now or within a few seconds. Rejects with `broker.away` or the abort reason of the
   * signal.
   */
  untilConnected(signal: AbortSignal | undefined): Promise<Connection> {
    const { name, clock } = this.#options;
    if (this.#current) return Promise.resolve(this.#current);
    return new Promise((resolve, reject) => {
      const cut = AbortSignal.any([this.#stopping.signal, ...(signal ? [signal] : [])]);
      if (cut.aborted) return reject(cut.reason);
      const over = (settle: () => void) => {
        cancel();
        cut.removeEventListener('abort', onAbort);
        this.#onConnected = this.#onConnected.filter((one) => one !== onConnected);
        settle();
      };
      const onConnected = () => over(() => (this.#current ? resolve(this.#current) : reject(brokerAway(name))));
      const onAbort = () => over(() => reject(cut.reason));
      const cancel = clock.after(PATIENCE_MS, () => over(() => reject(brokerAway(name))));
      cut.addEventListener('abort', onAbort, { once: true });
      this.#onConnected.push(onConnected);
    });
  }

  async #run(): Promise<void> {
    const { name, clock, logger, connect, details } = this.#options;
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted; ) {
      let reason: unknown;
      try {
        const connection = await connect(signal);
        const fields = { event: 'broker.connected', broker: name, attempts: failures + 1, ...details(connection) };
        logger[this.#reportedAway ? 'info' : 'debug'](fields, 'connected to broker');
        this.#reportedAway = false;
        failures = 0;
        const sinceMs = clock.monotonicMs();
        reason = await this.#serve(connection);
        // Two clients with the same ID disconnect each other many times per minute, which is logged as one failure.
        if (clock.monotonicMs() - sinceMs >= STEADY_MS) this.#repeats.end('away');
        if (!signal.aborted) this.#reportUnavailable(reason);
      } catch (error) {
        if (signal.aborted) break;
        this.#reportUnavailable(error);
      }
      const backoffMs = fullJitterMs(failures++, RECONNECT, () => clock.random(), RECONNECT_FLOOR_MS);
      const wait = codeOf(reason) === 'broker.name_taken' ? TAKEN_OVER_MS : backoffMs;
      await clock.sleep(wait, signal).catch(() => {});
    }
  }

  async #serve(connection: Connection): Promise<unknown> {
    const { clock, serve } = this.#options;
    this.#current = connection;
    this.sinceMs = clock.monotonicMs();
    this.#problem = undefined;
    for (const notify of this.#onConnected.splice(0)) notify();
    try {
      return await serve(connection);
    } finally {
      this.#current = undefined;
      this.sinceMs = clock.monotonicMs();
    }
  }

  #reportUnavailable(reason: unknown): void {
    const error = certificateError(reason) ?? reason;
    const { name, clock, logger, redactor } = this.#options;
    const text = redactedMessage(error, redactor);
    const code = codeOf(error);
    this.#problem = code === undefined || code === 'broker.certificate' ? text : code;
    this.failures++;
    const count = this.#repeats.note('away', clock.monotonicMs());
    const hint = error instanceof BrokerError ? error.hint : undefined;
    const fields = { event: 'broker.away', broker: name, code, error: text, hint, count };
    logger[count === undefined ? 'debug' : 'warn'](fields, 'broker unavailable, retrying');
    this.#reportedAway ||= count !== undefined;
  }
}
