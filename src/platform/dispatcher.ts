import { X509Certificate } from 'node:crypto';
import { createRequire } from 'node:module';
import { createSecureContext, rootCertificates } from 'node:tls';
import type { Dispatcher } from 'undici';
import { identityCheckWithExpiry } from '../base/certificates.ts';
import { ConfigurationError } from '../base/errors.ts';
import { poolLookup } from '../base/name-lookup.ts';
import { goesDirect, type NoProxyEntry, parseNoProxy } from './no-proxy.ts';

/** Settings for platform connections. */
export interface DispatcherOptions {
  /** Maximum number of sockets per origin: concurrent posts, plus a few for the session and other calls. */
  connections: number;
  /** PEM certificate of a private certificate authority, trusted in addition to the built-in authorities. */
  caPem?: string | undefined;
  /** Proxy URL with the scheme `http` or `https`, including user and password if required. */
  httpsProxy?: string | undefined;
  /** Hosts that bypass the proxy. */
  noProxy?: string | undefined;
  /** Called for each new connection with the expiry time of the platform certificate. */
  onCertificate?: (endsMs: number | undefined) => void;
}

/** Subset of the undici dispatcher interface that the boundary uses. Tests provide a different implementation. */
export interface Sockets {
  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean;
  close(): Promise<void>;
  destroy(): Promise<void>;
  /** Returns the host and port of the proxy used for a URL, or undefined for a direct connection. */
  proxyOf?(url: URL): string | undefined;
}

/** Connection timeout, in milliseconds. A satellite link completes a handshake within 3 s. */
const CONNECT_TIMEOUT_MS = 10_000;
/**
 * Keep-alive time of an idle socket, unless the server announces a shorter time. Allows three posts at the default
 * interval to share a handshake. Shorter than the minute after which typical middleboxes drop a connection.
 */
const KEEP_ALIVE_MS = 30_000;

type Undici = typeof import('undici');

const load = createRequire(import.meta.url);

/**
 * Loads only the `Agent` class of undici, which uses 2 MB of memory. All of undici (fetch, WebSocket, caches) would use
 * 10 MB. package.json pins the exact version.
 */
const loadAgent = () => load('undici/lib/dispatcher/agent.js') as Undici['Agent'];

/**
 * Creates the dispatcher. If a proxy is configured, the dispatcher uses the proxy or a direct connection depending on
 * the origin. Throws `ConfigurationError` for an invalid `caPem`.
 */
export function createDispatcher(options: DispatcherOptions): Sockets {
  const pool = {
    connections: options.connections,
    pipelining: 1,
    // Performance was measured with four concurrent posts on four sockets. HTTP/2 would load more code without a
    // benefit.
    allowH2: false,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: 2 * KEEP_ALIVE_MS,
  };
  const connect = {
    ...(options.caPem === undefined ? {} : trusting(options.caPem)),
    timeout: CONNECT_TIMEOUT_MS,
    allowH2: false,
    // Uses a separate lookup pool, so that slow lookups of device names do not delay the platform lookup.
    lookup: poolLookup,
  };
  const { onCertificate } = options;
  const telling =
    onCertificate === undefined ? connect : { ...connect, checkServerIdentity: identityCheckWithExpiry(onCertificate) };
  const Agent = loadAgent();
  const direct = new Agent({ ...pool, connect: telling });
  if (!options.httpsProxy) return direct;
  // The proxy tunnel is available only in the complete undici package.
  const { ProxyAgent } = load('undici') as Undici;
  const proxied = new ProxyAgent({
    ...pool,
    uri: options.httpsProxy,
    requestTls: telling,
    proxyTls: connect,
    // Use a tunnel for http as well, so that a proxy that rewrites requests cannot read the bearer token.
    proxyTunnel: true,
  });
  return new Fork(direct, proxied, new URL(options.httpsProxy).host, parseNoProxy(options.noProxy ?? ''));
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

/** Uses a direct connection or the proxy, depending on the origin. */
class Fork implements Sockets {
  readonly #direct: Sockets;
  readonly #proxied: Sockets;
  readonly #proxy: string;
  readonly #noProxy: readonly NoProxyEntry[];

  constructor(direct: Sockets, proxied: Sockets, proxy: string, noProxy: readonly NoProxyEntry[]) {
    this.#direct = direct;
    this.#proxied = proxied;
    this.#proxy = proxy;
    this.#noProxy = noProxy;
  }

  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    const way = this.proxyOf(new URL(String(options.origin))) === undefined ? this.#direct : this.#proxied;
    return way.dispatch(options, handler);
  }

  proxyOf(url: URL): string | undefined {
    return goesDirect(url, this.#noProxy) ? undefined : this.#proxy;
  }

  async close(): Promise<void> {
    await Promise.all([this.#direct.close(), this.#proxied.close()]);
  }

  async destroy(): Promise<void> {
    await Promise.all([this.#direct.destroy(), this.#proxied.destroy()]);
  }
}
