import { lookup } from 'node:dns/promises';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls, rootCertificates } from 'node:tls';
import { endsSoon } from '../../base/certificates.ts';
import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import { Redactor } from '../../base/redactor.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { createDispatcher, proxyFor } from '../../platform/dispatcher.ts';
import { HttpBoundary } from '../../platform/http-boundary.ts';
import { transportError } from '../../platform/transport-errors.ts';
import { type CheckLine, type DoctorContext, failure, ok, warning } from './context.ts';

const TIMEOUT_MS = 10_000;

/** Checks DNS, TCP, TLS and HTTP access to the platform, through the proxy if one is configured. */
export async function checkNetwork(context: DoctorContext): Promise<CheckLine[]> {
  const { settings } = context;
  if (settings.platformUrl === undefined) return [];
  const urls = [new URL(settings.platformUrl)];
  if (settings.identityUrl && new URL(settings.identityUrl).origin !== urls[0]!.origin) {
    urls.push(new URL(settings.identityUrl));
  }
  const lines: CheckLine[] = [];
  for (const [i, url] of urls.entries()) {
    const proxy = proxyFor(url, settings.httpsProxy, settings.noProxy);
    const found = proxy ? await checkWay(proxy, 'proxy', context) : await checkWay(url, 'network', context);
    lines.push(...found);
    if (found.some((line) => line.state === 'failure')) continue;
    const answer = await checkHttp(url, context);
    lines.push(answer);
    if (i === 0) context.platformAnswers = answer.state !== 'failure';
  }
  return lines;
}

/** Stops at the first failure, because later steps would fail for the same reason. */
async function checkWay(url: URL, name: 'network' | 'proxy', context: DoctorContext): Promise<CheckLine[]> {
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
  const lines: CheckLine[] = [];
  try {
    const found = await lookup(host, { all: true });
    const shown = [...new Set(found.map(({ address }) => address))].slice(0, 4).join(', ');
    lines.push(ok(`${name}.dns`, `${host} resolves to ${shown}`));
  } catch (error) {
    const next = 'Check the host name and the name server (`resolvectl status` or /etc/resolv.conf).';
    return [failure(`${name}.dns`, `cannot resolve ${host} (${codeOf(error) ?? messageOf(error)})`, next)];
  }
  const refused = await connectError(host, port);
  if (refused !== undefined) {
    const next =
      name === 'proxy'
        ? 'Check HTTPS_PROXY, and that the proxy is running.'
        : refused === 'ECONNREFUSED'
          ? 'Check the host and port of PLATFORM_URL and IDENTITY_URL, and the firewall.'
          : `Open outgoing TCP port ${port} in the firewall, or set HTTPS_PROXY. Check the default route (\`ip route\`).`;
    return [...lines, failure(`${name}.tcp`, `cannot connect to ${host} port ${port} (${refused})`, next)];
  }
  lines.push(ok(`${name}.tcp`, `${host} port ${port} accepts connections`));
  if (url.protocol === 'https:') lines.push(await checkTls(url, host, port, name, context));
  return lines;
}

/** Returns the reason why a connection failed; `undefined` on success. */
export function connectError(host: string, port: number, timeoutMs = TIMEOUT_MS): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connectTcp({ host, port });
    const end = (trouble: string | undefined) => {
      socket.destroy();
      resolve(trouble);
    };
    socket.setTimeout(timeoutMs, () => end('timeout'));
    socket.once('connect', () => end(undefined));
    socket.once('error', (error) => end(codeOf(error) ?? messageOf(error)));
  });
}

function checkTls(
  url: URL,
  host: string,
  port: number,
  name: string,
  { settings: { platformCa }, clock }: DoctorContext,
): Promise<CheckLine> {
  const check = `${name}.tls`;
  let ca: string[] | undefined;
  try {
    if (platformCa !== undefined) ca = [...rootCertificates, readRegularFileSync(platformCa).bytes.toString()];
  } catch (error) {
    const next = 'Specify a PEM file that this user can read.';
    return Promise.resolve(failure(check, `cannot read PLATFORM_CA (${codeOf(error)})`, next));
  }
  return new Promise((resolve) => {
    const servername = /^[\d.:]+$/.test(host) ? undefined : host;
    const socket = connectTls({ host, port, ...(ca ? { ca } : {}), ...(servername ? { servername } : {}) });
    const fail = (error: unknown) => {
      socket.destroy();
      const translated = transportError(error, url.origin);
      resolve(
        failure(
          check,
          translated.message,
          translated.hint ?? `Run \`openssl s_client -connect ${host}:${port}\` to find the cause.`,
        ),
      );
    };
    socket.setTimeout(TIMEOUT_MS, () => fail({ code: 'ETIMEDOUT' }));
    socket.once('error', fail);
    socket.once('secureConnect', () => {
      const { valid_to: end, issuer } = socket.getPeerCertificate();
      const protocol = socket.getProtocol();
      socket.destroy();
      const by = issuer?.O ?? issuer?.CN ?? 'an unnamed certificate authority';
      const text = `${protocol}, certificate issued by ${by}, valid until ${end}`;
      const endMs = Date.parse(end);
      resolve(
        endsSoon(endMs, clock.wallMs())
          ? warning(check, text, 'The certificate expires soon. The platform operator must renew it.')
          : ok(check, text),
      );
    });
  });
}

/** Any status below 500 passes. */
async function checkHttp(url: URL, { settings, clock, version }: DoctorContext): Promise<CheckLine> {
  let boundary: HttpBoundary | undefined;
  try {
    const sockets = createDispatcher({
      connections: 1,
      caPem: settings.platformCa === undefined ? undefined : readRegularFileSync(settings.platformCa).bytes.toString(),
      httpsProxy: settings.httpsProxy,
      noProxy: settings.noProxy,
    });
    boundary = new HttpBoundary({ sockets, clock, redactor: new Redactor(), userAgent: `tagferry/${version}` });
    const response = await boundary.send({ method: 'GET', url, deadlineMs: TIMEOUT_MS, maxAnswerBytes: 65_536 });
    if (response.status >= 500) {
      const next = 'The platform has a problem. Run the command again later.';
      return warning('network.http', `${url.origin} responds with ${response.status}`, next);
    }
    return ok('network.http', `${url.origin} responds`);
  } catch (error) {
    const hint = error instanceof TagferryError ? error.hint : undefined;
    return failure('network.http', messageOf(error), hint ?? 'Check PLATFORM_URL, proxies and firewalls.');
  } finally {
    await boundary?.close();
  }
}
