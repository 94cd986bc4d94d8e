import { StoreError, TagferryError } from '../../base/errors.ts';
import { BodyError } from '../../base/inbound/body.ts';
import { STATUS_CODES } from '../../base/node-http.ts';
import { RejectedValues, TooManyValues, UnreadableValues } from '../intake/problem-list.ts';

/** Error format that the client expects: native, InfluxDB 1 (`/write`) or InfluxDB 2 (`/api/v2/write`). */
export type ErrorForm = 'plain' | 'influx1' | 'influx2';

/** Rejection of a request, with the response content. */
export class PushRejection extends TagferryError {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Additional members of the response body, for example the number of accepted values. */
  readonly facts: object | undefined;

  constructor(
    status: number,
    message: string,
    hint?: string,
    headers: Readonly<Record<string, string>> = {},
    facts?: object,
  ) {
    super(message, { code: `ingest.${status}`, ...(hint === undefined ? {} : { hint }) });
    this.status = status;
    this.headers = headers;
    this.facts = facts;
  }
}

export function tooLarge(maxBytes: number): PushRejection {
  return new PushRejection(413, `the body is larger than ${maxBytes} bytes`, 'Send the values in several requests.');
}

export function tryLater(message: string, retryAfterMs: number): PushRejection {
  const seconds = Math.max(1, Math.ceil(retryAfterMs / 1000));
  return new PushRejection(503, message, 'Send the whole request again later.', { 'Retry-After': String(seconds) });
}

export function noRoom(): PushRejection {
  return tryLater('too many values are waiting for the disk', 1_000);
}

/** Converts an error to a rejection. Returns `undefined` for an unexpected error. */
export function rejectionOf(error: unknown, maxBytes: number): PushRejection | undefined {
  if (error instanceof PushRejection) return error;
  if (error instanceof BodyError) {
    if (error.fault === 'too-large') return tooLarge(maxBytes);
    return error.fault === 'no-room' ? noRoom() : new PushRejection(400, 'incomplete body');
  }
  if (error instanceof UnreadableValues) return new PushRejection(400, error.message, error.hint);
  if (error instanceof TooManyValues) return new PushRejection(413, error.message, error.hint);
  if (error instanceof RejectedValues) {
    const [first] = error.problems;
    const where = first === undefined ? '' : `: value ${first.index}${first.field === '' ? '' : `, ${first.field}`}: `;
    return new PushRejection(422, `${error.message}${where}${first?.problem ?? ''}`, error.hint);
  }
  if (error instanceof StoreError) {
    return tryLater(`${error.message}; nothing in the request was stored`, retryAfterOf(error));
  }
  return undefined;
}

const INFLUX2_CODES: Readonly<Record<number, string>> = {
  400: 'invalid',
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not found',
  405: 'method not allowed',
  413: 'request too large',
  415: 'invalid',
  422: 'unprocessable entity',
  500: 'internal error',
  503: 'unavailable',
};

/**
 * Returns the body of an error response. It always contains `error`, and for InfluxDB clients also the member that they
 * print.
 */
export function errorBody(rejection: PushRejection, form: ErrorForm, cause: unknown): string {
  const { status, hint } = rejection;
  // Telegraf drops an InfluxDB 1 batch only if the error contains this text; otherwise, it retries the batch
  // indefinitely.
  const message = form === 'influx1' && status === 400 ? `unable to parse: ${rejection.message}` : rejection.message;
  const body: Record<string, unknown> = { error: message || STATUS_CODES[status] };
  if (form === 'influx2') {
    body.code = INFLUX2_CODES[status] ?? 'invalid';
    body.message = message;
  }
  if (hint !== undefined) body.hint = hint;
  if (cause instanceof RejectedValues) {
    body.problems = cause.problems;
    if (cause.count > cause.problems.length) body.count = cause.count;
  }
  Object.assign(body, rejection.facts);
  return `${JSON.stringify(body)}\n`;
}

const DEFAULT_RETRY_MS = 5_000;

/** Returns the retry delay of an error in milliseconds. */
function retryAfterOf(error: StoreError): number {
  const { retryAfterMs } = error as { retryAfterMs?: unknown };
  return typeof retryAfterMs === 'number' && retryAfterMs >= 0 ? retryAfterMs : DEFAULT_RETRY_MS;
}
