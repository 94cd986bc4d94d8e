import type { PlatformAnswer } from './http-boundary.ts';

/**
 * Whether an answer is what it says, or something in the platform's place: a portal's page, a proxy's, half of a body. A
 * status alone proves nothing; every machine on the way can give one.
 */
type Answer = Pick<PlatformAnswer, 'status' | 'header' | 'text' | 'truncated'>;

/**
 * Whether the answer came whole and has no body. A body that ends with its connection may have been cut before its first
 * byte: without a length that says 0, or an end that the parser saw, it does not count as empty. Only a 204 needs neither
 * (RFC 9112 section 6.3); one that announces a length all the same was made by something that does not know what it says.
 */
export function hasNoBody(answer: Answer): boolean {
  if (answer.truncated || answer.text !== '') return false;
  const length = answer.header('content-length');
  if (length !== undefined) return /^0+$/.test(length.trim());
  return answer.status === 204 || answer.header('transfer-encoding') !== undefined;
}

/** Whether a response without a documented body reports success: any 2xx, complete, with no body or with JSON that contains no errors. */
export function reportsDone(answer: Answer): boolean {
  if (!isSuccess(answer.status)) return false;
  if (hasNoBody(answer)) return true;
  return !answer.truncated && isJson(answer.text) && jsonObjectOf(answer)?.errors === undefined;
}

export function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** The JSON object of an answer that came whole; `undefined` for everything else, a list too. */
export function jsonObjectOf(answer: Answer): Record<string, unknown> | undefined {
  const body = answer.truncated ? undefined : jsonOf(answer.text);
  return typeof body === 'object' && body !== null && !Array.isArray(body)
    ? (body as Record<string, unknown>)
    : undefined;
}

/** A page for people: the platform speaks JSON (platform 10.3). */
export function isPage(answer: Answer): boolean {
  const type = answer.header('content-type') ?? '';
  return answer.text !== '' && (/^\s*(text\/html|application\/xhtml)/i.test(type) || /^\s*</.test(answer.text));
}

/** Words that are compressed say nothing to people; they are not unpacked, since a few bytes may become gigabytes. */
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
