import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { oauthRefusal, refusal } from './refusal.ts';

/** Who calls: a user by way of a client application. */
export interface Caller {
  user: number;
  application: number;
}

/** One request, read whole and bounded, as endpoints see it. */
export interface Call {
  method: string;
  path: string;
  params: Record<string, string>;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  /** The body, unpacked where it came compressed. */
  raw: Buffer;
  /** Set on routes that need a bearer token. */
  caller: Caller;
  /** The token that came in the Authorization header, if any. */
  bearer: string | undefined;
}

export interface Answer {
  status: number;
  body?: unknown;
  /** In place of `body`: text as it is, with its own content type. */
  text?: string;
  headers?: Record<string, string>;
  /** In place of all of it: writes the answer by itself, for as long as it takes. */
  write?(request: IncomingMessage, response: ServerResponse): void | Promise<void>;
  /** What happened, in a sentence for the request log: "3 values of 2 keys for FT-101". */
  story?: string;
}

/** The body as JSON; 400 where it is none. */
export function jsonBody(call: Call): unknown {
  try {
    return JSON.parse(call.raw.toString('utf8'));
  } catch {
    throw refusal(400, 'the body is not JSON');
  }
}

/** The body as an object; 400 for anything else. */
export function objectBody(call: Call): Record<string, unknown> {
  const body = jsonBody(call);
  if (!isObject(body)) throw refusal(400, 'the body is not a JSON object');
  return body;
}

/** The form of a token endpoint: nothing else is taken, and no parameter twice (RFC 6749 section 3.2 and appendix B). */
export function formBody(call: Call): URLSearchParams {
  const type = (call.headers['content-type'] ?? '').split(';')[0]!.trim().toLowerCase();
  if (type !== 'application/x-www-form-urlencoded') {
    throw oauthRefusal(400, 'invalid_request', 'the body is no application/x-www-form-urlencoded');
  }
  const form = new URLSearchParams(call.raw.toString('utf8'));
  const twice = [...form.keys()].find((name) => form.getAll(name).length > 1);
  if (twice !== undefined) throw oauthRefusal(400, 'invalid_request', `${twice.slice(0, 60)} came twice`);
  return form;
}

/** The form of a page: what a browser sends. */
export function pageForm(call: Call): URLSearchParams {
  return new URLSearchParams(call.raw.toString('utf8'));
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A number of the path; 404 where it is none, as an unknown id is. */
export function idParam(call: Call, name: string): number {
  const text = call.params[name] ?? '';
  if (!/^\d{1,15}$/.test(text)) throw refusal(404, `${call.path} was not found`);
  return Number(text);
}
