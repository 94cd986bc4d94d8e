import type { HttpRequest } from '../http-boundary.ts';

/** A token request is small and answered at once: what hangs longer is away, and docs/interface.md wants it tried each 60 s. */
const TOKEN_DEADLINE_MS = 20_000;
/** A token response has a few hundred bytes; a portal's page may have megabytes. */
const MAX_TOKEN_ANSWER_BYTES = 64 * 1024;

/** A form for a token endpoint (platform 4), with the secrets in it, so that they can be kept out of messages. */
export interface FormRequest {
  request: HttpRequest;
  sent: readonly string[];
}

const SECRET_FIELDS = ['password', 'refresh_token', 'client_secret', 'code', 'code_verifier', 'token'];

export function formRequest(url: URL, form: URLSearchParams, headers: Record<string, string>): FormRequest {
  const fields = SECRET_FIELDS.map((field) => form.get(field) ?? '');
  const credentials = headers.authorization?.split(' ')[1] ?? '';
  const basic = headers.authorization?.startsWith('Basic ')
    ? decodeURIComponent(Buffer.from(credentials, 'base64').toString().split(':')[1]?.replaceAll('+', ' ') ?? '')
    : '';
  return {
    request: {
      method: 'POST',
      url,
      headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
      body: form.toString(),
      deadlineMs: TOKEN_DEADLINE_MS,
      maxAnswerBytes: MAX_TOKEN_ANSWER_BYTES,
    },
    sent: [...fields, credentials, basic].filter((secret) => secret !== ''),
  };
}

/** `{base_url}` or `{web_url}`, which may have a path of its own, and a path of the spec. */
export function addressOf(base: string, path: string): URL {
  return new URL(base.replace(/\/+$/, '') + path);
}
