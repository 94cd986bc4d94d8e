import type { HttpRequest } from '../http-boundary.ts';

/**
 * Timeout of a token request, in milliseconds. If the platform takes longer, it is considered unavailable and retried
 * every 60 s (docs/interface.md).
 */
const TOKEN_DEADLINE_MS = 20_000;
/**
 * Maximum response size. A token response has a few hundred bytes, but a captive portal page can have several
 * megabytes.
 */
const MAX_TOKEN_ANSWER_BYTES = 64 * 1024;

const SECRET_FIELDS = ['password', 'refresh_token', 'client_secret', 'code', 'code_verifier', 'token'];

/**
 * Creates a form request to a token endpoint (platform 4). `secrets`: additional secrets that the headers contain in
 * encoded form.
 */
export function formRequest(
  url: URL,
  form: URLSearchParams,
  headers: Record<string, string>,
  secrets: readonly string[] = [],
): HttpRequest {
  const credentials = headers.authorization?.split(' ')[1] ?? '';
  const fields = SECRET_FIELDS.map((field) => form.get(field) ?? '');
  return {
    method: 'POST',
    url,
    headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
    body: form.toString(),
    secrets: [...new Set([...fields, credentials, ...secrets])].filter(Boolean),
    deadlineMs: TOKEN_DEADLINE_MS,
    maxAnswerBytes: MAX_TOKEN_ANSWER_BYTES,
  };
}

/** Joins `{base_url}` or `{web_url}`, which may contain a path, with a path from the specification. */
export function addressOf(base: string, path: string): URL {
  return new URL(base.replace(/\/+$/, '') + path);
}
