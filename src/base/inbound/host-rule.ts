/**
 * Validates the `Host` and `Origin` headers of requests. A web page open in a browser on this machine can reach all
 * loopback listeners, and DNS rebinding allows it to read responses. A loopback listener therefore accepts only
 * loopback names and the names added in the settings.
 */
import type { IncomingMessage } from 'node:http';
import { isLoopbackHost, type ListenAddress } from '../listen.ts';

export interface HostRule {
  /** Whether `Host` is checked: true for a TCP listener on loopback. */
  isLoopback: boolean;
  /** Additional names from OPS_HOSTS or INGEST_HOSTS, in lower case and without ports. */
  hosts: readonly string[];
  /** Settings key that adds names. */
  setting: string;
}

/** Returns the rule for a listener. On loopback, only loopback names are accepted; on a network, any name. */
export function hostRule(address: ListenAddress, setting: string, hosts: readonly string[] = []): HostRule | undefined {
  if ('path' in address) return undefined;
  return { isLoopback: isLoopbackHost(address.host), hosts, setting };
}

type Head = Pick<IncomingMessage, 'headers' | 'rawHeaders' | 'url'>;

export interface HostRefusal {
  status: 400 | 403 | 421;
  headers: Readonly<Record<string, string>>;
  text: string;
}

/**
 * Returns 421 for a foreign `Host`, 403 for a foreign `Origin`, 400 for two `Host` headers, or `undefined` if the
 * request is accepted.
 */
export function hostRefusal(request: Head, rule: HostRule): HostRefusal | undefined {
  if (request.rawHeaders.filter((name, at) => at % 2 === 0 && name.toLowerCase() === 'host').length > 1)
    return refusal(400, 'the request contains two hosts');
  const { host = '', origin } = request.headers;
  const own = host === '' ? undefined : nameOf(host);
  const add = `Use localhost or 127.0.0.1, or add the host to ${rule.setting}.`;
  if (rule.isLoopback) {
    if (host !== '' && !isKnown(own, rule)) return refusal(421, 'host name not allowed', add);
    // An absolute request target takes precedence over the header (RFC 9112 section 3.2.2).
    const target = request.url ?? '';
    if (!target.startsWith('/') && URL.canParse(target) && !isKnown(nameOf(new URL(target).host), rule))
      return refusal(421, 'host name not allowed', add);
  }
  if (origin === undefined) return undefined;
  const from = URL.canParse(origin) ? nameOf(new URL(origin).host) : undefined;
  const isOurs = from !== undefined && ((from === own && !rule.isLoopback) || isKnown(from, rule));
  return isOurs ? undefined : refusal(403, 'cross-origin request not allowed', add);
}

function refusal(status: HostRefusal['status'], error: string, hint?: string): HostRefusal {
  const headers = { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' };
  return { status, headers, text: `${JSON.stringify({ error, hint })}\n` };
}

/** Returns the host in lower case without port and trailing dot, or `undefined` if it is invalid. */
function nameOf(host: string): string | undefined {
  const match = /^(\[[0-9a-f:.%]+\]|[^:[\]/@\s]+)(?::\d*)?$/i.exec(host.trim());
  return match?.[1]?.toLowerCase().replace(/\.$/, '');
}

function isKnown(name: string | undefined, { isLoopback, hosts }: HostRule): boolean {
  if (name === undefined) return false;
  return hosts.includes(name) || (isLoopback && isLoopbackHost(name));
}
