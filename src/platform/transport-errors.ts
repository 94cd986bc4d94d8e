import { codeOf, messageOf, PlatformError } from '../base/errors.ts';

/**
 * Reason why a request received no response. All errors are retryable; the hint describes problems that require user
 * intervention.
 */
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
  hint: 'Check the host and port of PLATFORM_URL, and the firewall.',
};
const RESET: Meaning = { code: 'platform.connection_reset', what: 'closed the connection before it responded' };
const TIMEOUT: Meaning = { code: 'platform.timeout', what: 'did not respond in time' };
const DNS: Meaning = {
  code: 'platform.dns',
  what: 'cannot be resolved',
  hint: 'Check the host name in PLATFORM_URL and IDENTITY_URL, and that this machine can reach a DNS server.',
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
  UND_ERR_CONNECT_TIMEOUT: { code: 'platform.timeout', what: 'did not accept the connection in time' },
  UND_ERR_HEADERS_TIMEOUT: TIMEOUT,
  UND_ERR_BODY_TIMEOUT: { code: 'platform.timeout', what: 'stopped sending before its response was complete' },
  ENOTFOUND: DNS,
  EAI_AGAIN: DNS,
  EAI_FAIL: DNS,
  EAI_NODATA: DNS,
  ENETUNREACH: UNREACHABLE,
  EHOSTUNREACH: UNREACHABLE,
  ENETDOWN: UNREACHABLE,
  EHOSTDOWN: UNREACHABLE,
  EADDRNOTAVAIL: UNREACHABLE,
  UND_ERR_PRX_TLS: { code: 'platform.proxy', what: 'is behind a proxy whose certificate does not match its name' },
  UND_ERR_PRX_CONN: { code: 'platform.proxy', what: 'is behind a proxy that closed the connection' },
  UND_ERR_CLOSED: { code: 'platform.aborted', what: 'was not contacted: the client is closed' },
  UND_ERR_DESTROYED: { code: 'platform.aborted', what: 'was not contacted: the client is closed' },
};

const PRIVATE_AUTHORITY = 'If a private CA issued the certificate, set PLATFORM_CA to its PEM file.';
const CLOCK_OR_CERTIFICATE =
  "Check this machine's clock (`date`). If it is correct, the platform must renew its certificate.";

/** Certificate errors by OpenSSL and Node error code. */
const CHAIN_FAULTS: Readonly<Record<string, { what: string; hint: string }>> = {
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: { what: 'its chain lacks an intermediate certificate', hint: PRIVATE_AUTHORITY },
  UNABLE_TO_GET_ISSUER_CERT: { what: 'its issuer is not trusted', hint: PRIVATE_AUTHORITY },
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: { what: 'its issuer is not trusted', hint: PRIVATE_AUTHORITY },
  SELF_SIGNED_CERT_IN_CHAIN: {
    what: 'its root certificate is not trusted',
    hint: PRIVATE_AUTHORITY,
  },
  DEPTH_ZERO_SELF_SIGNED_CERT: { what: 'it is self-signed', hint: PRIVATE_AUTHORITY },
  CERT_UNTRUSTED: { what: 'it is not trusted', hint: PRIVATE_AUTHORITY },
  CERT_HAS_EXPIRED: { what: 'it has expired', hint: CLOCK_OR_CERTIFICATE },
  CERT_NOT_YET_VALID: { what: 'it is not valid yet', hint: CLOCK_OR_CERTIFICATE },
  CERT_REVOKED: { what: 'it was revoked', hint: 'Do not send credentials. Contact the platform operator.' },
  CERT_SIGNATURE_FAILURE: {
    what: 'its signature is invalid',
    hint: 'Check for a proxy between this machine and the platform.',
  },
  ERR_TLS_CERT_ALTNAME_INVALID: {
    what: 'it was issued for a different host name',
    hint: 'Set PLATFORM_URL to a host name in the certificate, or check for a proxy that responds in place of the platform.',
  },
};

/** Error codes of connections that could not be established. */
const NO_WAY = new Set<TransportCode>(['platform.connection_refused', 'platform.dns', 'platform.unreachable']);

const NOT_TLS = new Set(['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG']);

/**
 * Converts errors from undici and Node, which are inspected only here. `origin` contains the scheme, host and port of
 * the platform; the message contains no other part of the request. `proxy` is the host and port of the proxy, if one is
 * used. In this case, connection errors refer to the proxy, because a proxy reports an unreachable platform with a
 * status.
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
  if (chain) return fail('platform.tls', `has an untrusted certificate: ${chain.what} (${code})`, chain.hint);
  if (code !== undefined && NOT_TLS.has(code)) {
    return fail('platform.tls', `does not use TLS (${code})`, 'Check the scheme and port of PLATFORM_URL.');
  }
  if (code?.startsWith('ERR_SSL_') || code?.startsWith('ERR_TLS_')) {
    return fail('platform.tls', `failed the TLS handshake (${code})`);
  }
  const meaning = code === undefined ? undefined : MEANINGS[code];
  if (meaning && proxy !== undefined && NO_WAY.has(meaning.code)) {
    const hint = 'Check HTTPS_PROXY, or add the platform to NO_PROXY.';
    return fail('platform.proxy', `is behind the proxy ${proxy}, which ${meaning.what} (${code})`, hint);
  }
  if (meaning) return fail(meaning.code, `${meaning.what} (${code})`, meaning.hint);
  if (code === 'UND_ERR_ABORTED' && messageOf(source).startsWith('Proxy response')) {
    const status = /\((\d{3})\)/.exec(messageOf(source))?.[1] ?? 'no status';
    const hint =
      status === '407' ? 'Add the user and password to HTTPS_PROXY: http://user:password@host:port.' : undefined;
    return fail(
      'platform.proxy',
      `is behind a proxy that rejected the tunnel (${status})`,
      hint ?? 'Check HTTPS_PROXY and NO_PROXY.',
    );
  }
  if (code === 'UND_ERR_ABORTED' || code === 'ABORT_ERR') return fail('platform.aborted', 'was aborted');
  if (code?.startsWith('HPE_')) return fail('platform.transport', `sent an invalid HTTP response (${code})`);
  return fail('platform.transport', `could not be reached (${code ?? messageOf(error)})`);
}

/**
 * Returns the first known code in the cause chain. If several addresses were tried, the code of the last address is
 * used.
 */
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
