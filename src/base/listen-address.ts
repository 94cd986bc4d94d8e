import { isIPv6 } from 'node:net';
import { formatListenAddress, isLocalAddress, isLoopbackHost, type ListenAddress } from './listen.ts';
import type { Reading } from './reading.ts';

const EXAMPLES = 'use host:port (127.0.0.1:8470, [::1]:8470), :8470 for loopback, or unix:/run/tagferry/in.sock';
/** sockaddr_un allows 108 bytes including the terminating null byte. */
const MAX_SOCKET_PATH_BYTES = 107;

/**
 * Parses `host:port`, `[ipv6]:port`, `:port` (127.0.0.1, because network access must be explicit) or `unix:/path`; an
 * empty value disables the listener. With port 0, the system chooses a port.
 */
export function readListenAddress(text: string): Reading<ListenAddress | undefined> {
  const address = text.trim();
  if (address === '') return { value: undefined };
  if (address.startsWith('unix:')) return readSocketPath(address.slice('unix:'.length));
  const match = /^(?:\[([^\]]+)\]|([^:[\]\s/]*)):(\d{1,5})$/.exec(address);
  if (match === null) {
    const onlyPort = /^\d{1,5}$/.test(address);
    return { reason: 'is not a listen address', instead: onlyPort ? `use :${address} or host:${address}` : EXAMPLES };
  }
  const port = Number(match[3]);
  if (port > 65_535) return { reason: 'has a port above 65535', instead: EXAMPLES };
  if (match[1] !== undefined && !isIPv6(match[1])) {
    return { reason: 'does not contain a valid IPv6 address in brackets', instead: EXAMPLES };
  }
  const host = match[1] ?? match[2]!;
  if (host === '*') return { value: { host: '0.0.0.0', port } };
  return { value: { host: host === '' ? '127.0.0.1' : host, port } };
}

function readSocketPath(path: string): Reading<ListenAddress> {
  if (!path.startsWith('/')) return { reason: 'requires an absolute socket path', instead: EXAMPLES };
  if (Buffer.byteLength(path) > MAX_SOCKET_PATH_BYTES) {
    return {
      reason: 'exceeds the maximum length of a socket path',
      instead: `use at most ${MAX_SOCKET_PATH_BYTES} bytes`,
    };
  }
  return { value: { path } };
}

export { formatListenAddress, isLocalAddress, isLoopbackHost };
