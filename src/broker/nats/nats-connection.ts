/**
 * One connection to a NATS server. The NATS client is loaded only here. It never reconnects, because the connection
 * loop does.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import { earlierMs, peerEndsMs } from '../../base/certificates.ts';
import type { Redactor } from '../../base/redactor.ts';
import { BrokerError } from '../broker-error.ts';
import { readCredentials } from '../credentials.ts';
import type { NatsSpec } from './nats-spec.ts';

const CONNECT_TIMEOUT_MS = 10_000;
const PING_EVERY_MS = 10_000;

export interface OpenedNats {
  connection: NatsConnection;
  /** Earliest certificate expiry, as wall-clock time. */
  certificateEndsMs: number | undefined;
}

/** Rejects with a `BrokerError` or a client error. */
export async function openNats(
  name: string,
  clientName: string,
  spec: NatsSpec,
  platformCaFile: string | undefined,
  redactor: Redactor,
): Promise<OpenedNats> {
  const [{ credsAuthenticator, NatsConnectionImpl, setTransportFactory }, { nodeResolveHost }, { BoundedTransport }] =
    await Promise.all([
      import('@nats-io/transport-node'),
      import('@nats-io/transport-node/lib/node_transport.js'),
      import('./bounded-transport.ts'),
    ]);
  const credentials = await readCredentials(name, spec, platformCaFile, redactor);
  const { ca, cert, key } = credentials;
  const urls = spec.servers.map((server) => new URL(server));
  const login = urls.find(({ username }) => username !== '');
  const username = credentials.username ?? (login && decodeURIComponent(login.username));
  const password = credentials.password ?? (login?.password ? decodeURIComponent(login.password) : undefined);
  const isSecure = urls.some(({ protocol }) => protocol === 'tls:') || spec.caFile !== undefined || cert !== undefined;
  // Same as the client's `connect` function, which does not accept another transport.
  setTransportFactory({ factory: () => new BoundedTransport(), dnsResolveFn: nodeResolveHost });
  const connection = await NatsConnectionImpl.connect({
    servers: urls.map(({ hostname, port }) => `${hostname}:${port || '4222'}`),
    name: clientName,
    reconnect: false,
    timeout: CONNECT_TIMEOUT_MS,
    pingInterval: PING_EVERY_MS,
    maxPingOut: 2,
    noAsyncTraces: true,
    ...(credentials.creds === undefined
      ? {}
      : { authenticator: credsAuthenticator(new TextEncoder().encode(credentials.creds)) }),
    // In NATS addresses, a user name without a password is a token.
    ...(username === undefined
      ? {}
      : password === undefined
        ? { token: username }
        : { user: username, pass: password }),
    ...(isSecure
      ? { tls: { ...(ca && { ca: [ca].flat().join('\n') }), ...(cert && { cert }), ...(key && { key }) } }
      : {}),
  }).catch((error: unknown) => {
    throw translated(error);
  });
  const { transport } = (connection as unknown as { protocol: { transport: unknown } }).protocol;
  const server = transport instanceof BoundedTransport ? transport.socket : undefined;
  return { connection, certificateEndsMs: earlierMs(credentials.endsMs, server && peerEndsMs(server)) };
}

/** Converts errors with a known fix to the agent's error codes. The client's messages contain no credentials. */
function translated(error: unknown): unknown {
  const { name } = error as { name?: string };
  if (
    name === 'AuthorizationError' ||
    name === 'UserAuthenticationExpiredError' ||
    name === 'PermissionViolationError'
  ) {
    return new BrokerError('the NATS server rejected this client', {
      code: 'broker.login',
      retryable: true,
      cause: error,
      hint: "Check username, password_file and creds of the source, and this client's access rights on the server.",
    });
  }
  return error;
}
