import { StoreError, TagferryError } from '../../base/errors.ts';
import { BodyError } from '../../base/inbound/body.ts';
import { STATUS_CODES } from '../../base/node-http.ts';
import { RefusedValues, TooManyValues, UnreadableValues } from '../problem-list.ts';
import { retryAfterOf } from '../value-sink.ts';

/** Whose errors a client expects: ours, InfluxDB 1 (`/write`) or InfluxDB 2 (`/api/v2/write`). */
export type ErrorForm = 'plain' | 'influx1' | 'influx2';

/** A request that gets no 204, with everything that its answer says. */
export class PushRefusal extends TagferryError {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** More for the answer's body: what was taken all the same. */
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

export function tooLarge(maxBytes: number): PushRefusal {
  return new PushRefusal(413, `the body is larger than ${maxBytes} bytes`, 'Send the values in several requests.');
}

export function tryLater(message: string, retryAfterMs: number): PushRefusal {
  const seconds = Math.max(1, Math.ceil(retryAfterMs / 1000));
  return new PushRefusal(503, message, 'Send the whole request again later.', { 'Retry-After': String(seconds) });
}

export function noRoom(): PushRefusal {
  return tryLater('too many values wait for the disk', 1_000);
}

/** The answer to anything thrown while a request was handled; `undefined` for what nobody foresaw. */
export function refusalOf(error: unknown, maxBytes: number): PushRefusal | undefined {
  if (error instanceof PushRefusal) return error;
  if (error instanceof BodyError) {
    if (error.fault === 'too-large') return tooLarge(maxBytes);
    return error.fault === 'no-room' ? noRoom() : new PushRefusal(400, 'the body broke off');
  }
  if (error instanceof UnreadableValues) return new PushRefusal(400, error.message, error.hint);
  if (error instanceof TooManyValues) return new PushRefusal(413, error.message, error.hint);
  if (error instanceof RefusedValues) {
    const [first] = error.problems;
    const where = first === undefined ? '' : `: value ${first.index}${first.field === '' ? '' : `, ${first.field}`}: `;
    return new PushRefusal(422, `${error.message}${where}${first?.problem ?? ''}`, error.hint);
  }
  if (error instanceof StoreError) {
    return tryLater(`${error.message}; nothing of the request is stored`, retryAfterOf(error) ?? 0);
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

/** The body of an answer other than 2xx: `error` in every form, and what the clients of InfluxDB print. */
export function errorBody(refusal: PushRefusal, form: ErrorForm, cause: unknown): string {
  const { status, hint } = refusal;
  // Telegraf gives up on a batch of InfluxDB 1 only at these words, and repeats it for ever otherwise.
  const message = form === 'influx1' && status === 400 ? `unable to parse: ${refusal.message}` : refusal.message;
  const body: Record<string, unknown> = { error: message || STATUS_CODES[status] };
  if (form === 'influx2') {
    body.code = INFLUX2_CODES[status] ?? 'invalid';
    body.message = message;
  }
  if (hint !== undefined) body.hint = hint;
  if (cause instanceof RefusedValues) {
    body.problems = cause.problems;
    if (cause.count > cause.problems.length) body.count = cause.count;
  }
  Object.assign(body, refusal.facts);
  return `${JSON.stringify(body)}\n`;
}
