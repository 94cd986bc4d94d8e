import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Clock, systemClock } from '../../../../src/base/clock.ts';
import { PlatformError } from '../../../../src/base/errors.ts';
import { ApiCalls, type PlatformCall } from '../../../../src/platform/client.ts';
import type { PlatformAnswer } from '../../../../src/platform/http-boundary.ts';
import { PlatformClock } from '../../../../src/platform/platform-clock.ts';
import { SANDBOX_CREDENTIALS, type Sandbox } from '../../../../src/sandbox/sandbox.ts';
import { requestBody } from '../../doubles/request-body.ts';

/** HTTP client without a session. */
export class TestPlatform extends ApiCalls {
  readonly calls: PlatformCall[] = [];
  token = '';
  override readonly platformClock: PlatformClock;
  #base: () => string;

  constructor(base: () => string, clock: Clock = systemClock) {
    super();
    this.#base = base;
    this.platformClock = new PlatformClock(clock);
  }

  /** Logs in at a sandbox. */
  static async at(sandbox: Sandbox): Promise<TestPlatform> {
    const platform = new TestPlatform(() => sandbox.url);
    const { clientId, clientSecret, technicalUsername, technicalPassword } = SANDBOX_CREDENTIALS;
    const answer = await fetch(`${sandbox.url}/oauth/token`, {
      method: 'POST',
      body: new URLSearchParams({
        grant_type: 'password',
        username: technicalUsername,
        password: technicalPassword,
        client_id: clientId,
        client_secret: clientSecret,
      }),
    });
    platform.token = ((await answer.json()) as { access_token: string }).access_token;
    return platform;
  }

  async request(call: PlatformCall): Promise<PlatformAnswer> {
    this.calls.push(call);
    const url = new URL(this.#base() + call.path);
    for (const [name, value] of Object.entries(call.query ?? {}))
      if (value !== undefined) url.searchParams.set(name, String(value));
    try {
      const answer = await fetch(url, {
        method: call.method,
        headers: {
          authorization: `Bearer ${this.token}`,
          ...(call.body ? { 'content-type': 'application/json' } : {}),
        },
        ...(call.body ? { body: JSON.stringify(call.body) } : {}),
        ...(call.signal ? { signal: call.signal } : {}),
      });
      const text = await answer.text();
      const header = (name: string) => answer.headers.get(name) ?? undefined;
      if (answer.ok) this.platformClock.read({ status: 200, header, text: '{"access_token":"a"}', redact: String });
      return { status: answer.status, header, text, redact: String };
    } catch (error) {
      throw new PlatformError('no answer', { code: 'platform.connection_reset', retryable: true, cause: error });
    }
  }

  /** Calls so far, as `METHOD path`. */
  get story(): string[] {
    return this.calls.map(({ method, path }) => `${method} ${path}`);
  }
}

export interface StubRequest {
  method: string;
  path: string;
  query: URLSearchParams;
  body: string;
}
export type StubAnswer = { status: number; json?: unknown; text?: string; headers?: Record<string, string> } | 'drop';

/** A platform whose responses the test defines. */
export class StubPlatform {
  readonly requests: StubRequest[] = [];
  answer: (request: StubRequest) => StubAnswer = () => ({ status: 404 });
  readonly #server: Server = createServer(async (request, response) => {
    const body = (await requestBody(request))?.toString();
    if (body === undefined) return;
    const url = new URL(request.url!, 'http://x');
    const seen = { method: request.method!, path: url.pathname, query: url.searchParams, body };
    this.requests.push(seen);
    const answer = this.answer(seen);
    if (answer === 'drop') return void request.socket.destroy();
    const text = answer.text ?? (answer.json === undefined ? '' : JSON.stringify(answer.json));
    response.writeHead(answer.status, answer.headers ?? {}).end(text);
  });

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
