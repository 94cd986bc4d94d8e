import type { Clock } from '../base/clock.ts';
import { answerEarly } from '../base/inbound/body.ts';
import { hostRule } from '../base/inbound/host-rule.ts';
import { InboundServer } from '../base/inbound/inbound-server.ts';
import type { Logger } from '../base/logger.ts';
import type { Settings } from '../config/settings.ts';
import { certificateFiles } from './certificate-files.ts';

const LIMITS = { keepAliveMs: 5_000, stopMs: 0 };
/** A drain takes its time, and a program that is told to come again comes when it is over. */
const RETRY_AFTER_S = 30;

/** Where values are pushed, while none are taken in: 503, so that a program keeps what it has, and not a refused connection. */
export function refusingListener(
  settings: Settings,
  { clock, log }: { clock: Clock; log: Logger },
): InboundServer | undefined {
  const { ingestListen: address, ingestToken, ingestHosts } = settings;
  if (!address) return undefined;
  const rule = ingestToken === undefined ? hostRule(address, 'INGEST_HOSTS', ingestHosts) : undefined;
  const headers = {
    'Content-Type': 'application/json',
    'Cache-Control': 'no-store',
    'Retry-After': String(RETRY_AFTER_S),
  };
  const error = 'no values are taken in: this gateway is being decommissioned';
  const text = `${JSON.stringify({ error, hint: 'Keep them until another takes them.' })}\n`;
  return new InboundServer({
    name: 'ingest',
    address,
    setting: 'INGEST_LISTEN',
    code: 'ingest.address_in_use',
    tls: certificateFiles(settings, 'ingest'),
    hosts: () => rule,
    limits: { ...LIMITS, listenRetries: 10 },
    clock,
    log,
    serve: (request, response) => answerEarly(request, response, { status: 503, headers, text }, clock),
  });
}
