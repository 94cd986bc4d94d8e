/** Error responses of the ingest listener, in the formats that clients expect. */
import { counted } from '../../base/amounts.ts';
import { StoreError, TagferryError } from '../../base/errors.ts';
import { BodyError } from '../../base/inbound/body.ts';
import type { RejectedLines } from '../formats/line-protocol.ts';
import { RejectedValues, TooManyValues, UnreadableValues } from '../intake/problem-list.ts';

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

/** Codes of InfluxDB 2; `invalid` for other statuses. */
const INFLUX_CODES: Readonly<Record<number, string>> = {
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not found',
  405: 'method not allowed',
  413: 'request too large',
  500: 'internal error',
  503: 'unavailable',
};

/** Version of the protocol. */
export const INFLUX_VERSION = '1.8.10';
/** Headers that InfluxDB clients check before writing. */
export const INFLUX_HEADERS = { 'X-Influxdb-Version': INFLUX_VERSION, 'X-Influxdb-Build': 'tagferry' } as const;

/**
 * Returns the content of an error response. The body always contains `error`. For InfluxDB clients, the response also
 * contains the members and the header that these clients print.
 */
export function errorResponse(
  { status, message, hint, facts, headers }: PushRejection,
  isInflux: boolean,
): { status: number; headers: Headers; text: string } {
  const influx = isInflux ? { code: INFLUX_CODES[status] ?? 'invalid', message } : {};
  const influxHeaders = isInflux ? { 'X-Influxdb-Error': message.replaceAll(/[^\x20-\x7e]/g, '?') } : {};
  const isUnparsable = isInflux && status === 400 && !message.startsWith(PARTIAL_WRITE);
  const body = { error: isUnparsable ? `${UNPARSABLE}: ${message}` : message, ...influx, hint, ...facts };
  return {
    status,
    headers: { ...headers, ...influxHeaders, 'Content-Type': 'application/json' },
    text: `${JSON.stringify(body)}\n`,
  };
}
