/**
 * Who a request says that it goes to, and which page sent it. A web page that was opened on this machine can reach every listener of
 * its loopback; with a name of its own that it lets point to 127.0.0.1 it can read the answers as well (DNS rebinding).
 * So a listener on loopback answers to the names of loopback alone, and to those that its settings add.
 */
import type { IncomingMessage } from 'node:http';
import { isLoopbackHost, type ListenAddress } from '../listen.ts';

export interface HostRule {
  /** Whether `Host` is looked at: a TCP listener on loopback. */
  isLoopback: boolean;
  /** OPS_HOSTS, INGEST_HOSTS: further names, lower case, without ports. */
  hosts: readonly string[];
  /** The key that adds names. */
  setting: string;
}

/** A listener on loopback answers to loopback's names; one on a network, behind whatever name it has, to that. */
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

/** 421 for a foreign `Host`, 403 for a foreign `Origin`, 400 for two hosts; `undefined` where nothing is wrong. */
export function hostRefusal(request: Head, rule: HostRule): HostRefusal | undefined {
  if (request.rawHeaders.filter((name, at) => at % 2 === 0 && name.toLowerCase() === 'host').length > 1)
    return refusal(400, 'the request names two hosts');
  const { host = '', origin } = request.headers;
  const own = host === '' ? undefined : nameOf(host);
  const add = `Call it by localhost or 127.0.0.1, or name the host in ${rule.setting}.`;
  if (rule.isLoopback) {
    if (host !== '' && !isKnown(own, rule)) return refusal(421, 'this listener is not called so', add);
    // A target in absolute form outranks the header (RFC 9112 section 3.2.2).
    const target = request.url ?? '';
    if (!target.startsWith('/') && URL.canParse(target) && !isKnown(nameOf(new URL(target).host), rule))
      return refusal(421, 'this listener is not called so', add);
  }
  if (origin === undefined) return undefined;
  const from = URL.canParse(origin) ? nameOf(new URL(origin).host) : undefined;
  const isOurs = from !== undefined && ((from === own && !rule.isLoopback) || isKnown(from, rule));
  return isOurs ? undefined : refusal(403, 'the page that asks is of another host', add);
}

function refusal(status: HostRefusal['status'], error: string, hint?: string): HostRefusal {
  const headers = { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' };
  return { status, headers, text: `${JSON.stringify({ error, hint })}\n` };
}

/** The host without its port and last dot, in lower case; `undefined` where it is none. */
function nameOf(host: string): string | undefined {
  const match = /^(\[[0-9a-f:.%]+\]|[^:[\]/@\s]+)(?::\d*)?$/i.exec(host.trim());
  return match?.[1]?.toLowerCase().replace(/\.$/, '');
}

function isKnown(name: string | undefined, { isLoopback, hosts }: HostRule): boolean {
  if (name === undefined) return false;
  return hosts.includes(name) || (isLoopback && isLoopbackHost(name));
}
