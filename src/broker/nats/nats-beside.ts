import type { NatsConnection } from '@nats-io/transport-node';
import type { Clock } from '../../base/clock.ts';
import { type Logger, silentLogger } from '../../base/logger.ts';
import { Redactor } from '../../base/redactor.ts';
import { brokerClosed } from '../broker-error.ts';
import { ConnectionLoop } from '../connection-loop.ts';
import type { Listening } from '../listening.ts';
import { openNats } from './nats-connection.ts';
import type { NatsSpec } from './nats-spec.ts';
import { asSubject, asTopic } from './subject.ts';

export interface BesideOptions {
  name: string;
  spec: NatsSpec;
  clock: Clock;
  logger?: Logger;
  platformCaFile?: string | undefined;
}

type Handler = Parameters<Listening['subscribe']>[1];

/** Last messages that are read from a stream at once. */
const MAX_LAST = 5_000;
const LAST_MS = 1_000;

/**
 * Listens to subjects beside the agent: what is sent now, and the last message that a stream keeps of each subject. No durable consumer is
 * touched. Subjects are told as topics (`asTopic`).
 */
export class NatsBeside implements Listening {
  readonly #subscriptions: { subject: string; handler: Handler; refused: () => void }[] = [];
  readonly #loop: ConnectionLoop<NatsConnection>;
  readonly #redactor = new Redactor();
  readonly #options: BesideOptions;

  constructor(options: BesideOptions) {
    const { name, clock, logger = silentLogger() } = options;
    this.#options = options;
    this.#loop = new ConnectionLoop({
      name,
      clock,
      logger,
      redactor: this.#redactor,
      connect: () => this.#connect(),
      hold: (connection) => this.#hold(connection),
      details: () => ({}),
    });
  }

  subscribe(filter: string, handler: Handler, options: { refused?(): void } = {}): void {
    this.#subscriptions.push({ subject: asSubject(filter), handler, refused: () => options.refused?.() });
  }

  start(): void {
    this.#loop.start();
  }

  state(): { connected: boolean; problem: string | undefined } {
    return { connected: this.#loop.current !== undefined, problem: this.#loop.problem };
  }

  async leave(): Promise<void> {
    this.#loop.stop(brokerClosed(this.#options.name));
    await this.#loop.current?.close();
    await this.#loop.stopped();
  }

  async #connect(): Promise<NatsConnection> {
    const { name, spec, clock, platformCaFile } = this.#options;
    const clientName = `tagferry-look-${Math.floor(clock.random() * 1e9).toString(36)}`;
    return (await openNats(name, clientName, spec, platformCaFile, this.#redactor)).connection;
  }

  async #hold(connection: NatsConnection): Promise<unknown> {
    if (this.#loop.signal.aborted) void connection.close();
    for (const { subject, handler, refused } of this.#subscriptions) {
      connection.subscribe(subject, {
        callback: (error, message) => {
          if (error) refused();
          else void handler({ topic: asTopic(message.subject), payload: message.data });
        },
      });
      // Without a stream, or the right to read it, there is only what is sent now.
      void this.#readLast(connection, subject, handler).catch(() => {});
    }
    return (await connection.closed()) ?? brokerClosed(this.#options.name);
  }

  async #readLast(connection: NatsConnection, subject: string, handler: Handler): Promise<void> {
    const { jetstream, jetstreamManager } = await import('@nats-io/jetstream');
    const manager = await jetstreamManager(connection, { checkAPI: false });
    const stream = this.#options.spec.stream ?? (await manager.streams.find(subject));
    const last = { deliver_policy: 'last_per_subject', filter_subjects: subject } as const;
    const consumer = await jetstream(connection).consumers.get(stream, last);
    const kept = await consumer.fetch({ max_messages: MAX_LAST, expires: LAST_MS });
    for await (const { subject: its, data } of kept) await handler({ topic: asTopic(its), payload: data });
  }
}
