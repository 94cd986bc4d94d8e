/**
 * Serves the files of a page built by `scripts/build-page.ts`. The page itself is not cached. The files it references
 * have content hashes in their names and are cached indefinitely. Only built files can be requested. `PAGE_HEADERS`
 * restricts the page in the browser.
 */
import { readdir, readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';

/**
 * The page connects only to its own origin, runs no inline script, submits no form, cannot be embedded in a
 * frame, and sends no referrer.
 */
const PAGE_HEADERS = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
};

const TYPES: Readonly<Record<string, string>> = {
  css: 'text/css; charset=utf-8',
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
};

/** In order of preference. */
const ENCODINGS = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const;

export class PageFiles {
  readonly #folder: URL;
  #names: ReadonlySet<string> | undefined;

  /** `folder` is the build output of one page, with a trailing slash. */
  constructor(folder: URL) {
    this.#folder = folder;
  }

  /** Sends the page with the given status, or 503 if it was not built. */
  async answerPage(request: IncomingMessage, response: ServerResponse, status = 200): Promise<void> {
    if (await this.#send(request, response, 'index.html', status, 'no-cache')) return;
    const error = { error: 'page not found', hint: 'In a source checkout, run `npm run build`.' };
    response.writeHead(503, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' });
    response.end(`${JSON.stringify(error)}\n`);
  }

  /** Sends a file referenced by the page. Returns `false` if it does not exist. */
  async answerFile(request: IncomingMessage, response: ServerResponse, name: string): Promise<boolean> {
    return await this.#send(request, response, name, 200, 'public, max-age=31536000, immutable');
  }

  async #send(
    request: IncomingMessage,
    response: ServerResponse,
    name: string,
    status: number,
    keep: string,
  ): Promise<boolean> {
    if (!(await this.#find()).has(name)) {
      // The page may have been rebuilt in a source checkout.
      this.#names = undefined;
      if (!(await this.#find()).has(name)) return false;
    }
    const accepted = encodingsOf(request.headers['accept-encoding']);
    const [encoding, ending] = ENCODINGS.find(([each]) => accepted.has(each)) ?? [undefined, ''];
    const body = await readFile(new URL(`${name}${ending}`, this.#folder));
    response.writeHead(status, {
      ...PAGE_HEADERS,
      'Content-Type': TYPES[name.slice(name.lastIndexOf('.') + 1)]!,
      'Content-Length': body.length,
      ...(encoding ? { 'Content-Encoding': encoding } : {}),
      Vary: 'Accept-Encoding',
      'Cache-Control': keep,
    });
    response.end(request.method === 'HEAD' ? undefined : body);
    return true;
  }

  /** Returns the names of the files that may be requested. */
  async #find(): Promise<ReadonlySet<string>> {
    this.#names ??= new Set(
      await readdir(this.#folder).then(
        (names) => names.filter((name) => name.slice(name.lastIndexOf('.') + 1) in TYPES),
        () => [],
      ),
    );
    return this.#names;
  }
}

/** Returns the accepted encodings, excluding those with `q=0`. */
export function encodingsOf(header: string | string[] | undefined): ReadonlySet<string> {
  const parts = String(header ?? '').split(',');
  const taken = parts.filter((part) => !/;\s*q=0(\.0*)?\s*$/.test(part));
  return new Set(taken.map((part) => part.split(';')[0]!.trim().toLowerCase()));
}
