import type { RequestEntry } from '../http/request-entry.ts';
import { type Exchange, headerOf } from './exchange.ts';
import { maskedBody, maskedHeader, maskedTarget } from './masking.ts';

/** What a client sent and what it was answered, whole, with its secrets masked. */
export interface WholeRequest extends RequestEntry {
  /** Path and query. */
  target: string;
  request: { headers: Record<string, string>; body: unknown };
  /** `null`: the connection was broken instead of an answer. */
  answer: { headers: Record<string, string>; body: unknown } | null;
}

/** Names of headers in lower case; a body that is JSON as what it says, another as text, none as null. */
export function wholeRequest(exchange: Exchange): WholeRequest {
  const { entry, target, rawHeaders, body, answer } = exchange;
  const headers: Record<string, string> = {};
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!.toLowerCase();
    const value = maskedHeader(name, rawHeaders[i + 1]!);
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`;
  }
  return {
    ...entry,
    target: maskedTarget(target),
    request: { headers, body: shownBody(body, headerOf(exchange, 'content-type') ?? '') },
    answer:
      answer === undefined
        ? null
        : {
            headers: Object.fromEntries(
              Object.entries(answer.headers).map(([name, value]) => [name, maskedHeader(name, String(value))]),
            ),
            body: shownBody(answer.body, String(answer.headers['content-type'] ?? '')),
          },
  };
}

function shownBody(body: Buffer | undefined, contentType: string): unknown {
  if (body === undefined || body.length === 0) return null;
  const text = maskedBody(body, contentType);
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
