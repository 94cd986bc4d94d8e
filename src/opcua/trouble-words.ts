import { crypto_utils } from 'node-opcua-client';
import { Redactor } from '../base/redactor.ts';
import type { Endpoint } from './protocol.ts';
import { passwordOf, UntrustedServer } from './session.ts';

interface Words {
  problem: string;
  hint?: string;
}

/** Status codes of servers, and Node's, that a person can do something about. */
const HINTS: readonly (readonly [code: RegExp, hint: string])[] = [
  [
    /BadIdentityTokenRejected|BadUserAccessDenied|BadIdentityTokenInvalid/,
    'Check username and password_file, and that the server lets this user in.',
  ],
  [
    /BadSecurityPolicyRejected|BadSecurityModeRejected|cannot find endpoint|No suitable endpoint/i,
    'The server does not offer this security: tagferry sources trust lists what it does.',
  ],
  [
    /BadSecurityChecksFailed|BadCertificateUntrusted|BadCertificateUriInvalid|BadCertificateUseNotAllowed/,
    'The server does not trust this gateway yet: let its administrator accept the certificate that tagferry sources trust names.',
  ],
  [/BadTooManySessions|BadTooManySubscriptions/, 'Other clients use all that the server has; it tells who they are.'],
  [
    /ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|ENOTFOUND/,
    'Check address, port and firewall, and that the server runs.',
  ],
];

const MAX_WORDS = 300;

/** Why there is no session, for the one who has to do something about it. */
export function troubleWords(error: unknown, endpoint: Endpoint): Words {
  const { policy, mode } = endpoint;
  if (error instanceof UntrustedServer) {
    const { certificate } = error;
    const thumbprint = crypto_utils.makeSHA1Thumbprint(certificate).toString('hex');
    const problem = `the certificate of the server is not trusted (SHA-1 ${thumbprint})`;
    return { problem, hint: 'Compare it with what the server shows, then trust it: tagferry sources trust.' };
  }
  const raw = error instanceof Error ? error.message : String(error);
  const text = redactorOf(endpoint).redact(raw).replaceAll(/\s+/g, ' ').trim();
  const hint = HINTS.find(([code]) => code.test(text))?.[1];
  const security = /security/i.test(text) ? ` (asked for: ${policy}, ${mode})` : '';
  return { problem: `${text.slice(0, MAX_WORDS)}${security}`, ...(hint === undefined ? {} : { hint }) };
}

/** Knows the password that was sent to the server. */
function redactorOf({ user }: Endpoint): Redactor {
  const redactor = new Redactor();
  try {
    if (user && 'name' in user) redactor.configure([passwordOf(user.passwordFile)]);
  } catch {
    // An unreadable password was not sent.
  }
  return redactor;
}
