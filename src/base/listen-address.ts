import { isIPv6 } from 'node:net';
import { formatListenAddress, isLocalAddress, isLoopbackHost, type ListenAddress } from './listen.ts';
import type { Reading } from './reading.ts';

const EXAMPLES = 'write host:port (127.0.0.1:8470, [::1]:8470), :8470 for loopback, or unix:/run/tagferry/in.sock';
/** sockaddr_un holds 108 bytes with the closing zero. */
const MAX_SOCKET_PATH_BYTES = 107;

/**
 * `host:port`, `[ipv6]:port`, `:port` (127.0.0.1, never all interfaces: what is open to the network is written out),
 * `unix:/path`; empty is off. Port 0 lets the system choose.
 */
export function readListenAddress(text: string): Reading<ListenAddress | undefined> {
  const address = text.trim();
  if (address === '') return { value: undefined };
  if (address.startsWith('unix:')) return readSocketPath(address.slice('unix:'.length));
  const match = /^(?:\[([^\]]+)\]|([^:[\]\s/]*)):(\d{1,5})$/.exec(address);
  if (match === null) {
    const onlyPort = /^\d{1,5}$/.test(address);
    return { reason: 'is not a listen address', instead: onlyPort ? `write :${address} or host:${address}` : EXAMPLES };
  }
  const port = Number(match[3]);
  if (port > 65_535) return { reason: 'has a port above 65535', instead: EXAMPLES };
  if (match[1] !== undefined && !isIPv6(match[1])) {
    return { reason: 'has no IPv6 address between its brackets', instead: EXAMPLES };
  }
  const host = match[1] ?? match[2]!;
  if (host === '*') return { value: { host: '0.0.0.0', port } };
  return { value: { host: host === '' ? '127.0.0.1' : host, port } };
}

function readSocketPath(path: string): Reading<ListenAddress> {
  if (!path.startsWith('/')) return { reason: 'names a socket without an absolute path', instead: EXAMPLES };
  if (Buffer.byteLength(path) > MAX_SOCKET_PATH_BYTES) {
    return { reason: 'is longer than a socket path may be', instead: `write at most ${MAX_SOCKET_PATH_BYTES} bytes` };
  }
  return { value: { path } };
}

export { formatListenAddress, isLocalAddress, isLoopbackHost };
