import type { Draft } from '../draft.ts';
import { readJsonBody, readNdjsonBody } from './json-values.ts';
import { KeyTemplate } from './key-template.ts';
import { msOfPrecision, PRECISIONS } from './line-protocol.ts';
import { readLineProtocol } from './line-values.ts';
import { type ErrorForm, PushRefusal } from './push-refusal.ts';

/** Reads a body into a draft; what it throws is the answer. */
export type ReadBody = (bytes: Buffer, draft: Draft) => void;

/** How a request's body is to be taken. */
export interface Reading {
  read: ReadBody;
  /** What is right is taken, and the answer counts. `asked`: this request asked for it; `setting`: INGEST_PARTIAL did. */
  partial?: 'asked' | 'setting';
  /** Lines are taken as they come, without an end. */
  isStream?: true;
}

/** What the settings say of line protocol. */
export interface LineSettings {
  /** INGEST_PARTIAL. */
  partial?: boolean;
  /** INGEST_TAG_FROM: `measurement`, or the name of an Influx tag. */
  tagFrom?: string;
  /** INGEST_KEY_FROM. */
  keyFrom?: string;
}

/** An address of the ingest listener. */
export interface Endpoint {
  methods: readonly string[];
  form: ErrorForm;
  /** Which counter its values go to. */
  source: string;
  /** How to read the body, decided from the header and query before the body is read. Throws a `PushRefusal`. */
  reader?: (contentType: string | undefined, query: URLSearchParams, settings: LineSettings) => Reading;
}

const JSON_TYPES = ['application/json', 'text/json'];
const NDJSON_TYPES = ['application/x-ndjson', 'application/ndjson', 'application/jsonl', 'application/x-jsonlines'];
const NAME_THE_TYPE = 'Add the header Content-Type: application/json, or application/x-ndjson for one value a line.';

function valuesReader(contentType: string | undefined, query: URLSearchParams): Reading {
  const [type = '', ...parameters] = (contentType ?? '').split(';').map((part) => part.trim().toLowerCase());
  for (const parameter of parameters) {
    const charset = /^charset="?([^"]*)"?$/.exec(parameter)?.[1];
    if (charset !== undefined && charset !== 'utf-8' && charset !== 'utf8' && charset !== 'us-ascii') {
      throw new PushRefusal(415, 'the body must be UTF-8', 'Send charset=utf-8, or no charset.');
    }
  }
  if (JSON_TYPES.includes(type)) return { read: readJsonBody };
  if (NDJSON_TYPES.includes(type))
    return { read: readNdjsonBody, ...(asksForPart(query) ? { partial: 'asked', isStream: true } : {}) };
  // `curl -d` says this unless it is told otherwise.
  if (type === 'application/x-www-form-urlencoded')
    throw new PushRefusal(415, 'the body is marked as a form', NAME_THE_TYPE);
  if (type === '') throw new PushRefusal(415, 'the request has no Content-Type', NAME_THE_TYPE);
  throw new PushRefusal(415, 'this Content-Type cannot be read here', NAME_THE_TYPE);
}

function asksForPart(query: URLSearchParams): boolean | undefined {
  const partial = query.get('partial');
  if (partial === null) return undefined;
  if (partial === 'true' || partial === 'false') return partial === 'true';
  throw new PushRefusal(400, 'partial is neither true nor false', 'Write partial=true, or leave it out.');
}

/** Line protocol comes under any type: Telegraf says text/plain, curl says it is a form. `db`, `org` and `bucket` mean nothing here. */
function linesReader(_contentType: string | undefined, query: URLSearchParams, settings: LineSettings): Reading {
  const precision = query.get('precision');
  const msOfUnit = msOfPrecision(precision);
  if (msOfUnit === undefined) {
    throw new PushRefusal(400, 'this precision is not known', `Write one of ${PRECISIONS.join(', ')}.`);
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

/** What the clients of InfluxDB ask before they write; the version is the protocol's, `tagferry` the builder. */
export const INFLUX_HEADERS = { 'X-Influxdb-Version': '1.8.10', 'X-Influxdb-Build': 'tagferry' } as const;

export const HEALTH = { name: 'tagferry', message: 'ready for values', status: 'pass', checks: [] } as const;

/**
 * The two statements that collectors of InfluxDB 1 send at start-up: there is nothing to create and nothing to list.
 * Throws a `PushRefusal` for every other: values are not read back here.
 */
export function answerQuery(statement: string | null): object {
  if (statement !== null && /^\s*create\s+database\s/i.test(statement)) return { results: [{ statement_id: 0 }] };
  if (statement !== null && /^\s*show\s+databases\s*;?\s*$/i.test(statement)) {
    const series = [{ name: 'databases', columns: ['name'], values: [['tagferry']] }];
    return { results: [{ statement_id: 0, series }] };
  }
  throw new PushRefusal(400, 'values cannot be queried here', 'Only CREATE DATABASE and SHOW DATABASES are answered.');
}
