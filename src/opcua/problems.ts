/** Converts library errors, server status codes and Node error codes to readable messages. */
import * as ua from 'node-opcua-client';
import { pemEndsMs } from '../base/certificates.ts';
import { messageOf } from '../base/errors.ts';
import { Redactor } from '../base/redactor.ts';
import type { Endpoint, Problem } from './protocol.ts';
import { passwordOf, UntrustedServer } from './session.ts';
import { NodeRejection } from './values.ts';

const MAX_LENGTH = 300;
const REACHABLE = 'Check address, port and firewall, and that the server is running.';
const LIMITS = 'Close sessions of other clients on the server, or raise its limit.';
const LISTED = 'Run `tagferry sources trust SOURCE` to list the user types and security policies of the server.';

/**
 * Problems with a connection or session. The first pattern that matches the error text applies. `AT` is replaced with
 * host and port, `HOST` with the host, and `SECURITY` with the security settings.
 */
const PROBLEMS: readonly (readonly [pattern: RegExp, problem: string, hint?: string])[] = [
  [/BadSession(IdInvalid|Closed|NotActivated)|session closed by the server/, 'the server closed the session'],
  [/subscription was closed|BadNoSubscription|BadSubscriptionIdInvalid/, 'the server closed the subscription'],
  [/ECONNREFUSED/, 'AT refused the connection', REACHABLE],
  [/EHOSTUNREACH|ENETUNREACH/, 'HOST is unreachable', REACHABLE],
  [/ENOTFOUND|EAI_AGAIN/, 'cannot resolve host name HOST', 'Check the host name and the name server.'],
  [
    /BadIdentityTokenRejected|BadUserAccessDenied|BadIdentityTokenInvalid/,
    'the server rejected the user',
    "Check username and password_file, and this user's access rights on the server.",
  ],
  [
    /ANONYMOUS user token policy/,
    'the server does not accept anonymous users',
    'Set username: and password_file:, or user_cert: and user_key:.',
  ],
  [
    /(USERNAME|Certificate \(X509\)) user token policy/,
    'the server does not accept this user type with SECURITY',
    LISTED,
  ],
  [
    /BadSecurityPolicyRejected|BadSecurityModeRejected|cannot find (an )?endpoint|No suitable endpoint/i,
    'the server does not support SECURITY',
    LISTED,
  ],
  [
    /BadSecurityChecksFailed|BadCertificateUntrusted|BadCertificateUriInvalid|BadCertificateUseNotAllowed/,
    "the server does not trust this gateway's certificate",
    'Ask the server administrator to trust the certificate that `tagferry sources trust SOURCE` shows.',
  ],
  [
    /BadCertificateTimeInvalid/,
    "the server considers this gateway's certificate expired or not valid yet",
    'Check the clocks of the gateway and the server.',
  ],
  [
    /BadTooManySessions|BadMaxConnectionsReached|BadTcpNotEnoughResources/,
    'the server has too many sessions or connections',
    LIMITS,
  ],
  [/BadTooManySubscriptions/, 'the server has too many subscriptions', LIMITS],
  [/BadTcpEndpointUrlInvalid/, 'the server has no endpoint at this address', 'Check the path after host and port.'],
  [/BadServerHalted|BadShutdown/, 'the server is shutting down'],
  [/ERROR in waiting for data/, 'AT is not an OPC UA server', 'Check that the port belongs to an OPC UA server.'],
  [/ETIMEDOUT|timed? ?out|BadTimeout/i, 'AT does not respond', REACHABLE],
  [
    /ECONNRESET|EPIPE|premature disconnection|BadConnectionClosed|BadTcpInternalError|socket has been disconnected|connection (break|lost|aborted)|Secure ?Channel|session has been closed/i,
    'AT closed the connection',
    'Check the server log, and that the port belongs to an OPC UA server.',
  ],
  [/^serviceResult.*Bad/, 'the server rejected a request'],
];

/** Describes an error of a connection, a session or a request. `endpoint`: the server, if it is known. */
export function problemOf(error: unknown, endpoint: Partial<Endpoint>): Problem {
  if (error instanceof UntrustedServer) {
    const thumbprint = ua.crypto_utils.makeSHA1Thumbprint(error.certificate).toString('hex');
    const endsMs = pemEndsMs(error.certificate);
    const until = endsMs === undefined ? '' : `, valid until ${new Date(endsMs).toISOString().slice(0, 10)}`;
    const problem = `server certificate is not trusted (SHA-1 ${thumbprint}${until})`;
    return {
      problem,
      hint: 'Compare the thumbprint with the one on the server, then run `tagferry sources trust SOURCE`.',
    };
  }
  if (error instanceof NodeRejection) return { problem: error.message };
  const text = withoutPassword(messageOf(error), endpoint).replaceAll(/\s+/g, ' ').trim();
  const [, problem, hint] = PROBLEMS.find(([pattern]) => pattern.test(text)) ?? [];
  const [code] = /\bBad[A-Z]\w+/.exec(text) ?? [];
  if (problem === undefined) return { problem: text.slice(0, MAX_LENGTH) };
  const { url = '', policy = 'None', mode } = endpoint;
  const { hostname: host, port } = URL.parse(url) ?? { hostname: 'the server', port: '' };
  const sentence = problem
    .replace('AT', url === '' ? host : `${host}:${port || 4840}`)
    .replace('HOST', host)
    .replace('SECURITY', policy === 'None' ? 'security: None' : `security: ${policy}, mode: ${mode}`);
  return { problem: code === undefined ? sentence : `${sentence} (${code})`, ...(hint === undefined ? {} : { hint }) };
}

/** Removes the password that was sent to the server, because servers can quote it. */
function withoutPassword(text: string, { user }: Partial<Endpoint>): string {
  const redactor = new Redactor();
  try {
    if (user && 'name' in user) redactor.configure([passwordOf(user)]);
  } catch {
    // An unreadable password was not sent.
  }
  return redactor.redact(text);
}
