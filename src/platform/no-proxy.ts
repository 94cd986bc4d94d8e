/** Entry in NO_PROXY: `host` for a host and its subdomains, `*.host` for subdomains only, `*` for all hosts. */
export interface NoProxyEntry {
  host: string;
  port: number | undefined;
  belowOnly: boolean;
}

/** Parses NO_PROXY, for example `example.com, .example.com, *.example.com, host:8080, [::1]:443, *`. */
export function parseNoProxy(text: string): NoProxyEntry[] {
  return text
    .split(/[,\s]+/)
    .filter((word) => word !== '')
    .map((word) => {
      // An IPv6 address without brackets contains several colons and no port.
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
 * Returns whether a URL bypasses the proxy. Apart from NO_PROXY entries, `HTTPS_PROXY` applies to all outgoing calls
 * (docs/interface.md). The only exception is http to the loopback interface, for example to a sandbox, which a proxy
 * cannot reach.
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
