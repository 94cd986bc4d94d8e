/**
 * Keeps one connection to a broker for as long as it takes: connects, holds it until it is over, waits a little, connects again. What a
 * connection is and how it is made says whoever has the loop.
 *
 * States: away (connecting, or waiting to), connected, stopped.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Redactor } from '../base/redactor.ts';
import { Repeats } from '../base/repeats.ts';
import { type Backoff, fullJitterMs } from '../base/retry.ts';
import { BrokerError, brokerAway, certificateWords } from './broker-error.ts';

export interface ConnectionLoopOptions<Connection> {
  /** Of the broker. */
  name: string;
  clock: Clock;
  logger: Logger;
  /** Removes the secrets of this connection from the error texts of the server. */
  redactor: Redactor;
  connect(signal: AbortSignal): Promise<Connection>;
  /** All that is done with one connection; resolves with the reason when it is over. */
  hold(connection: Connection): Promise<unknown>;
  /** Fields of a connection, for the log. */
  details(connection: Connection): Readonly<Record<string, unknown>>;
}

const RECONNECT: Backoff = { baseMs: 1_000, capMs: 30_000 };
const RECONNECT_FLOOR_MS = 250;
/** How long whoever needs the connection waits for it. */
const PATIENCE_MS = 5_000;
/** A connection that lasted so long was one: what ends it is a trouble of its own. */
const STEADY_MS = 60_000;

export class ConnectionLoop<Connection> {
  readonly #options: ConnectionLoopOptions<Connection>;
  readonly #stopping = new AbortController();
  readonly #repeats = new Repeats();
  #current: Connection | undefined;
  #running: Promise<void> | undefined;
  #onConnected: (() => void)[] = [];
  /** Whether the log's last word was that the broker is away. */
  #saidAway = true;
  #problem: string | undefined;
  /** Monotonic: since when it is connected, or away. */
  sinceMs: number;
  /** Connections that failed or ended. */
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

  /** Why it is away: a code or a short message. */
  get problem(): string | undefined {
    return this.#current ? undefined : this.#problem;
  }

  /** Nothing is connected anew; whoever holds the connection ends it. */
  stop(reason: Error): void {
    this.#stopping.abort(reason);
  }

  async stopped(): Promise<void> {
    await this.#running;
  }

  /** The connection, now or within some seconds. Rejects with `broker.away`, or the signal's reason. */
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
      try {
        const connection = await connect(signal);
        const fields = { event: 'broker.connected', broker: name, attempts: failures + 1, ...details(connection) };
        logger[this.#saidAway ? 'info' : 'debug'](fields, 'a broker is connected');
        this.#saidAway = false;
        failures = 0;
        const sinceMs = clock.monotonicMs();
        const reason = await this.#hold(connection);
        // Two clients of one name throw each other out many times a minute: that is one trouble, not many.
        if (clock.monotonicMs() - sinceMs >= STEADY_MS) this.#repeats.end('away');
        if (!signal.aborted) this.#tellAway(reason);
      } catch (error) {
        if (signal.aborted) break;
        this.#tellAway(error);
      }
      const wait = fullJitterMs(failures++, RECONNECT, () => clock.random(), RECONNECT_FLOOR_MS);
      await clock.sleep(wait, signal).catch(() => {});
    }
  }

  async #hold(connection: Connection): Promise<unknown> {
    const { clock, hold } = this.#options;
    this.#current = connection;
    this.sinceMs = clock.monotonicMs();
    this.#problem = undefined;
    for (const tell of this.#onConnected.splice(0)) tell();
    try {
      return await hold(connection);
    } finally {
      this.#current = undefined;
      this.sinceMs = clock.monotonicMs();
    }
  }

  #tellAway(reason: unknown): void {
    const error = certificateWords(reason);
    const { name, clock, logger, redactor } = this.#options;
    const text = messageOf(redactor.redact(error instanceof Error ? error.message || error.name : String(error)));
    const code = codeOf(error);
    this.#problem = code === undefined || code === 'broker.certificate' ? text : code;
    this.failures++;
    const count = this.#repeats.note('away', clock.monotonicMs());
    const hint = error instanceof BrokerError ? error.hint : undefined;
    const fields = { event: 'broker.away', broker: name, code, error: text, hint, count };
    logger[count === undefined ? 'debug' : 'warn'](fields, 'a broker is away; it is tried again until it answers');
    this.#saidAway ||= count !== undefined;
  }
}
