import { lookup } from 'node:dns/promises';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls, rootCertificates } from 'node:tls';
import { endsSoon } from '../../base/certificates.ts';
import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import { Redactor } from '../../base/redactor.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { createDispatcher } from '../../platform/dispatcher.ts';
import { HttpBoundary } from '../../platform/http-boundary.ts';
import { goesDirect, parseNoProxy } from '../../platform/no-proxy.ts';
import { transportError } from '../../platform/transport-errors.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';

const PATIENCE_MS = 10_000;

/** DNS, TCP, TLS and HTTP of the platform, each from this machine; through the proxy where one is configured. */
export async function checkNetwork(consultation: Consultation): Promise<CheckLine[]> {
  const { settings } = consultation;
  if (settings.platformUrl === undefined) return [];
  const urls = [new URL(settings.platformUrl)];
  if (settings.identityUrl && new URL(settings.identityUrl).origin !== urls[0]!.origin) {
    urls.push(new URL(settings.identityUrl));
  }
  const lines: CheckLine[] = [];
  for (const [i, url] of urls.entries()) {
    const proxy = proxyFor(url, settings);
    const found = proxy ? await checkWay(proxy, 'proxy', consultation) : await checkWay(url, 'network', consultation);
    lines.push(...found);
    if (found.some((line) => line.state === 'failure')) continue;
    const answer = await checkHttp(url, consultation);
    lines.push(answer);
    if (i === 0) consultation.platformAnswers = answer.state !== 'failure';
  }
  return lines;
}

function proxyFor(url: URL, settings: Consultation['settings']): URL | undefined {
  if (!settings.httpsProxy || goesDirect(url, parseNoProxy(settings.noProxy ?? ''))) return undefined;
  return new URL(settings.httpsProxy);
}

/** Each step only where the one before went well: it would only say the same again. */
async function checkWay(url: URL, name: 'network' | 'proxy', consultation: Consultation): Promise<CheckLine[]> {
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
  const lines: CheckLine[] = [];
  try {
    const found = await lookup(host, { all: true });
    const shown = [...new Set(found.map(({ address }) => address))].slice(0, 4).join(', ');
    lines.push(ok(`${name}.dns`, `${host} is ${shown}`));
  } catch (error) {
    const next = 'Check the name, and the name server: `resolvectl status` or /etc/resolv.conf.';
    return [failure(`${name}.dns`, `${host} has no address (${codeOf(error) ?? messageOf(error)})`, next)];
  }
  const refused = await tcpTrouble(host, port);
  if (refused !== undefined) {
    const next =
      name === 'proxy'
        ? 'Check HTTPS_PROXY, and that the proxy runs.'
        : refused === 'ECONNREFUSED'
          ? `Nobody listens there, or a firewall refuses it: check host and port of PLATFORM_URL and IDENTITY_URL.`
          : `Open outgoing TCP port ${port} in the firewall, or set HTTPS_PROXY; check the default route (\`ip route\`).`;
    return [...lines, failure(`${name}.tcp`, `${host} port ${port} takes no connection (${refused})`, next)];
  }
  lines.push(ok(`${name}.tcp`, `${host} port ${port} takes connections`));
  if (url.protocol === 'https:') lines.push(await checkTls(url, host, port, name, consultation));
  return lines;
}

/** Why no connection came to be; `undefined` where one did. */
export function tcpTrouble(host: string, port: number, patienceMs = PATIENCE_MS): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connectTcp({ host, port });
    const end = (trouble: string | undefined) => {
      socket.destroy();
      resolve(trouble);
    };
    socket.setTimeout(patienceMs, () => end('no answer in time'));
    socket.once('connect', () => end(undefined));
    socket.once('error', (error) => end(codeOf(error) ?? messageOf(error)));
  });
}

function checkTls(
  url: URL,
  host: string,
  port: number,
  name: string,
  { settings: { platformCa }, clock }: Consultation,
): Promise<CheckLine> {
  const check = `${name}.tls`;
  let ca: string[] | undefined;
  try {
    if (platformCa !== undefined) ca = [...rootCertificates, readRegularFileSync(platformCa).bytes.toString()];
  } catch (error) {
    const next = 'Name a PEM file that this user may read.';
    return Promise.resolve(failure(check, `PLATFORM_CA cannot be read (${codeOf(error)})`, next));
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
          translated.hint ?? 'Look at what stands between: `openssl s_client -connect`.',
        ),
      );
    };
    socket.setTimeout(PATIENCE_MS, () => fail({ code: 'ETIMEDOUT' }));
    socket.once('error', fail);
    socket.once('secureConnect', () => {
      const { valid_to: end, issuer } = socket.getPeerCertificate();
      const protocol = socket.getProtocol();
      socket.destroy();
      const by = issuer?.O ?? issuer?.CN ?? 'an unnamed authority';
      const text = `${protocol} with a certificate of ${by} until ${end}`;
      const endMs = Date.parse(end);
      resolve(
        endsSoon(endMs, clock.wallMs())
          ? warning(check, text, 'It ends soon: the platform has to renew it.')
          : ok(check, text),
      );
    });
  });
}

/** Any status will do: something that speaks HTTP answers. */
async function checkHttp(url: URL, { settings, clock, version }: Consultation): Promise<CheckLine> {
  let boundary: HttpBoundary | undefined;
  try {
    const sockets = createDispatcher({
      connections: 1,
      caPem: settings.platformCa === undefined ? undefined : readRegularFileSync(settings.platformCa).bytes.toString(),
      httpsProxy: settings.httpsProxy,
      noProxy: settings.noProxy,
    });
    boundary = new HttpBoundary({ sockets, clock, redactor: new Redactor(), userAgent: `tagferry/${version}` });
    const answer = await boundary.send({ method: 'GET', url, deadlineMs: PATIENCE_MS, maxAnswerBytes: 65_536 });
    if (answer.status >= 500) {
      return warning('network.http', `${url.origin} answers ${answer.status}`, 'The platform is not well: try later.');
    }
    return ok('network.http', `${url.origin} answers`);
  } catch (error) {
    const hint = error instanceof TagferryError ? error.hint : undefined;
    return failure('network.http', messageOf(error), hint ?? 'Check PLATFORM_URL and what stands between.');
  } finally {
    await boundary?.close();
  }
}
