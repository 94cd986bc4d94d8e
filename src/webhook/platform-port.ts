import { PlatformError } from '../errors.ts';

/** What this room needs of the platform's client: one call, answered with any status. Throws `PlatformError` where there was no answer. */
export interface PlatformPort {
  request(call: PlatformCall): Promise<PlatformAnswer>;
}

export interface PlatformCall {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  path: string;
  query?: Record<string, string>;
  body?: object;
  kind: 'other';
  signal?: AbortSignal;
}

export interface PlatformAnswer {
  status: number;
  header(name: string): string | undefined;
  text: string;
  /** The body was longer than the client's bound. */
  truncated?: boolean;
}

/** An answer that is not what the call hopes for; `status` decides what comes next. */
export class RefusedError extends PlatformError {
  readonly status: number;

  constructor(what: string, answer: PlatformAnswer) {
    const words = platformWords(answer.text);
    super(`${what}: the platform answered ${answer.status}${words ? ` (${words})` : ''}`, {
      code: 'webhook.platform_refused',
      retryable: answer.status >= 500 || [401, 402, 408, 429].includes(answer.status),
      hint: hintFor(answer.status),
    });
    this.status = answer.status;
  }
}

function hintFor(status: number): string {
  if (status === 403 || status === 404)
    return 'Check CLIENT_APPLICATION and what the technical user may do with webhooks.';
  if (status === 402) return 'The quota of the connect subscription is used up.';
  return 'Look at the words of the platform; `tagferry webhook ls` shows what is registered.';
}

/** The platform's own words (beyond-the-spec, error body), bounded. */
function platformWords(text: string): string {
  try {
    const body = JSON.parse(text) as { errors?: { message?: unknown; attribute?: unknown }[] };
    const words = body.errors?.map(({ attribute, message }) => [attribute, message].filter(Boolean).join(' '));
    return words?.join('; ').slice(0, 200) ?? '';
  } catch {
    return '';
  }
}

/** The JSON object of an answer with one of these statuses. Throws `RefusedError`, or `webhook.unreadable_answer`. */
export function readAnswer<Body>(what: string, answer: PlatformAnswer, statuses: readonly number[]): Partial<Body> {
  if (!statuses.includes(answer.status)) throw new RefusedError(what, answer);
  if (answer.text.trim() === '') return {};
  try {
    const body: unknown = JSON.parse(answer.text);
    if (typeof body === 'object' && body !== null) return body as Partial<Body>;
  } catch {
    // Falls through: a proxy's page, or half of an answer.
  }
  throw new PlatformError(`${what}: the answer is no JSON object`, {
    code: 'webhook.unreadable_answer',
    retryable: true,
    hint: 'Check PLATFORM_URL and the proxy in between.',
  });
}
