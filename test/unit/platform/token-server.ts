import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Clock } from '../../../src/base/clock.ts';
import { freePort } from '../../../src/base/port-claim.ts';
import { requestBody } from '../doubles/request-body.ts';

export interface IssuedToken {
  access: string;
  refresh: string;
  grant: string;
  issuedMs: number;
  expiresMs: number;
  refreshUntilMs: number;
  revokedMs: number | undefined;
  refreshUsed: boolean;
}

export interface SeenRequest {
  path: string;
  /** Path and query. */
  target: string;
  form: URLSearchParams;
  headers: IncomingMessage['headers'];
  body: string;
  bytes: Buffer;
  method: string;
}

type Fault = (request: SeenRequest, response: ServerResponse) => boolean | Promise<boolean>;

/**
 * Minimal platform with strict token rules: `violations` records everything that a client must never do. Uses the test
 * clock. Without `rotate`, a refresh returns the same refresh token.
 */
export class TokenServer {
  readonly tokens: IssuedToken[] = [];
  readonly seen: SeenRequest[] = [];
  readonly violations: string[] = [];
  /** Issued and revoked tokens in order, such as `issue:1` and `revoke:1`. */
  readonly story: string[] = [];
  /** Called in order before the server responds. A fault that handles the request returns true. */
  faults: Fault[] = [];
  rotate = true;
  lifeS = 660;
  refreshLifeS = 24 * 3600;
  password = 'pass word/ä';
  mostTokenRequestsAtOnce = 0;
  #tokenRequests = 0;
  readonly #clock: Clock;
  #server: Server | undefined;
  #port = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async start(): Promise<void> {
    this.#port ||= await freePort();
    const server = createServer((request, response) => void this.#answer(request, response));
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(this.#port, '127.0.0.1', resolve));
  }

  async stop(): Promise<void> {
    const server = this.#server;
    if (!server) return;
    this.#server = undefined;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }

  count(path: string, grant?: string): number {
    return this.seen.filter((one) => one.path === path && (!grant || one.form.get('grant_type') === grant)).length;
  }

  alive(): IssuedToken[] {
    return this.tokens.filter((token) => token.revokedMs === undefined && token.expiresMs > this.#nowMs());
  }

  /** Replaces the response to the next request of the path. */
  once(path: string, answer: (response: ServerResponse) => void, grant?: string): void {
    const fault: Fault = (request, response) => {
      if (request.path !== path || (grant && request.form.get('grant_type') !== grant)) return false;
      this.faults = this.faults.filter((other) => other !== fault);
      answer(response);
      return true;
    };
    this.faults.push(fault);
  }

  issue(grant: string, refresh?: IssuedToken): IssuedToken {
    const number = this.tokens.length + 1;
    const nowMs = this.#nowMs();
    const token: IssuedToken = {
      access: `access-token-${number}-${'x'.repeat(20)}`,
      refresh: refresh && !this.rotate ? refresh.refresh : `refresh-token-${number}-${'y'.repeat(20)}`,
      grant,
      issuedMs: nowMs,
      expiresMs: nowMs + this.lifeS * 1000,
      refreshUntilMs: refresh && !this.rotate ? refresh.refreshUntilMs : nowMs + this.refreshLifeS * 1000,
      revokedMs: undefined,
      refreshUsed: false,
    };
    this.tokens.push(token);
    this.story.push(`issue:${number}`);
    return token;
  }

  #nowMs(): number {
    return this.#clock.monotonicMs();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const bytes = await requestBody(request);
    if (!bytes) return;
    const body = bytes.toString();
    const isForm = request.headers['content-type']?.startsWith('application/x-www-form-urlencoded') === true;
    const seen: SeenRequest = {
      path: (request.url ?? '').split('?')[0]!,
      target: request.url ?? '',
      form: new URLSearchParams(isForm ? body : ''),
      headers: request.headers,
      body,
      bytes,
      method: request.method ?? '',
    };
    this.seen.push(seen);
    for (const fault of [...this.faults]) if (await fault(seen, response)) return;
    if (seen.path === '/oauth/token') {
      this.#tokenRequests++;
      this.mostTokenRequestsAtOnce = Math.max(this.mostTokenRequestsAtOnce, this.#tokenRequests);
      // Concurrent requests are counted during this turn of the event loop.
      await new Promise((resolve) => setImmediate(resolve));
      this.#tokenRequests--;
      this.#token(seen, response);
    } else if (seen.path === '/oauth/revoke') this.#revoke(seen, response);
    else this.#api(seen, response);
  }

  #token(seen: SeenRequest, response: ServerResponse): void {
    const grant = seen.form.get('grant_type');
    if (grant === 'password') {
      if (seen.form.get('password') === this.password) this.#give(response, this.issue('password'));
      else refuse(response, 'invalid_grant');
      return;
    }
    const given = seen.form.get('refresh_token');
    const old = this.tokens.findLast((token) => token.refresh === given);
    const dead = !old || old.refreshUsed || old.refreshUntilMs <= this.#nowMs() || old.revokedMs !== undefined;
    if (dead) {
      refuse(response, 'invalid_grant');
      return;
    }
    if (this.rotate) old.refreshUsed = true;
    this.#give(response, this.issue('refresh_token', old));
  }

  #give(response: ServerResponse, token: IssuedToken): void {
    json(response, 200, {
      access_token: token.access,
      token_type: 'Bearer',
      expires_in: this.lifeS,
      refresh_token: token.refresh,
      created_at: Math.floor(this.#clock.wallMs() / 1000) - 86_400,
    });
  }

  #revoke(seen: SeenRequest, response: ServerResponse): void {
    const text = seen.form.get('token');
    const token = this.tokens.find((one) => one.access === text || one.refresh === text);
    if (!token) this.violations.push('revoked an unknown token');
    else if (text === token.access && token.expiresMs <= this.#nowMs())
      this.violations.push(`revoked ${token.access} after its expiry`);
    else if (token.revokedMs !== undefined) this.violations.push(`revoked ${token.access} twice`);
    else {
      this.story.push(`revoke:${this.tokens.indexOf(token) + 1}`);
      for (const mate of this.tokens) {
        if (mate.refresh === token.refresh && mate !== token) mate.refreshUsed = true;
      }
      token.revokedMs = this.#nowMs();
      token.refreshUsed = true;
    }
    json(response, 200, {});
  }

  #api(seen: SeenRequest, response: ServerResponse): void {
    const text = seen.headers.authorization?.replace(/^Bearer /, '');
    const token = this.tokens.find((one) => one.access === text);
    const dead = !token || token.revokedMs !== undefined || token.expiresMs <= this.#nowMs();
    if (dead) this.violations.push(`a call contained an invalid token (${text})`);
    const errors = [{ type: 'unauthorized', message: 'token is not valid' }];
    json(response, dead ? 401 : 200, dead ? { errors } : { ok: true });
  }
}

export function json(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}

function refuse(response: ServerResponse, error: string, status = 400): void {
  json(response, status, { error, error_description: `because of ${error}` });
}
