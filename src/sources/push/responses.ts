/** Error responses of the ingest listener, in the formats that clients expect. */
import { counted } from '../../base/amounts.ts';
import { StoreError, TagferryError } from '../../base/errors.ts';
import { BodyError } from '../../base/inbound/body.ts';
import { STATUS_CODES } from '../../base/node-http.ts';
import type { RejectedLines } from '../formats/line-protocol.ts';
import { RejectedValues, TooManyValues, UnreadableValues } from '../intake/problem-list.ts';

/** Error format: native, InfluxDB 1 (`/write`) or InfluxDB 2 (`/api/v2/write`). */
export type ErrorForm = 'plain' | 'influx1' | 'influx2';

type Headers = Readonly<Record<string, string>>;

/** Rejection of a request, with the response content. */
export class PushRejection extends TagferryError {
  readonly status: number;
  readonly headers: Headers;
  /** Additional members of the response body. */
  readonly facts: object | undefined;

  constructor(status: number, message: string, hint?: string, headers: Headers = {}, facts?: object) {
    super(message, { code: `ingest.${status}`, hint });
    this.status = status;
    this.headers = headers;
    this.facts = facts;
  }
}

export function tooLarge(): PushRejection {
  const hint = 'Send at most 2 MiB of JSON, or 8 MiB of NDJSON or line protocol, per request.';
  return new PushRejection(413, 'the body is too large', hint);
}

function tryLater(message: string, seconds: number): PushRejection {
  return new PushRejection(503, message, 'Send the whole request again later.', { 'Retry-After': String(seconds) });
}

export function noRoom(): PushRejection {
  return tryLater('too many values are waiting for the disk', 1);
}

/** Beginning of the errors by which Telegraf recognises that it must not send a batch again, besides the status. */
const PARTIAL_WRITE = 'partial write';
const UNPARSABLE = 'unable to parse';

/** Response to line protocol whose other lines are on disk. InfluxDB also reports the number of dropped lines. */
export function partialWrite({ count, listed }: RejectedLines): PushRejection {
  const more = count > listed.length ? ['…'] : [];
  const what = `${PARTIAL_WRITE}: ${counted(count, 'line', 'contains', 'contain')} rejected values: `;
  return new PushRejection(400, `${what}${[...listed, ...more].join('; ')} dropped=${count}`);
}

/** Converts an error to a rejection. Returns `undefined` for an unexpected error. */
export function rejectionOf(error: unknown): PushRejection | undefined {
  if (error instanceof PushRejection) return error;
  if (error instanceof BodyError) {
    if (error.fault === 'too-large') return tooLarge();
    return error.fault === 'no-room' ? noRoom() : new PushRejection(400, 'incomplete body');
  }
  if (error instanceof UnreadableValues) return new PushRejection(400, error.message, error.hint);
  if (error instanceof TooManyValues) return new PushRejection(413, error.message, error.hint);
  if (error instanceof RejectedValues) {
    const { listed: problems, count } = error.problems;
    const [first] = problems;
    const where = first === undefined ? '' : `: value ${first.index}${first.field === '' ? '' : `, ${first.field}`}: `;
    const facts = { problems, ...(count > problems.length ? { count } : {}) };
    return new PushRejection(422, `${error.message}${where}${first?.problem ?? ''}`, error.hint, {}, facts);
  }
  if (error instanceof StoreError)
    return tryLater(`${error.message}; nothing in the request was stored`, error.code === 'buffer.busy' ? 1 : 5);
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

/** Headers that InfluxDB clients check before writing. The version is the protocol version; the build is `tagferry`. */
export const INFLUX_HEADERS = { 'X-Influxdb-Version': '1.8.10', 'X-Influxdb-Build': 'tagferry' } as const;

/**
 * Returns the content of an error response. The body always contains `error`, and for InfluxDB 2 clients also the
 * members that they print.
 */
export function errorResponse(
  rejection: PushRejection,
  form: ErrorForm,
): { status: number; headers: Headers; text: string } {
  const { status, hint, facts } = rejection;
  let message = rejection.message || STATUS_CODES[status]!;
  const headers: Record<string, string> = { ...rejection.headers, 'Content-Type': 'application/json' };
  if (form === 'influx1') {
    headers['X-Influxdb-Error'] = message.replaceAll(/[^\x20-\x7e]/g, '?');
    if (status === 400 && !message.startsWith(PARTIAL_WRITE)) message = `${UNPARSABLE}: ${message}`;
  }
  const influx2 = form === 'influx2' ? { code: INFLUX2_CODES[status] ?? 'invalid', message } : {};
  const body = { error: message, ...influx2, ...(hint === undefined ? {} : { hint }), ...facts };
  return { status, headers, text: `${JSON.stringify(body)}\n` };
}
