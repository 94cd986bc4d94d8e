/** One NATS server or cluster in tags.yaml. `NatsPull` pulls and acknowledges messages. */
import type { NatsConnection } from '@nats-io/transport-node';
import { earlierMs, peerEndsMs } from '../../base/certificates.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import type { Redactor } from '../../base/redactor.ts';
import { BrokerClient, type BrokerOptions, type BrokerState, type Publishing } from '../broker-client.ts';
import { BrokerError, brokerHungUp, brokerTooLarge, noStream, notAcknowledged, retryable } from '../broker-error.ts';
import type { NatsSpec } from '../broker-spec.ts';
import { readCredentials } from '../credentials.ts';
import { MAX_IN_PROGRESS, NatsPull, type PullOptions } from './nats-pull.ts';

const CONNECT_TIMEOUT_MS = 10_000;
/** A server that responds to no ping is detected after three intervals. */
const PING_EVERY_MS = 4_000;
const CLOSE_MS = 1_000;
const LOGIN_ERRORS = new Set(['AuthorizationError', 'UserAuthenticationExpiredError', 'PermissionViolationError']);
/** Client error names for a missing stream or a lookup that is not permitted. */
const NOT_KEPT = new Set(['StreamNotFoundError', 'JetStreamNotEnabled', 'PermissionViolationError']);

export class NatsBroker extends BrokerClient<NatsConnection, NatsSpec> {
  readonly #pulls = new Set<NatsPull>();

  /** The durable consumer and its pending messages remain. */
  async leave(): Promise<void> {
    await this.stop();
  }

  /** Pulls from a stream, now and on every connection. Returns a function that stops pulling. */
  pull(options: Omit<PullOptions, 'clientId' | 'ackWaitMs'>): () => void {
    const { clientId, clock, spec } = this.options;
    const parts = {
      clock,
      log: this.log,
      redactor: this.redactor,
      counts: this.counts,
      stopping: this.stopping.signal,
    };
    const pull = new NatsPull({ ...options, clientId, ackWaitMs: spec.ackWaitMs }, parts);
    this.#pulls.add(pull);
    if (this.connection) void pull.run(this.connection);
    return () => {
      pull.close();
      this.#pulls.delete(pull);
    };
  }

  /**
   * Publishes a message. Resolves when the stream that stores the subject has acknowledged the message, or when the
   * server has received it if there is no such stream. Throws a `BrokerError`, usually retryable, or the abort reason
   * of the signal.
   */
  async publish(subject: string, payload: string | Uint8Array, options: Publishing = {}): Promise<void> {
    if (options.retain) throw new BrokerError('NATS does not support retained messages', { code: 'broker.retain' });
    const isSubject = subject.split('.').every((level) => /^[^\s\0*>]+$/.test(level));
    if (!isSubject || Buffer.byteLength(subject) > 4_096) {
      throw new BrokerError('invalid subject for publishing', { code: 'broker.topic' });
    }
    await this.withConnection(async (connection) => {
      try {
        await this.#publish(connection, subject, payload, options);
      } catch (error) {
        options.signal?.throwIfAborted();
        if (error instanceof TagferryError) throw error;
        if (/max_payload/.test(messageOf(error))) throw brokerTooLarge(this.name, error);
        if (options.mustKeep && NOT_KEPT.has((error as Error).name)) throw noStream(subject, error);
        throw notAcknowledged(this.name, error);
      }
    }, options.signal);
  }

  async #publish(
    connection: NatsConnection,
    subject: string,
    payload: string | Uint8Array,
    { headers: given = {}, id: msgID, mustKeep, signal, beforeSend }: Publishing,
  ): Promise<void> {
    const { headers: createHeaders } = await import('@nats-io/transport-node');
    const { jetstream, jetstreamManager } = await import('@nats-io/jetstream');
    const headers = createHeaders();
    for (const [name, value] of Object.entries(given)) headers.set(name, value);
    const { streams } = await jetstreamManager(connection, { checkAPI: false });
    // Without a stream, `publish` would wait for a response in vain, and the message would be sent twice. Other errors
    // are inconclusive: a cluster without a leader would lose the message.
    const find = () =>
      streams.find(subject).catch((error: Error) => {
        if (!NOT_KEPT.has(error.name)) throw error;
      });
    const isKept = mustKeep || (await find()) !== undefined;
    signal?.throwIfAborted();
    beforeSend?.();
    if (isKept) await jetstream(connection).publish(subject, payload, { headers, ...(msgID && { msgID }) });
    else connection.publish(subject, payload, { headers });
    if (!isKept) await connection.flush();
  }

  override state(): BrokerState {
    const state = super.state();
    const problem = [...this.#pulls].map((pull) => pull.problem).find((one) => one !== undefined);
    const size = this.#pulls.size > 0 ? MAX_IN_PROGRESS : undefined;
    return { ...state, problem: state.problem ?? problem, window: { used: this.inProgress, size } };
  }

  protected get inProgress(): number {
    return [...this.#pulls].reduce((sum, { inProgress }) => sum + inProgress, 0);
  }

  protected versionOf({ info }: NatsConnection): string {
    return info?.version ?? '';
  }

  protected async connect(): Promise<NatsConnection> {
    const { connection, certificateEndsMs } = await openNats(this.options, this.redactor);
    this.certificateEndsMs = certificateEndsMs;
    return connection;
  }

  protected async serve(connection: NatsConnection): Promise<unknown> {
    for (const pull of this.#pulls) void pull.run(connection);
    return (await connection.closed()) ?? brokerHungUp(false);
  }

  protected async close(connection: NatsConnection): Promise<void> {
    await Promise.race([connection.flush().catch(() => {}), this.options.clock.sleep(CLOSE_MS)]);
    await connection.close();
  }
}

/**
 * Opens one connection to a NATS server. The client never reconnects, because `BrokerClient` does. Returns the earliest
 * certificate expiry as wall-clock time. Rejects with a `BrokerError` or a client error.
 */
export async function openNats(
  {
    name,
    spec,
    clientId,
    platformCaFile,
  }: Pick<BrokerOptions<NatsSpec>, 'name' | 'spec' | 'clientId' | 'platformCaFile'>,
  redactor: Redactor,
): Promise<{ connection: NatsConnection; certificateEndsMs: number | undefined }> {
  // The client is loaded only here.
  const { credsAuthenticator, NatsConnectionImpl, setTransportFactory } = await import('@nats-io/transport-node');
  const { nodeResolveHost } = await import('@nats-io/transport-node/lib/node_transport.js');
  const { BoundedTransport } = await import('./nats-transport.ts');
  const credentials = await readCredentials(name, spec, platformCaFile, redactor);
  const { username: user, password: pass, ca, cert, key, creds } = credentials;
  const urls = spec.servers.map((server) => new URL(server));
  // In NATS addresses, a user name without a password is a token.
  const token = pass === undefined ? { token: user } : { user, pass };
  const isSecure = urls.some(({ protocol }) => protocol === 'tls:') || spec.caFile !== undefined || cert !== undefined;
  const tls = { ...(ca && { ca: [ca].flat().join('\n') }), ...(cert && { cert }), ...(key && { key }) };
  // Same as the client's `connect` function, which does not accept another transport.
  setTransportFactory({ factory: () => new BoundedTransport(), dnsResolveFn: nodeResolveHost });
  const connection = await NatsConnectionImpl.connect({
    servers: urls.map(({ hostname, port }) => `${hostname}:${port || '4222'}`),
    name: clientId,
    reconnect: false,
    timeout: CONNECT_TIMEOUT_MS,
    pingInterval: PING_EVERY_MS,
    maxPingOut: 2,
    noAsyncTraces: true,
    ...(creds === undefined ? {} : { authenticator: credsAuthenticator(new TextEncoder().encode(creds)) }),
    ...(user === undefined ? {} : (token as { token: string })),
    ...(isSecure ? { tls } : {}),
  }).catch((error: Error) => {
    if (!LOGIN_ERRORS.has(error.name)) throw error;
    const hint =
      "Check username, password_file and creds of the source, and this client's access rights on the server.";
    throw retryable('broker.login', 'the NATS server rejected this client', hint, error);
  });
  const { transport } = (connection as unknown as { protocol: { transport: { socket?: object } } }).protocol;
  const serverEndsMs = transport.socket && peerEndsMs(transport.socket);
  return { connection, certificateEndsMs: earlierMs(credentials.endsMs, serverEndsMs) };
}
