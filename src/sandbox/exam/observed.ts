import { SIGN_IN_PATH } from '../../contract/tokens.ts';
import type { RequestEntry } from '../http/request-entry.ts';
import type { Exchange } from '../requests/exchange.ts';
import { headerOf } from '../requests/exchange.ts';

/** One request of the client under exam, with what the rules ask of it. */
export interface Observed {
  entry: RequestEntry;
  exchange: Exchange;
  /** `POST /v1/assets/881/values`. */
  name: string;
  /** By the machine's monotonic clock, milliseconds. */
  startedMs: number;
  endedMs: number;
  /** A call of the API, under /v1 or /v2. */
  isApi: boolean;
  /** A token endpoint, on either host. */
  isToken: boolean;
  isRevocation: boolean;
  /** The page on which a person signs in: opened (GET), or filled in (POST). */
  isSignIn: boolean;
  bearer: string | undefined;
  query: URLSearchParams;
  /** The body of a token endpoint or of the sign-in page, empty elsewhere. */
  form: URLSearchParams;
  /** Whether the client's secret came along, in the header or in the body. */
  hasSecret: boolean;
  /** Where the answer sends the browser. */
  redirect: URL | undefined;
  /** 0: the connection was broken. */
  status: number;
  /** `Retry-After` in milliseconds. */
  retryAfterMs: number | undefined;
  /** The answer's body as JSON. */
  answer: Record<string, unknown>;
}

export function observed(entry: RequestEntry, exchange: Exchange): Observed {
  const { method, path, status } = entry;
  const isToken = /^(\/app\/id)?\/oauth\/token$/.test(path);
  const isRevocation = /^(\/app\/id)?\/oauth\/revoke$/.test(path);
  const isSignIn = path === SIGN_IN_PATH;
  const isForm = isToken || isRevocation || isSignIn;
  const form = new URLSearchParams(isForm ? (exchange.body?.toString('utf8') ?? '') : '');
  const authorization = headerOf(exchange, 'authorization') ?? '';
  const location = exchange.answer?.headers.location;
  const at = exchange.target.indexOf('?');
  return {
    entry,
    exchange,
    name: `${method} ${path}`,
    startedMs: exchange.startedMs,
    endedMs: exchange.endedMs,
    isApi: /^\/v\d+\//.test(path),
    isToken,
    isRevocation,
    isSignIn,
    bearer: /^Bearer\s+(\S+)\s*$/i.exec(authorization)?.[1],
    query: new URLSearchParams(at < 0 ? '' : exchange.target.slice(at + 1)),
    form,
    hasSecret: /^Basic\s/i.test(authorization) || (form.get('client_secret') ?? '') !== '',
    redirect: typeof location === 'string' && URL.canParse(location) ? new URL(location) : undefined,
    status,
    retryAfterMs: retryAfterMs(exchange.answer?.headers),
    answer: jsonObject(exchange.answer?.body),
  };
}

function retryAfterMs(headers: Readonly<Record<string, string | number>> | undefined): number | undefined {
  const value = String(headers?.['retry-after'] ?? '');
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  // An HTTP date (RFC 9110 section 10.2.3), beside the answer's own.
  const leftMs = Date.parse(value) - Date.parse(String(headers?.date ?? ''));
  return Number.isNaN(leftMs) ? undefined : Math.max(0, leftMs);
}

export function jsonObject(body: Buffer | undefined): Record<string, unknown> {
  if (body === undefined) return {};
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
