/** Endpoints of the ingest listener, and the formats of their bodies. */
import { readNdjsonBody } from '../formats/json-values.ts';
import { type LineOptions, RejectedLines, readLineProtocol } from '../formats/line-protocol.ts';
import type { Draft } from '../intake/draft.ts';
import { MAX_LINE_BYTES } from '../intake/text-parsers.ts';
import { MAX_JSON_BYTES, readJsonBody } from './bodies.ts';
import { INFLUX_VERSION, PushRejection } from './responses.ts';

/** How the body of a request is read. */
export interface BodyFormat {
  /** Maximum size of the body, after decompression. */
  maxBytes: number;
  /** Whether valid values are accepted even if others are invalid. */
  isPartial: boolean;
  /** Reads a body into a draft. Throws `UnreadableValues`. */
  read(bytes: Buffer, draft: Draft): void;
  /** Lines of line protocol that `read` rejected; `undefined` for other formats. */
  rejectedLines?: RejectedLines;
}

/** Settings for line protocol requests. */
export interface LineSettings {
  /** INGEST_TAG_FROM: `measurement`, or the name of an Influx tag. */
  tagFrom?: string;
  /** INGEST_KEY_FROM. */
  keyFrom?: string;
}

export interface Endpoint {
  methods: readonly string[];
  /** Whether clients expect the responses of InfluxDB 1 and 2. */
  isInflux: boolean;
  /** Returns the format based on the headers and the query. Throws a `PushRejection` before the body is read. */
  format?: (contentType: string | undefined, query: URLSearchParams, settings: LineSettings) => BodyFormat;
  /** Returns the response to a request without values; `undefined` for an empty one. */
  probe?: (query: URLSearchParams, body: string) => object | undefined;
}

const JSON_TYPES = ['application/json', 'text/json'];
const NDJSON_TYPES = ['application/x-ndjson', 'application/ndjson', 'application/jsonl', 'application/x-jsonlines'];
const NAME_THE_TYPE = 'Add the header Content-Type: application/json, or application/x-ndjson for one value per line.';

/** Maximum size of bodies that are read line by line. */
const MAX_LINES_BYTES = 8 * 1024 * 1024;

function valuesFormat(contentType: string | undefined, query: URLSearchParams): BodyFormat {
  const [type = '', ...parameters] = (contentType ?? '').split(';').map((part) => part.trim().toLowerCase());
  const charset = parameters.find((parameter) => parameter.startsWith('charset='));
  if (charset !== undefined && !/^charset="?(utf-?8|us-ascii)"?$/.test(charset))
    throw new PushRejection(415, 'the body must be UTF-8', 'Send charset=utf-8, or no charset.');
  const partial = query.get('partial') ?? 'false';
  if (partial !== 'true' && partial !== 'false')
    throw new PushRejection(400, 'partial must be true or false', 'Use partial=true or omit it.');
  const isPartial = partial === 'true';
  if (JSON_TYPES.includes(type)) return { maxBytes: MAX_JSON_BYTES, isPartial, read: readJsonBody };
  if (NDJSON_TYPES.includes(type)) return { maxBytes: MAX_LINES_BYTES, isPartial, read: readNdjsonBody };
  let problem = type === '' ? 'missing Content-Type' : 'unsupported Content-Type';
  // Default content type of `curl -d`.
  if (type === 'application/x-www-form-urlencoded') problem += ': form data';
  throw new PushRejection(415, problem, NAME_THE_TYPE);
}

/** Milliseconds per unit of `precision`, in the spellings of InfluxDB 1 and 2. */
const MS_OF_PRECISION: Readonly<Record<string, number>> = {
  ns: 1e-6,
  n: 1e-6,
  us: 1e-3,
  u: 1e-3,
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};

/**
 * Line protocol has any content type, because Telegraf sends text/plain and curl sends a form type. `db`, `org` and
 * `bucket` are ignored.
 */
function linesFormat(_contentType: string | undefined, query: URLSearchParams, settings: LineSettings): BodyFormat {
  const precision = query.get('precision') ?? '';
  // The micro sign or the Greek letter mu.
  const msOfUnit = MS_OF_PRECISION[precision.replace(/^[µμ]/, 'u') || 'ns'];
  if (msOfUnit === undefined) throw new PushRejection(400, 'unknown precision', 'Use one of ns, us, ms, s, m, h.');
  const { tagFrom, keyFrom = '{field}' } = settings;
  const options: LineOptions = {
    msOfUnit,
    tagFrom: tagFrom === 'measurement' ? undefined : tagFrom,
    keyOf: keyFrom === '{field}' ? undefined : keyComposer(keyFrom),
    maxLineLength: MAX_LINE_BYTES,
  };
  const rejectedLines = new RejectedLines();
  return {
    maxBytes: MAX_LINES_BYTES,
    isPartial: true,
    read: (bytes, draft) => readLineProtocol(bytes, options, draft, rejectedLines),
    rejectedLines,
  };
}

/**
 * Returns a function that composes the key of a value from its field and the Influx tags of its line
 * (`INGEST_KEY_FROM`), for example `{field}_{cpu}`. A missing Influx tag is omitted together with the text before it.
 * Characters that are not allowed in a key become `_`.
 */
function keyComposer(template: string): NonNullable<LineOptions['keyOf']> {
  // Alternates between text and names: `a{field}_{cpu}` is split into "a", "field", "_", "cpu", "".
  const pieces = template.split(/\{([^{}]+)\}/);
  return (field, tags) => {
    let key = pieces[0]!;
    let hasText = false;
    for (let at = 1; at < pieces.length; at += 2) {
      const name = pieces[at]!;
      const text = name === 'field' ? field : tags.get(name)?.replaceAll(/[^A-Za-z0-9._-]/g, '_');
      if (text === undefined) continue;
      key += hasText ? pieces[at - 1]! + text : text;
      hasText = true;
    }
    return key + pieces.at(-1)!;
  };
}

const VALUES = { methods: ['POST'], isInflux: false, format: valuesFormat };
const LINES = { methods: ['POST'], isInflux: true, format: linesFormat };
const LOOK = { methods: ['GET', 'HEAD'], isInflux: true };

export const ENDPOINTS: ReadonlyMap<string, Endpoint> = new Map<string, Endpoint>([
  ['/v1/values', VALUES],
  ['/write', LINES],
  ['/api/v2/write', LINES],
  ['/query', { methods: ['POST', 'GET'], isInflux: true, probe: answerQuery }],
  ['/ping', { ...LOOK, probe: (query) => (query.get('verbose') === 'true' ? { version: INFLUX_VERSION } : undefined) }],
  ['/health', { ...LOOK, probe: () => HEALTH }],
]);

const HEALTH = { name: 'tagferry', message: 'ready for values', status: 'pass', checks: [] };

/**
 * Responds to the two statements that InfluxDB 1 collectors send at startup. Throws a `PushRejection` for any other
 * statement, because the agent does not support queries.
 */
function answerQuery(query: URLSearchParams, body: string): object {
  const statement = query.get('q') ?? new URLSearchParams(body).get('q') ?? '';
  if (/^\s*create\s+database\s/i.test(statement)) return { results: [{ statement_id: 0 }] };
  if (/^\s*show\s+databases\s*;?\s*$/i.test(statement)) {
    const series = [{ name: 'databases', columns: ['name'], values: [['tagferry']] }];
    return { results: [{ statement_id: 0, series }] };
  }
  throw new PushRejection(400, 'queries are not supported', 'Only CREATE DATABASE and SHOW DATABASES are supported.');
}
