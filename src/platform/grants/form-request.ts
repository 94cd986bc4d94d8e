import type { HttpRequest } from '../http-boundary.ts';

/** A token request is small and answered at once: what hangs longer is away, and docs/interface.md wants it tried each 60 s. */
const TOKEN_DEADLINE_MS = 20_000;
/** A token response has a few hundred bytes; a portal's page may have megabytes. */
const MAX_TOKEN_ANSWER_BYTES = 64 * 1024;

const SECRET_FIELDS = ['password', 'refresh_token', 'client_secret', 'code', 'code_verifier', 'token'];

/** A form for a token endpoint (platform 4). `secrets`: secrets that the headers contain in encoded form. */
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

/** `{base_url}` or `{web_url}`, which may have a path of its own, and a path of the spec. */
export function addressOf(base: string, path: string): URL {
  return new URL(base.replace(/\/+$/, '') + path);
}
