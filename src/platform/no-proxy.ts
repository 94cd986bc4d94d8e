/** One entry of NO_PROXY: a host and everything below it, `*.host` for what is below it alone, `*` for every host. */
export interface NoProxyEntry {
  host: string;
  port: number | undefined;
  belowOnly: boolean;
}

/** Takes NO_PROXY apart: `example.com, .example.com, *.example.com, host:8080, [::1]:443, *`. */
export function parseNoProxy(text: string): NoProxyEntry[] {
  return text
    .split(/[,\s]+/)
    .filter((word) => word !== '')
    .map((word) => {
      // A bare IPv6 address has more than one colon and no port.
      const bracketed = /^\[([^\]]+)\](?::(\d+))?$/.exec(word);
      const withPort = bracketed ?? (word.split(':').length === 2 ? /^(.+):(\d+)$/.exec(word) : null);
      const host = withPort?.[1] ?? word;
      return {
        host: plainHost(host === '*' ? host : host.replace(/^\*?\./, '')),
        port: withPort?.[2] === undefined ? undefined : Number(withPort[2]),
        belowOnly: host.startsWith('*.'),
      };
    });
}

/**
 * Whether an address is reached without the proxy. `HTTPS_PROXY` carries every outgoing call, as docs/interface.md has it;
 * the one exception is plain http to this machine itself, a sandbox that no proxy could reach.
 */
export function goesDirect(url: URL, entries: readonly NoProxyEntry[]): boolean {
  const host = plainHost(url.hostname);
  if (url.protocol === 'http:' && isLoopback(host)) return true;
  const port = Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
  return entries.some((entry) => {
    if (entry.port !== undefined && entry.port !== port) return false;
    if (entry.host === '*') return true;
    return host.endsWith(`.${entry.host}`) || (host === entry.host && !entry.belowOnly);
  });
}

function plainHost(host: string): string {
  return host
    .replace(/^\[|\]$/g, '')
    .replace(/\.$/, '')
    .toLowerCase();
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(?:\.\d{1,3}){3}$/.test(host);
}
