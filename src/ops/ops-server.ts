import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../base/clock.ts';
import type { CertificateFiles } from '../base/inbound/certificate.ts';
import { hostRule } from '../base/inbound/host-rule.ts';
import { InboundServer } from '../base/inbound/inbound-server.ts';
import { SharedToken } from '../base/inbound/shared-token.ts';
import { isLocalAddress, type ListenAddress } from '../base/listen.ts';
import type { Logger } from '../base/logger.ts';
import type { Settings } from '../config/settings.ts';

/** What `/healthz` and `/readyz` say. */
interface Health {
  ok: boolean;
  /** Why not, one sentence each; empty where all is well. */
  problems: string[];
  /** What is wrong and no restart mends: dead sources, refused files. It leaves health as it is. */
  notes: string[];
  /** The session's state, grant, age and time to renewal: a platform that is away is no fault of the agent's health. */
  session: unknown;
}

export interface OpsSources {
  health(): Health;
  readiness(): Health;
  /** What `tagferry status` shows, too. */
  status(): unknown;
  metrics(): Promise<{ contentType: string; text: string }>;
}

/** Who may see what; a reload changes it. Without OPS_TOKEN the status is shown on loopback and sockets alone. */
export type OpsAccess = Pick<Settings, 'opsToken' | 'opsHosts'>;

export interface OpsServerOptions {
  address: ListenAddress;
  tls?: CertificateFiles | undefined;
  access: OpsAccess;
  clock: Clock;
  log: Logger;
}

const LIMITS = { connections: 64, headerBytes: 8_192, requestMs: 10_000, keepAliveMs: 5_000, stopMs: 1_000 };

/** Read-only: health, readiness, status and metrics for those who watch. */
export class OpsServer {
  readonly #sources: OpsSources;
  readonly #server: InboundServer;

  readonly #options: OpsServerOptions;
  #token: SharedToken | undefined;
  #hosts: readonly string[] | undefined;

  constructor(sources: OpsSources, options: OpsServerOptions) {
    this.#sources = sources;
    this.#options = options;
    this.setAccess(options.access);
    this.#server = new InboundServer({
      ...options,
      name: 'ops',
      setting: 'OPS_LISTEN',
      code: 'ops.listen',
      limits: LIMITS,
      hosts: () => hostRule(options.address, 'OPS_HOSTS', this.#hosts),
      serve: (request, response) => {
        this.#answer(request, response).catch(() => {
          if (!response.headersSent) response.writeHead(500);
          response.end();
        });
      },
    });
  }

  /** A reload's OPS_TOKEN and OPS_HOSTS, for every request from now on. */
  setAccess({ opsToken: token, opsHosts: hosts }: OpsAccess): void {
    this.#token = token === undefined ? undefined : new SharedToken(token);
    this.#hosts = hosts;
  }

  get address(): string | undefined {
    return this.#server.address;
  }

  start(): Promise<void> {
    return this.#server.start();
  }

  stop(): Promise<void> {
    return this.#server.stop();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '/').split('?')[0];
    if (!['/healthz', '/readyz', '/status', '/metrics'].includes(path!))
      return send(response, 404, { error: 'not found' });
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      return send(response, 405, { error: 'read-only' });
    }
    if (path === '/metrics') {
      const { contentType, text } = await this.#sources.metrics();
      response.writeHead(200, { 'Content-Type': contentType });
      response.end(text);
      return;
    }
    if (path === '/status') {
      if (this.#admits(request, response)) send(response, 200, await this.#sources.status());
      return;
    }
    const health = path === '/healthz' ? this.#sources.health() : this.#sources.readiness();
    const { ok, problems, notes, session } = health;
    send(response, ok ? 200 : 503, { status: ok ? 'ok' : 'unavailable', problems, notes, session });
  }

  /** Whether the request may see what the plant does; answers it where it may not. */
  #admits(request: IncomingMessage, response: ServerResponse): boolean {
    if (this.#token === undefined) {
      if (isLocalAddress(this.#options.address)) return true;
      send(response, 403, {
        error: 'this is shown on loopback alone while OPS_TOKEN is empty',
        hint: 'Set OPS_TOKEN in agent.env, reload, and send it as Authorization: Bearer, or as the password in a browser.',
      });
      return false;
    }
    if (this.#token.isShown(request.headers.authorization, null)) return true;
    response.setHeader('WWW-Authenticate', ['Bearer realm="tagferry"', 'Basic realm="tagferry", charset="UTF-8"']);
    send(response, 401, { error: 'the token is missing or wrong', hint: 'Send Authorization: Bearer and OPS_TOKEN.' });
    return false;
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' });
  response.end(`${JSON.stringify(body)}\n`);
}
