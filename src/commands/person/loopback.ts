import type { Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { codeOf, TagferryError, UsageError } from '../../base/errors.ts';
import { createServer } from '../../base/node-http.ts';

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

/**
 * The listener that waits on loopback for the browser to come back, once (RFC 8252 section 7.3). What does not carry the
 * state of this sign-in is answered and forgotten: any page that the browser shows could send it here.
 */
export class LoopbackListener {
  readonly #redirect: URL;
  readonly #server: Server;
  readonly #comeBack = Promise.withResolvers<ComeBack>();
  #isOurs: (redirect: URL) => boolean = () => false;
  /** The last page has gone out. */
  #shown: Promise<void> = Promise.resolve();

  constructor(redirect: URL) {
    this.#redirect = redirect;
    this.#server = createServer({ maxHeaderSize: 16_384 }, (request, response) => {
      this.#answer(request.method ?? '', request.url ?? '/', response);
    });
    this.#server.requestTimeout = 10_000;
  }

  /** Listens; gives the redirect address with the port that it has now. */
  async start(): Promise<string> {
    const { hostname, port } = this.#redirect;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once('error', reject);
    this.#server.listen({ host: LOOPBACK[hostname] ?? hostname, port: Number(port || 80) }, resolve);
    await promise.catch((error: unknown) => {
      throw new TagferryError(`${this.#redirect.host} cannot be listened on (${codeOf(error)})`, {
        code: 'person.redirect_port',
        hint: 'Name another registered address with --redirect, or use --paste.',
        cause: error,
      });
    });
    if (port !== '0') return this.#redirect.href;
    const bound = new URL(this.#redirect);
    bound.port = String((this.#server.address() as AddressInfo).port);
    return bound.href;
  }

  /** The first visit that `isOurs` takes for this sign-in's. */
  wait(isOurs: (redirect: URL) => boolean): Promise<ComeBack> {
    this.#isOurs = isOurs;
    return this.#comeBack.promise;
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    await this.#shown;
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      // Browsers open sockets on suspicion and say nothing on them.
      this.#server.closeAllConnections();
    });
  }

  #answer(method: string, target: string, response: ServerResponse): void {
    const url = URL.canParse(target, this.#redirect.href) ? new URL(target, this.#redirect) : undefined;
    if (url?.pathname !== this.#redirect.pathname) page(response, 404, 'There is nothing here.');
    else if (method !== 'GET') page(response, 405, 'Only the browser that signs in comes here.');
    else if (this.#isOurs(url)) this.#take(url, response);
    else page(response, 400, 'This does not belong to the sign-in that tagferry waits for.');
  }

  #take(redirect: URL, response: ServerResponse): void {
    this.#isOurs = () => false;
    const respond = (signedIn: boolean, words: string) => {
      this.#shown = new Promise((resolve) => response.once('close', resolve).once('finish', resolve));
      page(response, signedIn ? 200 : 400, words);
    };
    this.#comeBack.resolve({ redirect, respond });
  }
}

function page(response: ServerResponse, status: number, words: string): void {
  const safe = words.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  response.writeHead(status, {
    'content-type': 'text/html; charset=utf-8',
    'cache-control': 'no-store',
    'referrer-policy': 'no-referrer',
    'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
    connection: 'close',
  });
  response.end(`<!doctype html><html lang="en"><meta charset="utf-8"><title>tagferry</title><p>${safe}</p></html>`);
}
