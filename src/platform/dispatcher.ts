import { X509Certificate } from 'node:crypto';
import { createRequire } from 'node:module';
import { createSecureContext, rootCertificates } from 'node:tls';
import type { Dispatcher } from 'undici';
import { tellingIdentity } from '../base/certificates.ts';
import { ConfigurationError } from '../base/errors.ts';
import { poolLookup } from '../base/name-lookup.ts';
import { goesDirect, type NoProxyEntry, parseNoProxy } from './no-proxy.ts';

/** How to reach the platform. */
export interface DispatcherOptions {
  /** Sockets to one origin: posts under way at once and some for the session and the rest. */
  connections: number;
  /** PEM text of a private authority, trusted beside the built-in ones. */
  caPem?: string | undefined;
  /** `http://` or `https://` address of a proxy, user and password in it where it wants them. */
  httpsProxy?: string | undefined;
  /** Hosts that are reached without the proxy. */
  noProxy?: string | undefined;
  connectTimeoutMs?: number;
  /** Told when the certificate of the platform ends, at each new connection. */
  onCertificate?: (endsMs: number | undefined) => void;
}

/** What of an undici dispatcher the boundary uses: tests pass in their own. */
export interface Sockets {
  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean;
  close(): Promise<void>;
  destroy(): Promise<void>;
  /** Host and port of the proxy on the way to an address, where there is one. */
  proxyOf?(url: URL): string | undefined;
}

/** A satellite link answers a handshake within 3 s; a host that takes 10 s is away. */
const CONNECT_TIMEOUT_MS = 10_000;
/**
 * An idle socket is kept for 30 s unless the server says less: three posts at the default interval share a handshake,
 * and the usual middleboxes forget a connection after a minute.
 */
const KEEP_ALIVE_MS = 30_000;

type Undici = typeof import('undici');

const load = createRequire(import.meta.url);

/**
 * The whole of undici (fetch, WebSocket, mocks, caches) costs 10 MB of memory; its agent alone 2 MB. It names no
 * `exports`, so its parts can be loaded; should a release take that away, the whole still works.
 */
function loadAgent(): Undici['Agent'] {
  try {
    return load('undici/lib/dispatcher/agent.js') as Undici['Agent'];
  } catch {
    return (load('undici') as Undici).Agent;
  }
}

/**
 * Makes the owner of the sockets: an agent, or an agent and a proxy's, chosen by origin. Throws `ConfigurationError` for
 * a `caPem` that is none.
 */
export function createDispatcher(options: DispatcherOptions): Sockets {
  const pool = {
    connections: options.connections,
    pipelining: 1,
    // Four posts at once on four sockets is what was measured; HTTP/2 would load more code for the same.
    allowH2: false,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: 2 * KEEP_ALIVE_MS,
  };
  const connect = {
    ...(options.caPem === undefined ? {} : trusting(options.caPem)),
    timeout: options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS,
    allowH2: false,
    // Names of devices are resolved elsewhere: none of them keeps the platform's waiting.
    lookup: poolLookup,
  };
  const { onCertificate } = options;
  const telling =
    onCertificate === undefined ? connect : { ...connect, checkServerIdentity: tellingIdentity(onCertificate) };
  const Agent = loadAgent();
  const direct = new Agent({ ...pool, connect: telling });
  if (!options.httpsProxy) return direct;
  // The proxy's tunnel is built with parts that only the whole of undici puts together.
  const { ProxyAgent } = load('undici') as Undici;
  const proxied = new ProxyAgent({
    ...pool,
    uri: options.httpsProxy,
    requestTls: telling,
    proxyTls: connect,
    // A tunnel for http too: a proxy that rewrites requests has no business with a bearer token.
    proxyTunnel: true,
  });
  return new Fork(direct, proxied, new URL(options.httpsProxy).host, parseNoProxy(options.noProxy ?? ''));
}

/** One parse of the authorities for all connections: the option `ca` would parse 150 certificates at each. */
function trusting(caPem: string): { secureContext: ReturnType<typeof createSecureContext> } {
  try {
    // Node passes over what is no certificate without a word.
    new X509Certificate(caPem);
    return { secureContext: createSecureContext({ ca: [...rootCertificates, caPem] }) };
  } catch {
    throw new ConfigurationError(['PLATFORM_CA: the file holds no certificate in PEM form, name one that does']);
  }
}

/** Chooses for each origin whether the way goes through the proxy. */
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
