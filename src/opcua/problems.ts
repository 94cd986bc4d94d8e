/** Converts library errors, server status codes and Node error codes to readable messages. */
import { crypto_utils } from 'node-opcua-client';
import { UntrustedServer } from './certificates.ts';
import type { Endpoint, Problem } from './protocol.ts';
import { withoutPassword } from './session.ts';

/** Configured values that messages contain. */
interface Place {
  /** Host and port. */
  at: string;
  host: string;
  security: string;
}

const REACHABLE = 'Check address, port and firewall, and that the server is running.';
const MAX_PROBLEM_LENGTH = 300;

/** Problems with a connection or session. The first pattern that matches the error text applies. */
const CONNECTION: readonly (readonly [pattern: RegExp, problem: (place: Place) => string, hint?: string])[] = [
  [/ECONNREFUSED/, ({ at }) => `nothing listens on ${at}`, REACHABLE],
  [/EHOSTUNREACH|ENETUNREACH/, ({ host }) => `${host} is unreachable`, REACHABLE],
  [/ENOTFOUND|EAI_AGAIN/, ({ host }) => `cannot resolve host name ${host}`, 'Check the host name and the name server.'],
  [
    /BadIdentityTokenRejected|BadUserAccessDenied|BadIdentityTokenInvalid/,
    () => 'the server rejected the user',
    "Check username and password_file, and this user's access rights on the server.",
  ],
  [
    /ANONYMOUS user token policy/,
    () => 'the server does not accept anonymous users',
    'Set username: and password_file:, or user_cert: and user_key:.',
  ],
  [
    /(USERNAME|Certificate \(X509\)) user token policy/,
    ({ security }) => `the server does not accept this kind of user with ${security}`,
    'Run `tagferry sources trust` to list the kinds of users and the security policies of the server.',
  ],
  [
    /BadSecurityPolicyRejected|BadSecurityModeRejected|cannot find (an )?endpoint|No suitable endpoint/i,
    ({ security }) => `the server does not support ${security}`,
    'Run `tagferry sources trust` to list the security policies of the server.',
  ],
  [
    /BadSecurityChecksFailed|BadCertificateUntrusted|BadCertificateUriInvalid|BadCertificateUseNotAllowed/,
    () => "the server does not trust this gateway's certificate",
    'Ask the server administrator to trust the certificate that `tagferry sources trust` shows.',
  ],
  [
    /BadTooManySessions/,
    () => 'the server has too many sessions',
    'Close sessions of other clients on the server, or raise its limit.',
  ],
  [
    /BadTooManySubscriptions/,
    () => 'the server has too many subscriptions',
    'Close sessions of other clients on the server, or raise its limit.',
  ],
  [
    /BadTcpEndpointUrlInvalid/,
    () => 'the server has no endpoint at this address',
    'Check the path after host and port.',
  ],
  [/BadServerHalted|BadShutdown/, () => 'the server is shutting down'],
  [
    /ERROR in waiting for data/,
    ({ at }) => `${at} does not respond as an OPC UA server`,
    'Check that the port belongs to an OPC UA server.',
  ],
  [/ETIMEDOUT|timed? ?out|BadTimeout/i, ({ at }) => `${at} does not respond`, REACHABLE],
  [
    /ECONNRESET|EPIPE|premature disconnection|BadConnectionClosed|BadTcpInternalError|socket has been disconnected/i,
    ({ at }) => `${at} closed the connection`,
    'Check the server log, and that the port belongs to an OPC UA server.',
  ],
];

/** Describes an error of a connection, a session or a request. `endpoint`: the server, if it is known. */
export function problemOf(error: unknown, endpoint: Partial<Endpoint>): Problem {
  if (error instanceof UntrustedServer) {
    const thumbprint = crypto_utils.makeSHA1Thumbprint(error.certificate).toString('hex');
    const problem = `server certificate is not trusted (SHA-1 ${thumbprint})`;
    return { problem, hint: 'Compare the thumbprint with the one on the server, then run `tagferry sources trust`.' };
  }
  const text = withoutPassword(textOf(error), endpoint);
  const [, problem, hint] = CONNECTION.find(([pattern]) => pattern.test(text)) ?? [];
  if (problem === undefined) return { problem: text.slice(0, MAX_PROBLEM_LENGTH) };
  const [code] = /\bBad[A-Z]\w+/.exec(text) ?? [];
  const sentence = problem(placeOf(endpoint));
  return { problem: code === undefined ? sentence : `${sentence} (${code})`, ...(hint === undefined ? {} : { hint }) };
}

function placeOf({ url = '', policy = 'None', mode }: Partial<Endpoint>): Place {
  const { hostname: host, port } = URL.parse(url) ?? { hostname: 'the server', port: '' };
  const security = policy === 'None' ? 'security: None' : `security: ${policy}, mode: ${mode}`;
  return { at: url === '' ? host : `${host}:${port || 4840}`, host, security };
}

function textOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.replaceAll(/\s+/g, ' ').trim();
}
