/**
 * One NATS server or cluster in tags.yaml, shared by stream sources and publishers. `ConnectionLoop` reconnects;
 * `NatsPull` pulls and acknowledges messages.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { Redactor } from '../../base/redactor.ts';
import type { BrokerOptions, BrokerState, Publishing } from '../broker.ts';
import { BrokerError, brokerHungUp, brokerTooLarge, noStream, notAcknowledged } from '../broker-error.ts';
import { BrokerLog } from '../broker-log.ts';
import { ConnectionLoop } from '../connection-loop.ts';
import { openNats } from './nats-connection.ts';
import { MAX_IN_PROGRESS, NatsPull, type PullOptions } from './nats-pull.ts';
import type { NatsSpec } from './nats-spec.ts';

const STOP_CHECK_MS = 20;
const CLOSE_MS = 1_000;
/** Client error names for a missing stream or a lookup that is not permitted. */
const NOT_KEPT = new Set(['StreamNotFoundError', 'JetStreamNotEnabled', 'PermissionViolationError']);

export class NatsBroker {
  readonly name: string;
  readonly #options: BrokerOptions<NatsSpec>;
  readonly #log: BrokerLog;
  readonly #loop: ConnectionLoop<NatsConnection>;
  readonly #redactor = new Redactor();
  readonly #pulls = new Set<NatsPull>();
  #certificateEndsMs: number | undefined;

  constructor(options: BrokerOptions<NatsSpec>) {
    this.name = options.name;
    this.#options = options;
    this.#log = new BrokerLog(options);
    this.#loop = new ConnectionLoop({
      name: options.name,
      clock: options.clock,
      log: this.#log,
      redactor: this.#redactor,
      connect: () => this.#connect(),
      serve: (connection) => this.#serve(connection),
      version: ({ info }) => info?.version ?? '',
    });
  }

  start(): void {
    this.#loop.start();
  }

  /** Disconnects. The durable consumer and its pending messages remain. */
  async leave(): Promise<void> {
    await this.stop();
  }

  /** Waits up to `budgetMs` for running handlers, so that stored messages are acknowledged. */
  async stop(budgetMs = 2_000): Promise<void> {
    const { clock } = this.#options;
    const deadlineMs = clock.monotonicMs() + budgetMs;
    for (const pull of this.#pulls) pull.close();
    const isBusy = () => this.#loop.current?.isClosed() === false && this.state().window.used > 0;
    while (isBusy() && clock.monotonicMs() < deadlineMs) await clock.sleep(STOP_CHECK_MS);
    await this.#loop.stop(async (connection) => {
      await Promise.race([connection.flush().catch(() => {}), clock.sleep(CLOSE_MS)]);
      await connection.close();
    });
  }

  /** Pulls from a stream, now and on every connection. Call `drop` to stop pulling. */
  pull(options: Omit<PullOptions, 'durable' | 'ackWaitMs'> & { durable?: string | undefined }): NatsPull {
    const { clientId, clock, spec } = this.#options;
    const durable = options.durable ?? clientId;
    const parts = { clock, log: this.#log, redactor: this.#redactor };
    const pull = new NatsPull({ ...options, durable, ackWaitMs: spec.ackWaitMs }, parts);
    this.#pulls.add(pull);
    const connection = this.#loop.current;
    if (connection) void pull.run(connection);
    return pull;
  }

  /** Stops pulling. */
  drop(pull: NatsPull): void {
    pull.close();
    this.#pulls.delete(pull);
  }

  /**
   * Publishes a message. Resolves when the stream that stores the subject has acknowledged the message, or when the
   * server has received it if there is no such stream. Throws a `BrokerError`, usually retryable, or the abort reason
   * of the signal.
   */
  async publish(subject: string, payload: string | Uint8Array, options: Publishing = {}): Promise<void> {
    if (!isSubject(subject)) throw new BrokerError('invalid subject for publishing', { code: 'broker.topic' });
    await this.#loop.publish(async (connection) => {
      try {
        await publish(connection, subject, payload, options);
      } catch (error) {
        options.signal?.throwIfAborted();
        if (error instanceof TagferryError) throw error;
        if (/max_payload/.test(messageOf(error))) throw brokerTooLarge(this.name, error);
        if (options.mustKeep && NOT_KEPT.has((error as Error).name)) throw noStream(subject, error);
        throw notAcknowledged(this.name, error);
      }
    }, options.signal);
  }

  /** `returned`: number of messages returned to the server because they could not be stored. */
  state(): BrokerState & { returned: number } {
    const pulls = [...this.#pulls];
    const sum = (of: (pull: NatsPull) => number) => pulls.reduce((all, pull) => all + of(pull), 0);
    const state = this.#loop.state();
    return {
      ...state,
      problem: state.problem ?? pulls.find(({ problem }) => problem !== undefined)?.problem,
      received: sum(({ counts }) => counts.received),
      redelivered: sum(({ counts }) => counts.redelivered),
      discarded: sum(({ counts }) => counts.discarded),
      returned: sum(({ counts }) => counts.returned),
      window: { used: sum(({ inProgress }) => inProgress), size: pulls.length > 0 ? MAX_IN_PROGRESS : undefined },
      certificateEndsMs: this.#certificateEndsMs,
    };
  }

  async #connect(): Promise<NatsConnection> {
    const { connection, certificateEndsMs } = await openNats(this.#options, this.#options.clientId, this.#redactor);
    this.#certificateEndsMs = certificateEndsMs;
    return connection;
  }

  async #serve(connection: NatsConnection): Promise<unknown> {
    if (this.#loop.signal.aborted) void connection.close();
    for (const pull of this.#pulls) void pull.run(connection);
    return (await connection.closed()) ?? brokerHungUp(false);
  }
}

async function publish(
  connection: NatsConnection,
  subject: string,
  payload: string | Uint8Array,
  { headers: given = {}, id, mustKeep, signal, beforeSend }: Publishing,
): Promise<void> {
  const { headers: createHeaders } = await import('@nats-io/transport-node');
  const { jetstream, jetstreamManager } = await import('@nats-io/jetstream');
  const headers = createHeaders();
  for (const [name, value] of Object.entries(given)) headers.set(name, value);
  const manager = await jetstreamManager(connection, { checkAPI: false });
  // Without a stream, `publish` would wait for a response in vain, and the message would be sent twice.
  const isKept = mustKeep || (await manager.streams.find(subject).catch(notKept)) !== undefined;
  signal?.throwIfAborted();
  beforeSend?.();
  if (isKept) {
    await jetstream(connection).publish(subject, payload, { headers, ...(id === undefined ? {} : { msgID: id }) });
    return;
  }
  connection.publish(subject, payload, { headers });
  await connection.flush();
}

/** Rethrows inconclusive errors: a cluster without a leader would lose the message. */
function notKept(error: Error): undefined {
  if (!NOT_KEPT.has(error.name)) throw error;
}

/** Whether the text consists of dot-separated levels, none of which is empty or a wildcard. */
function isSubject(subject: string): boolean {
  return subject.split('.').every((level) => /^[^\s\0*>]+$/.test(level)) && Buffer.byteLength(subject) <= 4_096;
}
