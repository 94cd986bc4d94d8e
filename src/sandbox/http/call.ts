import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { codeOf } from '../../base/errors.ts';
import type { Pagination } from '../../contract/errors.ts';
import { MAX_BODY_BYTES } from '../../contract/values.ts';
import { oauthRefusal, refusal } from './refusal.ts';

/** The calling user and client application. */
export interface Caller {
  user: number;
  application: number;
}

/** A request with its complete body, whose size is limited. */
export interface Call {
  method: string;
  path: string;
  params: Record<string, string>;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  /** The body, decompressed. */
  raw: Buffer;
  /** Set on routes that require a bearer token. */
  caller: Caller;
  /** The token in the Authorization header. */
  bearer: string | undefined;
}

export interface Answer {
  status: number;
  body?: unknown;
  /** Text that is sent instead of `body`, with the content type from `headers`. */
  text?: string;
  headers?: Record<string, string>;
  /** Summary for the request log: "3 values of 2 keys for FT-101". */
  story?: string;
}

/** Returns the parsed JSON body. Throws a 400 for invalid JSON. */
export function jsonBody(call: Call): unknown {
  try {
    return JSON.parse(call.raw.toString('utf8'));
  } catch {
    throw refusal(400, 'the body is not JSON');
  }
}

/** Returns the JSON object in the body. Throws a 400 for any other body. */
export function objectBody(call: Call): Record<string, unknown> {
  const body = jsonBody(call);
  if (!isObject(body)) throw refusal(400, 'the body is not a JSON object');
  return body;
}

/**
 * Returns the form sent to a token endpoint. Throws for a different content type or a repeated parameter (RFC 6749
 * section 3.2 and appendix B).
 */
export function formBody(call: Call): URLSearchParams {
  const type = (call.headers['content-type'] ?? '').split(';')[0]!.trim().toLowerCase();
  if (type !== 'application/x-www-form-urlencoded') {
    throw oauthRefusal(400, 'invalid_request', 'the body must be application/x-www-form-urlencoded');
  }
  const form = new URLSearchParams(call.raw.toString('utf8'));
  const twice = [...form.keys()].find((name) => form.getAll(name).length > 1);
  if (twice !== undefined) throw oauthRefusal(400, 'invalid_request', `${twice.slice(0, 60)} is repeated`);
  return form;
}

/** Returns the form sent by a page. */
export function pageForm(call: Call): URLSearchParams {
  return new URLSearchParams(call.raw.toString('utf8'));
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns a numeric path parameter. Throws a 404 if it is not a number. */
export function idParam(call: Call, name: string): number {
  const text = call.params[name] ?? '';
  if (!/^\d{1,15}$/.test(text)) throw refusal(404, `${call.path} was not found`);
  return Number(text);
}

/** Returns a numeric query parameter, if present. Throws a 400 if it is not a number. */
export function idQuery({ query }: Call, name: string): number | undefined {
  const text = query.get(name);
  if (text === null) return undefined;
  if (!/^\d{1,15}$/.test(text)) throw refusal(400, 'must be a whole number', name);
  return Number(text);
}

/** Returns a query parameter with a time, in milliseconds since 1970, if present. Throws a 400 if it is not a time. */
export function timeQuery({ query }: Call, name: string): number | undefined {
  const text = query.get(name);
  if (text === null) return undefined;
  const ms = readTimestamp(text);
  if (ms === undefined) throw refusal(400, 'must be an ISO 8601 time', name);
  return ms;
}

/** Matches an ISO 8601 date and time, which is UTC if it has no offset. */
const TIMESTAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?$/i;

/** Milliseconds since 1970, or `undefined`. */
export function readTimestamp(text: unknown): number | undefined {
  if (typeof text !== 'string') return undefined;
  const match = TIMESTAMP.exec(text);
  if (!match) return undefined;
  const ms = Date.parse(match[1] === undefined ? `${text.replace(',', '.')}Z` : text.replace(',', '.'));
  return Number.isNaN(ms) ? undefined : ms;
}

/** Returns a page of a list (platform 10.3: `page`, `per_page` 1 to 100). The specification does not show the default page size. */
export function page<Item>(call: Call, items: readonly Item[]): { items: Item[]; pagination: Pagination } {
  const perPage = pageNumber(call, 'per_page', 25, 100);
  const at = pageNumber(call, 'page', 1, 1_000_000);
  const pageCount = Math.max(1, Math.ceil(items.length / perPage));
  const address = (to: number) => {
    const query = new URLSearchParams(call.query);
    query.set('page', String(to));
    query.set('per_page', String(perPage));
    return `${call.path}?${query}`;
  };
  return {
    items: items.slice((at - 1) * perPage, at * perPage),
    pagination: {
      total_count: items.length,
      page_count: pageCount,
      per_page: perPage,
      page: at,
      prev: at > 1 ? address(at - 1) : null,
      next: at < pageCount ? address(at + 1) : null,
      first: address(1),
      last: address(pageCount),
    },
  };
}

function pageNumber(call: Call, name: string, otherwise: number, max: number): number {
  const text = call.query.get(name);
  if (text === null) return otherwise;
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1 || value > max) {
    throw refusal(400, `must be a whole number from 1 to ${max}`, name);
  }
  return value;
}

const unzip = promisify(gunzip);

/**
 * Returns the decompressed body. Throws a 413 if the body exceeds 500 kB, compressed or decompressed, and a 415 for an
 * unknown encoding.
 */
export async function readRequestBody(request: IncomingMessage): Promise<{ body: Buffer; wireBytes: number }> {
  const chunks: Buffer[] = [];
  let wireBytes = 0;
  for await (const chunk of request) {
    wireBytes += (chunk as Buffer).length;
    if (wireBytes <= MAX_BODY_BYTES) chunks.push(chunk as Buffer);
    // Read and discard the rest up to a limit, so that the client receives the response instead of a broken pipe.
    if (wireBytes > 64 * MAX_BODY_BYTES) break;
  }
  if (wireBytes > MAX_BODY_BYTES) throw tooLarge();
  const packed = Buffer.concat(chunks);
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding === 'identity') return { body: packed, wireBytes };
  if (encoding !== 'gzip') throw refusal(415, `the content encoding ${encoding.slice(0, 40)} is not supported`);
  try {
    return { body: await unzip(packed, { maxOutputLength: MAX_BODY_BYTES }), wireBytes };
  } catch (error) {
    if (codeOf(error) === 'ERR_BUFFER_TOO_LARGE') throw tooLarge();
    throw refusal(400, 'the body is not gzip');
  }
}

function tooLarge() {
  return refusal(413, `the body is larger than ${MAX_BODY_BYTES} bytes`);
}
