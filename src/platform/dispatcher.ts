import { X509Certificate } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { createSecureContext, rootCertificates } from 'node:tls';
import type { Dispatcher } from 'undici';
import { identityCheckWithExpiry } from '../base/certificates.ts';
import { type Clock, systemClock } from '../base/clock.ts';
import { ConfigurationError } from '../base/errors.ts';
import { poolLookup } from '../base/name-lookup.ts';
import { readRegularFile } from '../base/regular-file.ts';

/** Settings for platform connections. */
export interface DispatcherOptions {
  /** Maximum number of sockets per origin: concurrent posts, plus a few for the session and other calls. */
  connections: number;
  /** PEM certificate of a private certificate authority, trusted in addition to the built-in authorities. */
  caPem?: string | undefined;
  /** File that contained `caPem`. A changed file is used for new connections. */
  caPath?: string | undefined;
  /** Proxy URL with the scheme `http` or `https`, including user and password if required. */
  httpsProxy?: string | undefined;
  /** Hosts that bypass the proxy. */
  noProxy?: string | undefined;
  /** Called for each new connection with the expiry time of the platform certificate. */
  onCertificate?: (endsMs: number | undefined) => void;
  /** Timeout of a connection and of a proxy's response to CONNECT, in milliseconds. */
  connectTimeoutMs?: number;
  clock?: Pick<Clock, 'monotonicMs'>;
  /** Resolves host names. Default: a separate pool, so that slow lookups of device names do not delay the platform's. */
  lookup?: typeof poolLookup;
}

/** Subset of the undici dispatcher interface that the boundary uses. Tests provide a different implementation. */
export interface Sockets {
  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): unknown;
  destroy(): Promise<void>;
  /** Returns the host and port of the proxy used for a URL, or undefined for a direct connection. */
  proxyOf?(url: URL): string | undefined;
  /** Reads the certificate authority again if its file has changed. Connections in use are not affected. */
  readAuthority?(): Promise<void>;
}

/** Connection timeout, in milliseconds. A satellite link completes a handshake within 3 s. */
const CONNECT_TIMEOUT_MS = 10_000;
/**
 * Time after which the next address of a host is tried, in milliseconds. Node's default of 250 ms is shorter than the
 * handshake over a slow link, so that no address would ever be reached if one of them is unreachable.
 */
const ADDRESS_TIMEOUT_MS = 2_500;
/**
 * Keep-alive time of an idle socket, unless the server announces a shorter time. Allows three posts at the default
 * interval to share a handshake. Shorter than the minute after which typical middleboxes drop a connection.
 */
const KEEP_ALIVE_MS = 30_000;
/** Minimum interval between checks of the certificate authority's file, in milliseconds. */
const CHECK_AUTHORITY_MS = 10_000;

/** Loopback hosts, which a proxy cannot reach. */
const LOOPBACK = 'localhost,127.0.0.1,::1';

type Undici = typeof import('undici');

const load = createRequire(import.meta.url);

/**
 * Creates the sockets for platform calls. undici's `EnvHttpProxyAgent` uses the proxy or a direct connection depending
 * on NO_PROXY. Throws `ConfigurationError` if `caPem` is invalid.
 */
export function createDispatcher(options: DispatcherOptions): Sockets {
  const { caPath, httpsProxy, noProxy, clock = systemClock } = options;
  let { caPem } = options;
  let agent = agentFor(options, caPem);
  let known: string | undefined;
  let checkedMs = clock.monotonicMs();
  let isDestroyed = false;

  const readAuthority = async () => {
    if (caPath === undefined) return;
    checkedMs = clock.monotonicMs();
    const { mtimeMs, ino, size } = await stat(caPath);
    const found = `${mtimeMs} ${ino} ${size}`;
    if (found === known) return;
    const text = (await readRegularFile(caPath)).toString();
    // An incomplete file is rejected, and read again at the next check.
    const next = text === caPem ? undefined : agentFor(options, text);
    known = found;
    caPem = text;
    if (!next) return;
    if (isDestroyed) return next.destroy();
    void agent.close();
    agent = next;
  };
  return {
    dispatch(request, handler) {
      if (clock.monotonicMs() - checkedMs > CHECK_AUTHORITY_MS) void readAuthority().catch(() => {});
      return agent.dispatch(request, handler);
    },
    destroy() {
      isDestroyed = true;
      return agent.destroy();
    },
    proxyOf: (url) => proxyFor(url, httpsProxy, noProxy)?.host,
    readAuthority: () => readAuthority().catch(() => {}),
  };
}

function agentFor(options: DispatcherOptions, caPem: string | undefined): Dispatcher {
  const { connections, httpsProxy, noProxy = '', onCertificate, lookup = poolLookup } = options;
  const { connectTimeoutMs = CONNECT_TIMEOUT_MS } = options;
  const connect = {
    ...(caPem === undefined ? {} : trusting(caPem)),
    timeout: connectTimeoutMs,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ADDRESS_TIMEOUT_MS,
    allowH2: false,
    lookup,
  };
  const toPlatform = onCertificate
    ? { ...connect, checkServerIdentity: identityCheckWithExpiry(onCertificate) }
    : connect;
  const settings = {
    connections,
    pipelining: 1,
    // Performance was measured with four concurrent posts on four sockets. HTTP/2 would load more code without a
    // benefit.
    allowH2: false,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: 2 * KEEP_ALIVE_MS,
    connect: toPlatform,
  };
  if (!httpsProxy) {
    // Load only this class (2 MB of memory), because the complete package (fetch, WebSocket, caches) requires 10 MB.
    // package.json pins the exact version.
    const Agent = load('undici/lib/dispatcher/agent.js') as Undici['Agent'];
    return new Agent(settings);
  }
  // The proxy tunnel is available only in the complete undici package.
  const { EnvHttpProxyAgent, Pool } = load('undici') as Undici;
  return new EnvHttpProxyAgent({
    ...settings,
    httpProxy: httpsProxy,
    httpsProxy,
    noProxy: `${LOOPBACK},${noProxy}`,
    requestTls: toPlatform,
    proxyTls: connect,
    // Use a tunnel for http as well, so that a proxy that rewrites requests cannot read the bearer token.
    proxyTunnel: true,
    // A proxy that does not respond to CONNECT would otherwise occupy a socket for five minutes.
    clientFactory: (origin, more) => new Pool(origin, { ...more, headersTimeout: connectTimeoutMs }),
  });
}

/**
 * Parses the trusted certificates once for all connections. The option `ca` would parse 150 certificates for each
 * connection.
 */
function trusting(caPem: string): { secureContext: ReturnType<typeof createSecureContext> } {
  try {
    // Validate the certificate, because Node silently ignores an invalid certificate.
    new X509Certificate(caPem);
    return { secureContext: createSecureContext({ ca: [...rootCertificates, caPem] }) };
  } catch {
    throw new ConfigurationError(['PLATFORM_CA: must be a file with a PEM certificate']);
  }
}

/**
 * Returns the proxy for a URL, for error messages and the doctor, because `EnvHttpProxyAgent` does not report it. The
 * rules are those of the agent: `host` for a host and its subdomains, `*.host` for subdomains only, `*` for all hosts,
 * each with an optional port.
 */
export function proxyFor(url: URL, httpsProxy: string | undefined, noProxy = ''): URL | undefined {
  if (!httpsProxy) return undefined;
  const plain = (host: string) => host.replace(/^\[|\]$|\.$/g, '').toLowerCase();
  const host = plain(url.hostname);
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  const isDirect = `${LOOPBACK},${noProxy}`.split(/[,\s]+/).some((entry) => {
    // An IPv6 address without brackets contains several colons and no port.
    const [, bracketed, named, listedPort] = /^(?:\[(.+)\]|([^:]+)):(\d+)$/.exec(entry) ?? [];
    if (listedPort !== undefined && listedPort !== port) return false;
    const name = bracketed ?? named ?? entry;
    if (name === '*') return true;
    const listed = plain(name.replace(/^\*?\./, ''));
    return listed !== '' && (host.endsWith(`.${listed}`) || (host === listed && !name.startsWith('*.')));
  });
  return isDirect ? undefined : new URL(httpsProxy);
}
