import type { IncomingMessage } from 'node:http';

/** Whether a browser asks before it calls (Fetch standard, CORS-preflight request). */
export function isPreflight(request: IncomingMessage): boolean {
  return request.method === 'OPTIONS' && request.headers['access-control-request-method'] !== undefined;
}

/** What lets a page of another origin read an answer; nothing where `allowed` does not name its origin. No cookies are ever taken. */
export function corsHeaders(allowed: string | undefined, request: IncomingMessage): Record<string, string> {
  const origin = request.headers.origin;
  if (allowed === undefined || origin === undefined) return {};
  if (allowed !== '*' && !allowed.split(',').includes(origin)) return { vary: 'origin' };
  const headers: Record<string, string> = {
    'access-control-allow-origin': allowed === '*' ? '*' : origin,
    'access-control-expose-headers': 'location, retry-after, deprecation, sunset, link, x-request-id, www-authenticate',
    vary: 'origin',
  };
  if (!isPreflight(request)) return headers;
  return {
    ...headers,
    'access-control-allow-methods': 'GET, POST, PATCH, PUT, DELETE',
    'access-control-allow-headers': String(request.headers['access-control-request-headers'] ?? '').slice(0, 1000),
    'access-control-max-age': '600',
  };
}
