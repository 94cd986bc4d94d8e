import { codeOf, messageOf, PlatformError } from '../base/errors.ts';

interface Failure {
  code: `platform.${'connection_refused' | 'connection_reset' | 'timeout' | 'dns' | 'unreachable' | 'tls' | 'proxy' | 'aborted' | 'transport'}`;
  what: string;
  hint?: string;
}

/** Failures that refer to the proxy, if one is used. */
const UNREACHABLE_CODES: ReadonlySet<string> = new Set([
  'platform.connection_refused',
  'platform.dns',
  'platform.unreachable',
]);

const RESET: Failure = { code: 'platform.connection_reset', what: 'closed the connection before it responded' };
const TIMEOUT: Failure = { code: 'platform.timeout', what: 'did not respond in time' };
const DNS: Failure = {
  code: 'platform.dns',
  what: 'cannot be resolved',
  hint: 'Check the host name in PLATFORM_URL and IDENTITY_URL, and that this machine can reach a DNS server.',
};
const UNREACHABLE: Failure = {
  code: 'platform.unreachable',
  what: 'cannot be reached from this machine',
  hint: 'Check the network link, the default route and the firewall.',
};
const CLOSED: Failure = { code: 'platform.aborted', what: 'was not contacted: the client is closed' };

const PRIVATE_AUTHORITY =
  'A private CA or a proxy that inspects TLS issued the certificate. If you trust it, set PLATFORM_CA to its PEM file.';
const CLOCK_OR_CERTIFICATE =
  "Check this machine's clock (`date`). If it is correct, the platform must renew its certificate.";
const untrusted = (what: string, hint: string): Failure => ({
  code: 'platform.tls',
  what: `has an untrusted certificate: ${what}`,
  hint,
});
const NOT_TLS: Failure = {
  code: 'platform.tls',
  what: 'does not use TLS',
  hint: 'Check the scheme and port of PLATFORM_URL.',
};

/** Failures by error code of OpenSSL, Node and undici. All are retryable. */
const FAILURES: Readonly<Record<string, Failure>> = {
  ECONNREFUSED: {
    code: 'platform.connection_refused',
    what: 'refused the connection',
    hint: 'Check the host and port of PLATFORM_URL, and the firewall.',
  },
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
  UND_ERR_CLOSED: CLOSED,
  UND_ERR_DESTROYED: CLOSED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: untrusted('its chain lacks an intermediate certificate', PRIVATE_AUTHORITY),
  UNABLE_TO_GET_ISSUER_CERT: untrusted('its issuer is not trusted', PRIVATE_AUTHORITY),
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: untrusted('its issuer is not trusted', PRIVATE_AUTHORITY),
  SELF_SIGNED_CERT_IN_CHAIN: untrusted('its root certificate is not trusted', PRIVATE_AUTHORITY),
  DEPTH_ZERO_SELF_SIGNED_CERT: untrusted('it is self-signed', PRIVATE_AUTHORITY),
  CERT_UNTRUSTED: untrusted('it is not trusted', PRIVATE_AUTHORITY),
  CERT_HAS_EXPIRED: untrusted('it has expired', CLOCK_OR_CERTIFICATE),
  CERT_NOT_YET_VALID: untrusted('it is not valid yet', CLOCK_OR_CERTIFICATE),
  CERT_REVOKED: untrusted('it was revoked', 'Do not send credentials. Contact the platform operator.'),
  CERT_SIGNATURE_FAILURE: untrusted(
    'its signature is invalid',
    'Check for a proxy between this machine and the platform.',
  ),
  ERR_TLS_CERT_ALTNAME_INVALID: untrusted(
    'it was issued for a different host name',
    'Set PLATFORM_URL to a host name in the certificate, or check for a proxy that responds in place of the platform.',
  ),
  EPROTO: NOT_TLS,
  ERR_SSL_WRONG_VERSION_NUMBER: NOT_TLS,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: NOT_TLS,
  ABORT_ERR: { code: 'platform.aborted', what: 'was aborted' },
};

/**
 * Converts errors from undici and Node, which are inspected only here. `origin` contains the scheme, host and port of
 * the platform; the message contains no other part of the request. `proxy` is the host and port of the proxy, if one is
 * used. In this case, connection errors refer to the proxy, because a proxy reports an unreachable platform with a
 * status.
 */
export function transportError(error: unknown, origin: string, proxy?: string): PlatformError {
  if (error instanceof PlatformError) return error;
  const { code, source } = deepestCode(error);
  const { code: kind, what, hint } = failureBehind(code, source, proxy);
  const shown = code === undefined || kind === 'platform.aborted' ? '' : ` (${code})`;
  return new PlatformError(`${origin} ${what}${shown}`, {
    code: kind,
    retryable: true,
    cause: error,
    ...(hint === undefined ? {} : { hint }),
  });
}

function failureBehind(code: string | undefined, source: unknown, proxy: string | undefined): Failure {
  const known = code === undefined ? undefined : FAILURES[code];
  const isUnreachable = known && (UNREACHABLE_CODES.has(known.code) || code === 'UND_ERR_CONNECT_TIMEOUT');
  if (isUnreachable && proxy !== undefined) {
    const what = `is behind the proxy ${proxy}, which ${known.what}`;
    return { code: 'platform.proxy', what, hint: 'Check HTTPS_PROXY, or add the platform to NO_PROXY.' };
  }
  if (known) return known;
  if (code === 'UND_ERR_ABORTED') {
    const status = /^Proxy response \((\d{3})\)/.exec(messageOf(source))?.[1];
    if (status === undefined) return FAILURES.ABORT_ERR!;
    const what = `is behind a proxy that rejected the tunnel with ${status}`;
    const password = 'Add the user and password to HTTPS_PROXY: http://user:password@host:port.';
    return { code: 'platform.proxy', what, hint: status === '407' ? password : 'Check HTTPS_PROXY and NO_PROXY.' };
  }
  if (/^ERR_(?:SSL|TLS)_/.test(code ?? '')) return { code: 'platform.tls', what: 'failed the TLS handshake' };
  if (code?.startsWith('HPE_')) return { code: 'platform.transport', what: 'sent an invalid HTTP response' };
  return { code: 'platform.transport', what: `could not be reached${code ? '' : ` (${messageOf(source)})`}` };
}

/**
 * Returns the first known code in the cause chain. If several addresses were tried, the code of the last address is
 * used.
 */
function deepestCode(error: unknown): { code: string | undefined; source: unknown } {
  let found: { code: string | undefined; source: unknown } = { code: codeOf(error), source: error };
  let at: unknown = error;
  for (let depth = 0; depth < 5 && at instanceof Error; depth++) {
    const code = codeOf(at);
    if (code !== undefined && code in FAILURES && code !== 'UND_ERR_SOCKET') return { code, source: at };
    if (code !== undefined && found.code === undefined) found = { code, source: at };
    at = at instanceof AggregateError ? at.errors.at(-1) : at.cause;
  }
  return found;
}
