import { codeOf, messageOf, PlatformError } from '../base/errors.ts';

/** Why there was no answer. Each is worth another try: what a person has to mend stands in the hint. */
type TransportCode =
  | 'platform.connection_refused'
  | 'platform.connection_reset'
  | 'platform.timeout'
  | 'platform.dns'
  | 'platform.unreachable'
  | 'platform.tls'
  | 'platform.proxy'
  | 'platform.aborted'
  | 'platform.transport';

interface Meaning {
  code: TransportCode;
  what: string;
  hint?: string;
}

const REFUSED: Meaning = {
  code: 'platform.connection_refused',
  what: 'refused the connection',
  hint: 'Check host and port of PLATFORM_URL: nobody listens there, or a firewall stands before it.',
};
const RESET: Meaning = { code: 'platform.connection_reset', what: 'ended the connection before it answered' };
const TIMEOUT: Meaning = { code: 'platform.timeout', what: 'did not answer in time' };
const DNS: Meaning = {
  code: 'platform.dns',
  what: 'has no address that can be found',
  hint: 'Check the name in PLATFORM_URL and IDENTITY_URL, and that this machine reaches a name server.',
};
const UNREACHABLE: Meaning = {
  code: 'platform.unreachable',
  what: 'cannot be reached from this machine',
  hint: 'Check the network link, the default route and the firewall.',
};

const MEANINGS: Readonly<Record<string, Meaning>> = {
  ECONNREFUSED: REFUSED,
  ECONNRESET: RESET,
  EPIPE: RESET,
  UND_ERR_SOCKET: RESET,
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: RESET,
  ETIMEDOUT: TIMEOUT,
  UND_ERR_CONNECT_TIMEOUT: { code: 'platform.timeout', what: 'did not take the connection in time' },
  UND_ERR_HEADERS_TIMEOUT: TIMEOUT,
  UND_ERR_BODY_TIMEOUT: { code: 'platform.timeout', what: 'stopped in the middle of its answer' },
  ENOTFOUND: DNS,
  EAI_AGAIN: DNS,
  EAI_FAIL: DNS,
  EAI_NODATA: DNS,
  ENETUNREACH: UNREACHABLE,
  EHOSTUNREACH: UNREACHABLE,
  ENETDOWN: UNREACHABLE,
  EHOSTDOWN: UNREACHABLE,
  EADDRNOTAVAIL: UNREACHABLE,
  UND_ERR_PRX_TLS: { code: 'platform.proxy', what: 'is behind a proxy whose certificate does not name it' },
  UND_ERR_PRX_CONN: { code: 'platform.proxy', what: 'is behind a proxy that ended the connection' },
  UND_ERR_CLOSED: { code: 'platform.aborted', what: 'is not asked any more: the client is closed' },
  UND_ERR_DESTROYED: { code: 'platform.aborted', what: 'is not asked any more: the client is closed' },
};

const PRIVATE_AUTHORITY = 'If the platform has a certificate of a private authority, name its PEM file in PLATFORM_CA.';
const CLOCK_OR_CERTIFICATE =
  "Check this machine's clock (`date`); if it is right, the platform has to renew its certificate.";

/** What is wrong with a chain, by OpenSSL's and Node's codes. */
const CHAIN_FAULTS: Readonly<Record<string, { what: string; hint: string }>> = {
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: { what: 'its chain lacks an intermediate certificate', hint: PRIVATE_AUTHORITY },
  UNABLE_TO_GET_ISSUER_CERT: { what: 'the authority behind it is not trusted here', hint: PRIVATE_AUTHORITY },
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: { what: 'the authority behind it is not trusted here', hint: PRIVATE_AUTHORITY },
  SELF_SIGNED_CERT_IN_CHAIN: {
    what: 'its chain ends in an authority that is not trusted here',
    hint: PRIVATE_AUTHORITY,
  },
  DEPTH_ZERO_SELF_SIGNED_CERT: { what: 'it is signed by itself', hint: PRIVATE_AUTHORITY },
  CERT_UNTRUSTED: { what: 'it is not trusted here', hint: PRIVATE_AUTHORITY },
  CERT_HAS_EXPIRED: { what: 'it has expired', hint: CLOCK_OR_CERTIFICATE },
  CERT_NOT_YET_VALID: { what: 'it is not valid yet', hint: CLOCK_OR_CERTIFICATE },
  CERT_REVOKED: { what: 'it was revoked', hint: 'Ask the platform: do not send credentials there.' },
  CERT_SIGNATURE_FAILURE: {
    what: 'its signature is wrong',
    hint: 'Something stands between this machine and the platform.',
  },
  ERR_TLS_CERT_ALTNAME_INVALID: {
    what: 'it is for another name',
    hint: 'Write the name of the certificate in PLATFORM_URL, or look for a proxy that answers in its place.',
  },
};

/** Codes of a connection that never came to be. */
const NO_WAY = new Set<TransportCode>(['platform.connection_refused', 'platform.dns', 'platform.unreachable']);

const NOT_TLS = new Set(['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG']);

/**
 * undici's and Node's errors as errors of the house; the one place where they are looked at. `origin` is scheme, host and
 * port of the platform: it stands in the message, nothing else of the request does. `proxy` is the proxy's host and port,
 * where the way goes through one: then it is the proxy that could not be reached, for it reports the platform's absence
 * by a status.
 */
export function transportError(error: unknown, origin: string, proxy?: string): PlatformError {
  if (error instanceof PlatformError) return error;
  const { code, source } = deepestCode(error);
  const fail = (kind: TransportCode, what: string, hint?: string) =>
    new PlatformError(`${origin} ${what}`, {
      code: kind,
      retryable: true,
      cause: error,
      ...(hint === undefined ? {} : { hint }),
    });
  const chain = code === undefined ? undefined : CHAIN_FAULTS[code];
  if (chain)
    return fail('platform.tls', `shows a certificate that cannot be trusted: ${chain.what} (${code})`, chain.hint);
  if (code !== undefined && NOT_TLS.has(code)) {
    return fail('platform.tls', `does not speak TLS as expected (${code})`, 'Check scheme and port of PLATFORM_URL.');
  }
  if (code?.startsWith('ERR_SSL_') || code?.startsWith('ERR_TLS_')) {
    return fail('platform.tls', `does not agree on TLS (${code})`);
  }
  const meaning = code === undefined ? undefined : MEANINGS[code];
  if (meaning && proxy !== undefined && NO_WAY.has(meaning.code)) {
    const hint = 'Check HTTPS_PROXY, or name the platform in NO_PROXY.';
    return fail('platform.proxy', `is behind the proxy ${proxy}, which ${meaning.what} (${code})`, hint);
  }
  if (meaning) return fail(meaning.code, `${meaning.what} (${code})`, meaning.hint);
  if (code === 'UND_ERR_ABORTED' && messageOf(source).startsWith('Proxy response')) {
    const status = /\((\d{3})\)/.exec(messageOf(source))?.[1] ?? 'no status';
    const hint =
      status === '407' ? 'Write user and password into HTTPS_PROXY: http://user:password@host:port.' : undefined;
    return fail(
      'platform.proxy',
      `is behind a proxy that refused the tunnel (${status})`,
      hint ?? 'Check HTTPS_PROXY and NO_PROXY.',
    );
  }
  if (code === 'UND_ERR_ABORTED' || code === 'ABORT_ERR') return fail('platform.aborted', 'is not waited for any more');
  if (code?.startsWith('HPE_')) return fail('platform.transport', `does not speak HTTP as expected (${code})`);
  return fail('platform.transport', `could not be asked (${code ?? messageOf(error)})`);
}

/** The first code down the chain of causes that says something; of several addresses tried, the last one's. */
function deepestCode(error: unknown): { code: string | undefined; source: unknown } {
  let found: { code: string | undefined; source: unknown } = { code: codeOf(error), source: error };
  let at: unknown = error;
  for (let depth = 0; depth < 5 && at instanceof Error; depth++) {
    const inner: unknown = at instanceof AggregateError ? at.errors.at(-1) : at.cause;
    const code = codeOf(at);
    const known = code !== undefined && (code in MEANINGS || code in CHAIN_FAULTS);
    if (known && code !== 'UND_ERR_SOCKET') return { code, source: at };
    if (code !== undefined && found.code === undefined) found = { code, source: at };
    at = inner;
  }
  return found;
}
