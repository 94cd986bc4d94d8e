/**
 * The files of a page, as `scripts/build-page.ts` left them: the page itself, which is looked for anew each time, and what it names,
 * which has the hash of its content in its name and is kept for ever. Nothing else of the machine can be asked for: a name that was not
 * built is not there. What it may do in the browser stands in `PAGE_HEADERS`.
 */
import { readdir, readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';

/**
 * The page asks nobody but the address that it came from, runs nothing that stands in its text, sends no form, stands in no
 * other's frame, and tells nobody where it was.
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

/** In the order of what is shorter. */
const ENCODINGS = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const;

export class PageFiles {
  readonly #folder: URL;
  #names: ReadonlySet<string> | undefined;

  /** `folder`: what one page was built into, with a slash at its end. */
  constructor(folder: URL) {
    this.#folder = folder;
  }

  /** The page itself, whatever the status says of what it will show. 503 where it was not built. */
  async answerPage(request: IncomingMessage, response: ServerResponse, status = 200): Promise<void> {
    if (await this.#send(request, response, 'index.html', status, 'no-cache')) return;
    const error = { error: 'the page is not there', hint: 'In a checkout `npm run build` makes it.' };
    response.writeHead(503, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' });
    response.end(`${JSON.stringify(error)}\n`);
  }

  /** A file that the page names. Gives whether there is one of that name. */
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
      // Another may have been built since, in a checkout.
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

  /** Names of what may be asked for. */
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

/** What the client takes; `q=0` is a refusal. */
function encodingsOf(header: string | string[] | undefined): ReadonlySet<string> {
  const parts = String(header ?? '').split(',');
  const taken = parts.filter((part) => !/;\s*q=0(\.0*)?\s*$/.test(part));
  return new Set(taken.map((part) => part.split(';')[0]!.trim().toLowerCase()));
}
