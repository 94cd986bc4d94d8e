import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { codeOf, TagferryError, UsageError } from '../../base/errors.ts';
import { answerEarly } from '../../base/inbound/body.ts';
import { InboundServer } from '../../base/inbound/inbound-server.ts';
import { silentLogger } from '../../base/logger.ts';

/** Registered in the connect subscription, so the port must not change. */
export const DEFAULT_REDIRECT = 'http://127.0.0.1:8478/callback';

const LOOPBACK: Readonly<Record<string, string>> = { '127.0.0.1': '127.0.0.1', localhost: '127.0.0.1', '[::1]': '::1' };

/** A browser visit to the redirect address. */
export interface RedirectVisit {
  redirect: URL;
  /** Responds with a page that shows the text. */
  respond(signedIn: boolean, text: string): void;
}

/** Parses `--redirect`. Throws `UsageError` if the address is invalid. */
export function redirectAddress(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const usable =
    url && (url.protocol === 'https:' || url.protocol === 'http:') && url.hash === '' && url.username === '';
  if (!usable)
    throw new UsageError(`${JSON.stringify(text)} is not a redirect address`, `For example: ${DEFAULT_REDIRECT}`);
  return url;
}

/** Returns whether this process can listen on the redirect address for a browser on this machine. */
export function isLoopbackRedirect(url: URL): boolean {
  return url.protocol === 'http:' && url.hostname in LOOPBACK;
}

/** Limits for one browser, which may open idle sockets speculatively. */
const LIMITS = { connections: 32, requestMs: 10_000, listenRetries: 0, stopMs: 2_000 };

/**
 * Listens on loopback for one browser visit (RFC 8252 section 7.3). Requests without the state of this sign-in are
 * rejected, because any page in the browser can send requests.
 */
export class LoopbackListener {
  readonly #redirect: URL;
  readonly #clock: Clock;
  readonly #server: InboundServer;
  readonly #visit = Promise.withResolvers<RedirectVisit>();
  #isOurs: (redirect: URL) => boolean = () => false;

  constructor(redirect: URL, clock: Clock) {
    this.#redirect = redirect;
    this.#clock = clock;
    const { hostname, port } = redirect;
    this.#server = new InboundServer({
      name: 'login',
      address: { host: LOOPBACK[hostname] ?? hostname, port: Number(port || 80) },
      setting: '--redirect',
      code: 'person.redirect_port',
      limits: LIMITS,
      clock,

      log: silentLogger(),
      serve: async (request, response) => this.#respond(request, response),
    });
  }

  /** Starts listening. Returns the redirect address with the actual port. */
  async start(): Promise<string> {
    await this.#server.start().catch((error: Error) => {
      throw new TagferryError(`cannot listen on ${this.#redirect.host} (${codeOf(error.cause)})`, {
        code: 'person.redirect_port',
        hint: 'Use another registered address with --redirect, or use --paste.',
        cause: error.cause,
      });
    });
    if (this.#redirect.port !== '0') return this.#redirect.href;
    const bound = new URL(this.#redirect);
    bound.port = String((this.#server.socketAddress as AddressInfo).port);
    return bound.href;
  }

  /** Resolves with the first visit that `isOurs` accepts. */
  wait(isOurs: (redirect: URL) => boolean): Promise<RedirectVisit> {
    this.#isOurs = isOurs;
    return this.#visit.promise;
  }

  /** Stops after pending responses are sent. */
  stop(): Promise<void> {
    return this.#server.stop();
  }

  #respond(request: IncomingMessage, response: ServerResponse): void {
    const target = request.url ?? '/';
    const url = URL.canParse(target, this.#redirect.href) ? new URL(target, this.#redirect) : undefined;
    const reject = (status: number, text: string) => answerEarly(request, response, page(status, text), this.#clock);
    if (url?.pathname !== this.#redirect.pathname) reject(404, 'Not found.');
    else if (request.method !== 'GET') reject(405, 'Method not allowed.');
    else if (this.#isOurs(url)) this.#accept(url, response);
    else reject(400, 'This request does not belong to the current sign-in.');
  }

  #accept(redirect: URL, response: ServerResponse): void {
    this.#isOurs = () => false;
    const respond = (signedIn: boolean, text: string) => {
      const { status, headers, text: html } = page(signedIn ? 200 : 400, text);
      response.writeHead(status, { ...headers, 'content-length': Buffer.byteLength(html) }).end(html);
    };
    this.#visit.resolve({ redirect, respond });
  }
}

function page(status: number, message: string) {
  const safe = message.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  return {
    status,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
      'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
      connection: 'close',
    },
    text: `<!doctype html><html lang="en"><meta charset="utf-8"><title>tagferry</title><p>${safe}</p></html>`,
  };
}
