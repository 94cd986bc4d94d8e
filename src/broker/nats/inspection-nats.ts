import type { NatsConnection } from '@nats-io/transport-node';
import type { Clock } from '../../base/clock.ts';
import { codeOf } from '../../base/errors.ts';
import { Redactor } from '../../base/redactor.ts';
import { inspectionName } from '../broker.ts';
import { redactedMessage, translated } from '../broker-error.ts';
import type { InspectionClient } from '../subscriptions.ts';
import { openNats } from './nats-connection.ts';
import type { NatsSpec } from './nats-spec.ts';

type Subscription = Parameters<InspectionClient['subscribe']>;

/** Maximum number of latest messages read from a stream. */
const MAX_LAST = 5_000;
const LAST_MS = 1_000;

/**
 * Receives messages on subjects independently of the agent: new messages, and the last message per subject in a stream.
 * Does not use a durable consumer. Connects once.
 */
export class InspectionNats implements InspectionClient {
  readonly #options: { name: string; spec: NatsSpec; clock: Clock; platformCaFile?: string | undefined };
  readonly #subscriptions: Subscription[] = [];
  #connecting: Promise<void> | undefined;
  #connection: NatsConnection | undefined;
  #problem: string | undefined;

  constructor(options: { name: string; spec: NatsSpec; clock: Clock; platformCaFile?: string | undefined }) {
    this.#options = options;
  }

  subscribe(...subscription: Subscription): void {
    this.#subscriptions.push(subscription);
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
    const redactor = new Redactor();
    try {
      const { connection } = await openNats(this.#options, inspectionName(this.#options.clock), redactor);
      this.#connection = connection;
      for (const [subject, handler, options] of this.#subscriptions) {
        connection.subscribe(subject, {
          callback: (error, { subject: topic, data: payload }) => {
            if (error) options?.rejected?.();
            else void handler({ topic, payload });
          },
        });
        // Without a stream or the permission to read it, only new messages are listed.
        this.#readLast(connection, subject, handler).catch(() => {});
      }
    } catch (error) {
      this.#problem = codeOf(translated(error)) ?? redactedMessage(error, redactor);
    }
  }

  async #readLast(connection: NatsConnection, subject: string, handler: Subscription[1]): Promise<void> {
    const { jetstream, jetstreamManager } = await import('@nats-io/jetstream');
    const manager = await jetstreamManager(connection, { checkAPI: false });
    const stream = this.#options.spec.stream ?? (await manager.streams.find(subject));
    const last = { deliver_policy: 'last_per_subject', filter_subjects: subject } as const;
    const consumer = await jetstream(connection).consumers.get(stream, last);
    const messages = await consumer.fetch({ max_messages: MAX_LAST, expires: LAST_MS });
    for await (const message of messages) await handler({ topic: message.subject, payload: message.data });
  }
}
