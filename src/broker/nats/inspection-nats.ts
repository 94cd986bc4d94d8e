import type { NatsConnection } from '@nats-io/transport-node';
import type { Clock } from '../../base/clock.ts';
import { codeOf } from '../../base/errors.ts';
import { Redactor } from '../../base/redactor.ts';
import { certificateError, redactedMessage } from '../broker-error.ts';
import type { InspectionClient, SubscribeOptions } from '../subscriptions.ts';
import { openNats } from './nats-connection.ts';
import type { NatsSpec } from './nats-spec.ts';

export interface InspectionOptions {
  name: string;
  spec: NatsSpec;
  clock: Clock;
  platformCaFile?: string | undefined;
}

type Handler = Parameters<InspectionClient['subscribe']>[1];

/** Maximum number of latest messages read from a stream. */
const MAX_LAST = 5_000;
const LAST_MS = 1_000;

/**
 * Receives messages on subjects independently of the agent: new messages, and the last message per subject in a stream.
 * Does not use a durable consumer. Connects once.
 */
export class InspectionNats implements InspectionClient {
  readonly #options: InspectionOptions;
  readonly #subscriptions: { subject: string; handler: Handler; options: SubscribeOptions }[] = [];
  readonly #redactor = new Redactor();
  #connecting: Promise<void> | undefined;
  #connection: NatsConnection | undefined;
  #problem: string | undefined;

  constructor(options: InspectionOptions) {
    this.#options = options;
  }

  subscribe(subject: string, handler: Handler, options: SubscribeOptions = {}): void {
    this.#subscriptions.push({ subject, handler, options });
  }

  start(): void {
    this.#connecting ??= this.#connect();
  }

  state(): { connected: boolean; problem: string | undefined } {
    return { connected: this.#connection?.isClosed() === false, problem: this.#problem };
  }

  async leave(): Promise<void> {
    await this.#connecting;
    await this.#connection?.close();
  }

  async #connect(): Promise<void> {
    const { name, spec, clock, platformCaFile } = this.#options;
    const clientName = `tagferry-look-${Math.floor(clock.random() * 1e9).toString(36)}`;
    try {
      const { connection } = await openNats(name, clientName, spec, platformCaFile, this.#redactor);
      this.#connection = connection;
      for (const one of this.#subscriptions) this.#listen(connection, one.subject, one.handler, one.options);
    } catch (error) {
      const translated = certificateError(error) ?? error;
      this.#problem = codeOf(translated) ?? redactedMessage(translated, this.#redactor);
    }
  }

  #listen(connection: NatsConnection, subject: string, handler: Handler, options: SubscribeOptions): void {
    connection.subscribe(subject, {
      callback: (error, message) => {
        if (error) options.rejected?.();
        else void handler({ topic: message.subject, payload: message.data });
      },
    });
    // Without a stream or the permission to read it, only new messages are listed.
    this.#readLast(connection, subject, handler).catch(() => {});
  }

  async #readLast(connection: NatsConnection, subject: string, handler: Handler): Promise<void> {
    const { jetstream, jetstreamManager } = await import('@nats-io/jetstream');
    const manager = await jetstreamManager(connection, { checkAPI: false });
    const stream = this.#options.spec.stream ?? (await manager.streams.find(subject));
    const last = { deliver_policy: 'last_per_subject', filter_subjects: subject } as const;
    const consumer = await jetstream(connection).consumers.get(stream, last);
    const messages = await consumer.fetch({ max_messages: MAX_LAST, expires: LAST_MS });
    for await (const message of messages) await handler({ topic: message.subject, payload: message.data });
  }
}
