import { TagferryError } from '../../base/errors.ts';
import type { ErrorBody } from '../../contract/errors.ts';
import type { OAuthErrorBody } from '../../contract/tokens.ts';

/** Error types in error bodies, by status (platform 10.3). */
const TYPES: Record<number, string> = {
  400: 'bad_request',
  401: 'unauthorized',
  402: 'quota_exceeded',
  403: 'forbidden',
  404: 'not_found',
  405: 'method_not_allowed',
  409: 'conflict',
  410: 'gone',
  413: 'payload_too_large',
  415: 'unsupported_media_type',
  429: 'too_many_requests',
  500: 'internal_error',
  503: 'service_unavailable',
};

/** Error response, thrown by endpoints and written by the request handler. */
export class Refusal extends TagferryError {
  readonly status: number;
  readonly body: ErrorBody | OAuthErrorBody;
  readonly headers: Record<string, string>;

  constructor(status: number, body: ErrorBody | OAuthErrorBody, headers: Record<string, string> = {}) {
    super(`rejected with ${status}`, { code: 'sandbox.refusal' });
    this.status = status;
    this.body = body;
    this.headers = headers;
  }
}

/** Returns an error response with an API error body. */
export function refusal(
  status: number,
  message: string,
  attribute?: string,
  headers?: Record<string, string>,
): Refusal {
  return new Refusal(status, errorBody(status, message, attribute), headers);
}

export function errorBody(status: number, message: string, attribute?: string): ErrorBody {
  const type = TYPES[status] ?? 'error';
  return { errors: [{ type, message, ...(attribute === undefined ? {} : { attribute }) }] };
}

/** RFC 6749 section 5.2. */
export function oauthRefusal(status: 400 | 401 | 403, error: string, description: string): Refusal {
  const headers: Record<string, string> = { 'cache-control': 'no-store', pragma: 'no-cache' };
  if (status === 401) headers['www-authenticate'] = 'Basic realm="sandbox"';
  return new Refusal(status, { error, error_description: description }, headers);
}

/**
 * Returns a 404. Also used if the caller has no read permission, so that the response does not reveal that the object
 * exists (platform 10.3).
 */
export function notFound(what: string): Refusal {
  return refusal(404, `${what} was not found`);
}
