import { STATUS_CODES } from '../../base/node-http.ts';
import { type Exchange, headerOf } from './exchange.ts';
import { maskedBody, maskedHeader, maskedTarget } from './masking.ts';

/** HTTP Archive 1.2 (http://www.softwareishard.com/blog/har-12-spec), which browsers and proxies read; names with `_` are the sandbox's own. */
export interface HarEntry {
  startedDateTime: string;
  time: number;
  request: {
    method: string;
    url: string;
    httpVersion: string;
    cookies: [];
    headers: NameValue[];
    queryString: NameValue[];
    postData?: { mimeType: string; text: string };
    headersSize: number;
    bodySize: number;
  };
  response: {
    status: number;
    statusText: string;
    httpVersion: string;
    cookies: [];
    headers: NameValue[];
    content: { size: number; mimeType: string; text?: string };
    redirectURL: string;
    headersSize: number;
    bodySize: number;
  };
  cache: Record<string, never>;
  timings: { send: number; wait: number; receive: number };
  _id: number;
  _user?: string;
  _story?: string;
  _fault?: string;
}

interface NameValue {
  name: string;
  value: string;
}

/** One exchange, its secrets masked. `baseUrl`: what the address is of where the client named no host. */
export function harEntry(exchange: Exchange, baseUrl: string): HarEntry {
  const { entry, rawHeaders, httpVersion, body, answer } = exchange;
  const url = addressOf(exchange, baseUrl);
  const requestType = headerOf(exchange, 'content-type') ?? '';
  const answerType = String(answer?.headers['content-type'] ?? '');
  const headers: NameValue[] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    headers.push({ name: rawHeaders[i]!, value: maskedHeader(rawHeaders[i]!, rawHeaders[i + 1]!) });
  }
  const answerHeaders = Object.entries(answer?.headers ?? {}).map(([name, value]) => ({
    name,
    value: maskedHeader(name, String(value)),
  }));
  const answerBody = answer?.body;
  return {
    startedDateTime: entry.at,
    time: entry.durationMs,
    request: {
      method: entry.method,
      url: url.href,
      httpVersion: `HTTP/${httpVersion}`,
      cookies: [],
      headers,
      queryString: [...url.searchParams].map(([name, value]) => ({ name, value })),
      ...(body === undefined || body.length === 0
        ? {}
        : { postData: { mimeType: requestType, text: maskedBody(body, requestType) } }),
      headersSize: -1,
      bodySize: entry.requestBytes,
    },
    response: {
      status: answer?.status ?? 0,
      statusText: STATUS_CODES[answer?.status ?? 0] ?? '',
      httpVersion: `HTTP/${httpVersion}`,
      cookies: [],
      headers: answerHeaders,
      content: {
        size: answerBody?.length ?? 0,
        mimeType: answerType === '' ? 'x-unknown' : answerType,
        ...(answerBody === undefined ? {} : { text: maskedBody(answerBody, answerType) }),
      },
      redirectURL: answerHeaders.find(({ name }) => name === 'location')?.value ?? '',
      headersSize: -1,
      bodySize: answerBody?.length ?? 0,
    },
    cache: {},
    // What the sandbox knows is how long it took; sending and receiving are the client's.
    timings: { send: 0, wait: entry.durationMs, receive: 0 },
    _id: entry.id,
    ...(entry.user === undefined ? {} : { _user: entry.user }),
    ...(entry.story === undefined ? {} : { _story: entry.story }),
    ...(entry.fault === undefined ? {} : { _fault: entry.fault }),
  };
}

/** A whole archive. */
export function harOf(entries: readonly HarEntry[], version: string) {
  return { log: { version: '1.2', creator: { name: 'tagferry-sandbox', version }, entries } };
}

function addressOf(exchange: Exchange, baseUrl: string): URL {
  const host = headerOf(exchange, 'host');
  const base = host !== undefined && URL.canParse(`http://${host}/`) ? `http://${host}` : baseUrl;
  const target = maskedTarget(exchange.target);
  return URL.canParse(target, base) ? new URL(target, base) : new URL(base);
}
