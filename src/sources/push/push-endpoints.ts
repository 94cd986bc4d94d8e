import { readJsonBody, readNdjsonBody } from '../formats/json-values.ts';
import { msOfPrecision, PRECISIONS } from '../formats/line-protocol.ts';
import { KeyTemplate, readLineProtocol } from '../formats/line-values.ts';
import type { ReadBody } from '../formats/value-stream.ts';
import type { Draft } from '../intake/draft.ts';
import { type ErrorForm, PushRejection } from './push-rejection.ts';

/** Options for reading a request body. */
export interface Reading {
  read: ReadBody;
  /**
   * Set if valid values are accepted even if others are invalid. `asked`: requested by the client; `setting`: enabled
   * by INGEST_PARTIAL.
   */
  partial?: 'asked' | 'setting';
  /** Whether the body is a stream of unlimited length, whose lines are accepted as they arrive. */
  isStream?: true;
}

/** Settings for line protocol requests. */
export interface LineSettings {
  /** INGEST_PARTIAL. */
  partial?: boolean;
  /** INGEST_TAG_FROM: `measurement`, or the name of an Influx tag. */
  tagFrom?: string;
  /** INGEST_KEY_FROM. */
  keyFrom?: string;
}

/** Endpoint of the ingest listener. */
export interface Endpoint {
  methods: readonly string[];
  form: ErrorForm;
  /** Name of the counter for its values. */
  source: string;
  /** Selects the body parser based on the headers and the query. Throws a `PushRejection` before the body is read. */
  reader?: (contentType: string | undefined, query: URLSearchParams, settings: LineSettings) => Reading;
}

const JSON_TYPES = ['application/json', 'text/json'];
const NDJSON_TYPES = ['application/x-ndjson', 'application/ndjson', 'application/jsonl', 'application/x-jsonlines'];
const NAME_THE_TYPE = 'Add the header Content-Type: application/json, or application/x-ndjson for one value per line.';

function valuesReader(contentType: string | undefined, query: URLSearchParams): Reading {
  const [type = '', ...parameters] = (contentType ?? '').split(';').map((part) => part.trim().toLowerCase());
  for (const parameter of parameters) {
    const charset = /^charset="?([^"]*)"?$/.exec(parameter)?.[1];
    if (charset !== undefined && charset !== 'utf-8' && charset !== 'utf8' && charset !== 'us-ascii') {
      throw new PushRejection(415, 'the body must be UTF-8', 'Send charset=utf-8, or no charset.');
    }
  }
  if (JSON_TYPES.includes(type)) return { read: readJsonBody };
  if (NDJSON_TYPES.includes(type))
    return { read: readNdjsonBody, ...(asksForPart(query) ? { partial: 'asked', isStream: true } : {}) };
  // Default content type of `curl -d`.
  if (type === 'application/x-www-form-urlencoded')
    throw new PushRejection(415, 'unsupported Content-Type: form data', NAME_THE_TYPE);
  if (type === '') throw new PushRejection(415, 'missing Content-Type', NAME_THE_TYPE);
  throw new PushRejection(415, 'unsupported Content-Type', NAME_THE_TYPE);
}

function asksForPart(query: URLSearchParams): boolean | undefined {
  const partial = query.get('partial');
  if (partial === null) return undefined;
  if (partial === 'true' || partial === 'false') return partial === 'true';
  throw new PushRejection(400, 'partial must be true or false', 'Use partial=true or omit it.');
}

/**
 * Accepts line protocol with any content type, because Telegraf sends text/plain and curl sends a form type. `db`,
 * `org` and `bucket` are ignored.
 */
function linesReader(_contentType: string | undefined, query: URLSearchParams, settings: LineSettings): Reading {
  const precision = query.get('precision');
  const msOfUnit = msOfPrecision(precision);
  if (msOfUnit === undefined) {
    throw new PushRejection(400, 'unknown precision', `Use one of ${PRECISIONS.join(', ')}.`);
  }
  const asked = asksForPart(query);
  const tagFrom = settings.tagFrom === 'measurement' ? undefined : settings.tagFrom;
  const isKeyComposed = settings.keyFrom !== undefined && settings.keyFrom !== '{field}';
  const keyFrom = isKeyComposed ? new KeyTemplate(settings.keyFrom!) : undefined;
  const options = { msOfUnit, isUnitGuessed: precision === null || precision === '', tagFrom, keyFrom };
  const partial = asked ? 'asked' : asked === undefined && settings.partial ? 'setting' : undefined;
  const read = (bytes: Buffer, draft: Draft) => readLineProtocol(bytes, options, draft);
  return partial === undefined ? { read } : { read, partial };
}

const LOOK = ['GET', 'HEAD'];

export const ENDPOINTS: ReadonlyMap<string, Endpoint> = new Map<string, Endpoint>([
  ['/v1/values', { methods: ['POST'], form: 'plain', source: 'http', reader: valuesReader }],
  ['/write', { methods: ['POST'], form: 'influx1', source: 'influx', reader: linesReader }],
  ['/api/v2/write', { methods: ['POST'], form: 'influx2', source: 'influx', reader: linesReader }],
  ['/query', { methods: ['POST', 'GET'], form: 'influx1', source: 'influx' }],
  ['/ping', { methods: LOOK, form: 'influx1', source: 'influx' }],
  ['/health', { methods: LOOK, form: 'influx2', source: 'influx' }],
]);

/** Headers that InfluxDB clients check before writing. The version is the protocol version; the build is `tagferry`. */
export const INFLUX_HEADERS = { 'X-Influxdb-Version': '1.8.10', 'X-Influxdb-Build': 'tagferry' } as const;

export const HEALTH = { name: 'tagferry', message: 'ready for values', status: 'pass', checks: [] } as const;

/**
 * Responds to the two statements that InfluxDB 1 collectors send at startup. Throws a `PushRejection` for any other
 * statement, because the agent does not support queries.
 */
export function answerQuery(statement: string | null): object {
  if (statement !== null && /^\s*create\s+database\s/i.test(statement)) return { results: [{ statement_id: 0 }] };
  if (statement !== null && /^\s*show\s+databases\s*;?\s*$/i.test(statement)) {
    const series = [{ name: 'databases', columns: ['name'], values: [['tagferry']] }];
    return { results: [{ statement_id: 0, series }] };
  }
  throw new PushRejection(400, 'queries are not supported', 'Only CREATE DATABASE and SHOW DATABASES are supported.');
}
