/** Settings of the listeners, and the listeners that respond with 503 while the gateway accepts no data. */
import type { IncomingMessage } from 'node:http';
import type { Certificates } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import { answerEarly } from '../base/inbound/body.ts';
import type { CertificateFiles } from '../base/inbound/certificate.ts';
import { hostRule } from '../base/inbound/host-rule.ts';
import { InboundServer } from '../base/inbound/inbound-server.ts';
import type { Logger } from '../base/logger.ts';
import type { Settings } from '../config/settings.ts';

export type ListenerName = 'webhook' | 'ingest' | 'ops';

export type ListenerSettings = Partial<
  Pick<
    Settings,
    `${ListenerName}${'Listen' | 'TlsCert' | 'TlsKey'}` | 'ingestToken' | 'ingestHosts' | 'opsHosts' | 'opsToken'
  >
>;

/** Returns the PEM files for HTTPS on a listener, or `undefined` for HTTP. */
export function certificateFiles(
  settings: ListenerSettings,
  listener: ListenerName,
  certificates?: Certificates,
): CertificateFiles | undefined {
  const certFile = settings[`${listener}TlsCert`];
  const keyFile = settings[`${listener}TlsKey`];
  if (certFile === undefined || keyFile === undefined) return undefined;
  const inForce = (endsMs: number | undefined) => certificates?.note(listener, endsMs);
  return { certFile, keyFile, settings: `${listener.toUpperCase()}_TLS`, inForce };
}

export interface UnavailableListenerOptions {
  clock: Clock;
  log: Logger;
  /** Content of the response. */
  body(request: IncomingMessage): object;
  retryAfterSeconds(): number;
  /** Number of retries, one second apart, if the address is in use. Default: 10. */
  listenRetries?: number;
}

/**
 * Returns a listener that responds with 503 to each request without reading the body, so that senders keep their data.
 * Returns `undefined` if its address is not set.
 */
export function unavailableListener(
  settings: ListenerSettings,
  name: ListenerName,
  { body, retryAfterSeconds, clock, log, listenRetries = 10 }: UnavailableListenerOptions,
): InboundServer | undefined {
  const address = settings[`${name}Listen`];
  if (!address) return undefined;
  const rule = hostRuleOf(settings, name);
  return new InboundServer({
    name,
    address,
    setting: `${name.toUpperCase()}_LISTEN`,
    code: name === 'ingest' ? 'ingest.address_in_use' : `${name}.listen`,
    tls: certificateFiles(settings, name),
    hosts: () => rule,
    // Responses are short, so slow clients are disconnected.
    limits: { keepAliveMs: 5_000, stopMs: 0, listenRetries },
    clock,
    log,
    serve(request, response) {
      const headers = {
        'Content-Type': 'application/json',
        'Cache-Control': 'no-store',
        'Retry-After': String(retryAfterSeconds()),
      };
      answerEarly(request, response, { status: 503, headers, text: `${JSON.stringify(body(request))}\n` }, clock);
    },
  });
}

function hostRuleOf({ ingestListen, ingestToken, ingestHosts, opsListen, opsHosts }: ListenerSettings, name: string) {
  if (name === 'ops' && opsListen) return hostRule(opsListen, 'OPS_HOSTS', opsHosts);
  if (name === 'ingest' && ingestListen && ingestToken === undefined) {
    return hostRule(ingestListen, 'INGEST_HOSTS', ingestHosts);
  }
  return undefined;
}
