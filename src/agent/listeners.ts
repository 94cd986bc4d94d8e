/**
 * The three HTTP listeners. They open at the beginning of startup. Until a part accepts their requests, and again while
 * values are not accepted and during shutdown, they respond with 503 and the reason, so that senders keep their data.
 */
import type { IncomingMessage } from 'node:http';
import type { Certificates } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import { answerEarly } from '../base/inbound/body.ts';
import { type HostRule, hostRule } from '../base/inbound/host-rule.ts';
import { type InboundKind, InboundServer } from '../base/inbound/inbound-server.ts';
import type { Logger } from '../base/logger.ts';
import type { Settings } from '../config/settings.ts';
import { type Health, healthNotes, healthReport, OPS_LISTENER, sightOf } from '../ops/ops-server.ts';
import { PUSH_LISTENER } from '../sources/push/http-push.ts';
import { WEBHOOK_LISTENER } from '../webhook/listener.ts';

/** Reason why values are not accepted. */
export interface Unavailable {
  /** Event code. */
  code: string;
  /** Reason for requests without a token. Contains no paths. */
  reason: string;
  /** Complete reason for operators. Default: `reason`. */
  detail?: string;
  hint: string;
  retryAfterSeconds: number;
}

const hint = 'Retry later.';
export const STARTING = { code: 'agent.starting', reason: 'startup is not complete', hint, retryAfterSeconds: 2 };
export const STOPPING = { code: 'agent.stopping', reason: 'the agent is stopping', hint, retryAfterSeconds: 5 };
export const DECOMMISSIONING = {
  code: 'decommission.started',
  reason: 'this gateway is being decommissioned',
  hint: 'Keep the values until another gateway accepts them.',
  retryAfterSeconds: 30,
};

export interface ListenersOptions {
  settings: Partial<Settings>;
  certificates: Certificates;
  clock: Clock;
  log: Logger;
  unavailable(): Unavailable;
  /** Session state for `/healthz` and `/readyz`. */
  session(): Health['session'];
}

export class Listeners {
  readonly #options: ListenersOptions;
  /** Listeners whose addresses are set. */
  readonly ingest: InboundServer | undefined;
  readonly webhook: InboundServer | undefined;
  readonly ops: InboundServer | undefined;
  readonly #servers: InboundServer[] = [];
  #started: Promise<unknown> | undefined;

  constructor(options: ListenersOptions) {
    const { settings, session } = options;
    const { ingestListen, ingestToken, ingestHosts, opsListen, opsHosts } = settings;
    this.#options = options;
    this.ingest = this.#make(
      PUSH_LISTENER,
      ({ code, reason, hint }) => ({ error: `values are not accepted: ${reason} (${code})`, hint }),
      ingestListen && ingestToken === undefined ? hostRule(ingestListen, 'INGEST_HOSTS', ingestHosts) : undefined,
    );
    const webhookBody = ({ code, reason }: Unavailable) => ({ error: `events are not accepted: ${reason} (${code})` });
    this.webhook = this.#make(WEBHOOK_LISTENER, webhookBody);
    this.ops = this.#make(
      OPS_LISTENER,
      ({ code, reason, detail = reason }, request) => {
        const health = { ok: false, problems: healthNotes(code, [detail]), notes: [], session: session() };
        return healthReport(health, sightOf(request, { opsToken: settings.opsToken }, opsListen!));
      },
      opsListen && hostRule(opsListen, 'OPS_HOSTS', opsHosts),
    );
  }

  #make(
    kind: InboundKind & { name: 'ingest' | 'webhook' | 'ops' },
    body: (unavailable: Unavailable, request: IncomingMessage) => object,
    rule?: HostRule,
  ): InboundServer | undefined {
    const { settings, certificates, clock, log, unavailable } = this.#options;
    const { name } = kind;
    const address = settings[`${name}Listen`];
    if (!address) return undefined;
    const certFile = settings[`${name}TlsCert`];
    const keyFile = settings[`${name}TlsKey`];
    const inForce = (endsMs: number | undefined) => certificates.note(name, endsMs);
    const server = new InboundServer({
      ...kind,
      address,
      tls: certFile && keyFile ? { certFile, keyFile, settings: `${name.toUpperCase()}_TLS`, inForce } : undefined,
      clock,
      log,
      hosts: () => rule,
      serve: async (request, response) => {
        const why = unavailable();
        const headers = {
          'Content-Type': 'application/json',
          'Cache-Control': 'no-store',
          'Retry-After': String(why.retryAfterSeconds),
        };
        const text = `${JSON.stringify(body(why, request))}\n`;
        answerEarly(request, response, { status: 503, headers, text }, clock);
      },
    });
    this.#servers.push(server);
    return server;
  }

  /** Opens the listeners once. Throws a `TagferryError` with the code of the listener, or `listener.certificate`. */
  async start(): Promise<void> {
    this.#started ??= Promise.all(this.#servers.map((server) => server.start()));
    await this.#started;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.stop()));
  }
}
