import type { PlatformAnswer } from './http-boundary.ts';

/**
 * Checks whether a response is complete and comes from the platform, not from a captive portal or a proxy. The status
 * alone is not proof, because any host on the path can send it.
 */
type Answer = Pick<PlatformAnswer, 'status' | 'header' | 'text' | 'truncated'>;

/**
 * Returns whether the response is complete and has no body. If a closed connection marks the end of the body, all of it
 * may have been lost. A response therefore counts as empty only if its length is 0, it is chunked, or its status is 204
 * without a length (RFC 9112 section 6.3).
 */
export function hasNoBody(answer: Answer): boolean {
  if (answer.truncated || answer.text !== '') return false;
  const length = answer.header('content-length');
  if (length !== undefined) return /^0+$/.test(length.trim());
  return answer.status === 204 || answer.header('transfer-encoding') !== undefined;
}

/**
 * Returns whether a response without a documented body reports success: a complete 2xx response with an empty body or
 * with JSON that contains no errors.
 */
export function reportsDone(answer: Answer): boolean {
  if (!isSuccess(answer.status)) return false;
  if (hasNoBody(answer)) return true;
  return !answer.truncated && isJson(answer.text) && jsonObjectOf(answer)?.errors === undefined;
}

export function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** Returns the JSON object of a complete response, or `undefined` for anything else, including an array. */
export function jsonObjectOf(answer: Answer): Record<string, unknown> | undefined {
  const body = answer.truncated ? undefined : jsonOf(answer.text);
  return typeof body === 'object' && body !== null && !Array.isArray(body)
    ? (body as Record<string, unknown>)
    : undefined;
}

/** Returns whether the response is an HTML page. The platform responds in JSON (platform 10.3). */
export function isPage(answer: Answer): boolean {
  const type = answer.header('content-type') ?? '';
  return answer.text !== '' && (/^\s*(text\/html|application\/xhtml)/i.test(type) || /^\s*</.test(answer.text));
}

/**
 * Returns whether the text is uncompressed. Compressed text is never decompressed, because a few bytes can expand to
 * gigabytes.
 */
export function isReadable(answer: Answer): boolean {
  const coding = answer.header('content-encoding')?.trim().toLowerCase() ?? '';
  return coding === '' || coding === 'identity';
}

function isJson(text: string): boolean {
  return text.trim() === 'null' || jsonOf(text) !== undefined;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
