import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { CertificateFiles } from '../base/inbound/certificate.ts';
import { hostRule } from '../base/inbound/host-rule.ts';
import { InboundServer } from '../base/inbound/inbound-server.ts';
import type { PageFiles } from '../base/inbound/page-files.ts';
import { SharedToken } from '../base/inbound/shared-token.ts';
import { isLocalAddress, type ListenAddress } from '../base/listen.ts';
import type { Logger } from '../base/logger.ts';
import type { Settings } from '../config/settings.ts';
import type { DoctorRun } from './live/doctor-run.ts';
import type { Sight } from './live/live-events.ts';
import type { LiveStream } from './live/live-stream.ts';

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
  page: PageFiles;
  live: Pick<LiveStream, 'open' | 'stop'>;
  doctor: Pick<DoctorRun, 'report'>;
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

const PATHS: ReadonlySet<string> = new Set([
  '/',
  '/healthz',
  '/readyz',
  '/status',
  '/metrics',
  '/live/stream',
  '/live/doctor',
]);

/** Read-only: health, readiness, status and metrics for programs that watch, the page for people. */
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
    this.#sources.live.stop();
    return this.#server.stop();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { page, live } = this.#sources;
    const [path = '/', query] = (request.url ?? '/').split('?');
    const file = path.startsWith('/page/') ? path.slice('/page/'.length) : undefined;
    if (file === undefined && !PATHS.has(path)) return send(response, 404, { error: 'not found' });
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      return send(response, 405, { error: 'read-only' });
    }
    if (file !== undefined) {
      if (!(await page.answerFile(request, response, file))) send(response, 404, { error: 'not found' });
      return;
    }
    if (path === '/metrics') {
      const { contentType, text } = await this.#sources.metrics();
      response.writeHead(200, { 'Content-Type': contentType });
      response.end(text);
      return;
    }
    if (path === '/healthz' || path === '/readyz') {
      const health = path === '/healthz' ? this.#sources.health() : this.#sources.readiness();
      const { ok, problems, notes, session } = health;
      return send(response, ok ? 200 : 503, { status: ok ? 'ok' : 'unavailable', problems, notes, session });
    }
    const sight = this.#sightOf(request);
    // The page holds nothing of the plant: with the status of a refusal it is the form that asks for the token.
    if (path === '/') return page.answerPage(request, response, typeof sight === 'string' ? 200 : sight.status);
    if (typeof sight !== 'string') return this.#refuse(response, sight, path);
    if (path === '/live/doctor') return this.#consult(response, sight);
    if (path === '/live/stream') live.open(request, response, new URLSearchParams(query), sight);
    else send(response, 200, await this.#sources.status());
  }

  async #consult(response: ServerResponse, sight: Sight): Promise<void> {
    if (sight !== 'all') return send(response, 403, { error: 'the doctor is shown with OPS_TOKEN alone' });
    try {
      send(response, 200, await this.#sources.doctor.report());
    } catch (error) {
      send(response, 503, { error: messageOf(error) });
    }
  }

  /** What the request may see of what the plant does, or why nothing. */
  #sightOf(request: IncomingMessage): Sight | Refusal {
    if (this.#token === undefined) return isLocalAddress(this.#options.address) ? 'status' : NO_TOKEN_SET;
    return this.#token.isShown(request.headers.authorization, null) ? 'all' : NO_TOKEN_SHOWN;
  }

  #refuse(response: ServerResponse, { status, error, hint }: Refusal, path: string): void {
    // A browser would ask for the password that `Basic` offers, over the page's own form.
    const basic = path === '/status' ? ['Basic realm="tagferry", charset="UTF-8"'] : [];
    if (status === 401) response.setHeader('WWW-Authenticate', ['Bearer realm="tagferry"', ...basic]);
    send(response, status, { error, hint });
  }
}

interface Refusal {
  status: 401 | 403;
  error: string;
  hint: string;
}

const NO_TOKEN_SET: Refusal = {
  status: 403,
  error: 'this is shown on loopback alone while OPS_TOKEN is empty',
  hint: 'Set OPS_TOKEN in agent.env, reload, and send it as Authorization: Bearer, or as the password in a browser.',
};
const NO_TOKEN_SHOWN: Refusal = {
  status: 401,
  error: 'the token is missing or wrong',
  hint: 'Send Authorization: Bearer and OPS_TOKEN.',
};

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' });
  response.end(`${JSON.stringify(body)}\n`);
}
