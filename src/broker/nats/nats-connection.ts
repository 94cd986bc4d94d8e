import type { NatsConnection } from '@nats-io/transport-node';
import { earlierMs, peerEndsMs } from '../../base/certificates.ts';
import type { Redactor } from '../../base/redactor.ts';
import { BrokerError } from '../broker-error.ts';
import { readCredentials } from '../credentials.ts';
import type { NatsSpec } from './nats-spec.ts';

const CONNECT_TIMEOUT_MS = 10_000;
const PING_EVERY_MS = 10_000;
const LOGIN_ERRORS = new Set(['AuthorizationError', 'UserAuthenticationExpiredError', 'PermissionViolationError']);

/**
 * Opens one connection to a NATS server. The client never reconnects, because the connection loop does. Returns the
 * earliest certificate expiry as wall-clock time. Rejects with a `BrokerError` or a client error.
 */
export async function openNats(
  { name, spec, platformCaFile }: { name: string; spec: NatsSpec; platformCaFile?: string | undefined },
  clientName: string,
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
    name: clientName,
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
    throw new BrokerError('the NATS server rejected this client', {
      code: 'broker.login',
      retryable: true,
      cause: error,
      hint: "Check username, password_file and creds of the source, and this client's access rights on the server.",
    });
  });
  const { transport } = (connection as unknown as { protocol: { transport: { socket?: object } } }).protocol;
  const serverEndsMs = transport.socket && peerEndsMs(transport.socket);
  return { connection, certificateEndsMs: earlierMs(credentials.endsMs, serverEndsMs) };
}
