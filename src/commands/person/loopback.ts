import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { codeOf, TagferryError, UsageError } from '../../base/errors.ts';
import { answerEarly } from '../../base/inbound/body.ts';
import { InboundServer } from '../../base/inbound/inbound-server.ts';
import { silentLogger } from '../../base/logger.ts';

/** Registered once in the connect subscription, so the port has to stay the same from one sign-in to the next. */
export const DEFAULT_REDIRECT = 'http://127.0.0.1:8478/callback';

const LOOPBACK: Readonly<Record<string, string>> = { '127.0.0.1': '127.0.0.1', localhost: '127.0.0.1', '[::1]': '::1' };

/** What came back from the browser, and the page that it shows then. */
export interface ComeBack {
  redirect: URL;
  respond(signedIn: boolean, words: string): void;
}

/** Reads `--redirect`. Throws `UsageError` for what can be no redirect address. */
export function redirectAddress(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const usable =
    url && (url.protocol === 'https:' || url.protocol === 'http:') && url.hash === '' && url.username === '';
  if (!usable)
    throw new UsageError(`${JSON.stringify(text)} is no redirect address`, `For example: ${DEFAULT_REDIRECT}`);
  return url;
}

/** Whether a browser on this machine, sent to that address, would find a listener here. */
export function isLoopbackRedirect(url: URL): boolean {
  return url.protocol === 'http:' && url.hostname in LOOPBACK;
}

/** One browser comes, which may open sockets on suspicion and say nothing on them. */
const LIMITS = { connections: 32, requestMs: 10_000, listenRetries: 0, stopMs: 2_000 };

/**
 * The listener that waits on loopback for the browser to come back, once (RFC 8252 section 7.3). What does not carry the
 * state of this sign-in is answered and forgotten: any page that the browser shows could send it here.
 */
export class LoopbackListener {
  readonly #redirect: URL;
  readonly #clock: Clock;
  readonly #server: InboundServer;
  readonly #comeBack = Promise.withResolvers<ComeBack>();
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
      // A verb's output is for a person, who learns from the sign-in itself how it ended.
      log: silentLogger(),
      serve: (request, response) => this.#answer(request, response),
    });
  }

  /** Listens; gives the redirect address with the port that it has now. */
  async start(): Promise<string> {
    await this.#server.start().catch((error: Error) => {
      throw new TagferryError(`${this.#redirect.host} cannot be listened on (${codeOf(error.cause)})`, {
        code: 'person.redirect_port',
        hint: 'Name another registered address with --redirect, or use --paste.',
        cause: error.cause,
      });
    });
    if (this.#redirect.port !== '0') return this.#redirect.href;
    const bound = new URL(this.#redirect);
    bound.port = String((this.#server.socketAddress as AddressInfo).port);
    return bound.href;
  }

  /** The first visit that `isOurs` takes for this sign-in's. */
  wait(isOurs: (redirect: URL) => boolean): Promise<ComeBack> {
    this.#isOurs = isOurs;
    return this.#comeBack.promise;
  }

  /** The last page goes out before. */
  stop(): Promise<void> {
    return this.#server.stop();
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const target = request.url ?? '/';
    const url = URL.canParse(target, this.#redirect.href) ? new URL(target, this.#redirect) : undefined;
    const refuse = (status: number, words: string) => answerEarly(request, response, page(status, words), this.#clock);
    if (url?.pathname !== this.#redirect.pathname) refuse(404, 'There is nothing here.');
    else if (request.method !== 'GET') refuse(405, 'Only the browser that signs in comes here.');
    else if (this.#isOurs(url)) this.#take(url, response);
    else refuse(400, 'This does not belong to the sign-in that tagferry waits for.');
  }

  #take(redirect: URL, response: ServerResponse): void {
    this.#isOurs = () => false;
    const respond = (signedIn: boolean, words: string) => {
      const { status, headers, text } = page(signedIn ? 200 : 400, words);
      response.writeHead(status, { ...headers, 'content-length': Buffer.byteLength(text) }).end(text);
    };
    this.#comeBack.resolve({ redirect, respond });
  }
}

function page(status: number, words: string) {
  const safe = words.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
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
