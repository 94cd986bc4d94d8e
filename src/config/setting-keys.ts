import { ACCESS_EVENT_TYPES } from '../contract/events.ts';
import type { Settings } from './settings.ts';

/** What a key's text is read as. */
export type Form =
  | { as: 'text'; pattern?: RegExp; what?: string; example?: string }
  /** `base`: paths are put behind it. `bare`: host:port alone is http. */
  | { as: 'address'; schemes: readonly string[]; base?: true; bare?: true }
  | { as: 'path' }
  | { as: 'values-path' }
  /** `meant`: other programs' words for the same. */
  | { as: 'choice'; of: readonly string[]; meant?: Readonly<Record<string, string>> }
  | { as: 'switch' }
  | { as: 'count'; min: number; max: number }
  | { as: 'duration'; minMs: number; maxMs: number }
  | { as: 'size'; min: number; max: number }
  | { as: 'size-or-share' }
  | { as: 'listen' }
  | { as: 'event-types' }
  /** Names of hosts, comma-separated. */
  | { as: 'hosts' }
  | { as: 'success-statuses' };

export interface SettingKey {
  member: keyof Settings;
  form: Form;
  /** As it would be written in agent.env; absent: `undefined` unless another rule fills it. */
  default?: string;
  required?: true;
  /** Its text is never shown. */
  secret?: true;
  example?: string;
}

const DAY_MS = 86_400_000;
const YEAR_MS = 365 * DAY_MS;
const MAX = Number.MAX_SAFE_INTEGER;
/** Visible ASCII without spaces: what fits a header. */
const TOKEN = /^[\x21-\x7e]+$/;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Every key of docs/interface.md's table, in its order. The reasons of the defaults stand in docs/architecture.md. */
export const SETTING_KEYS = {
  PLATFORM_URL: {
    member: 'platformUrl',
    form: { as: 'address', schemes: ['https', 'http'], base: true },
    required: true,
    example: 'https://api.example.com',
  },
  IDENTITY_URL: { member: 'identityUrl', form: { as: 'address', schemes: ['https', 'http'], base: true } },
  CLIENT_ID: { member: 'clientId', form: { as: 'text' }, required: true, example: 'the API key of the subscription' },
  CLIENT_SECRET: {
    member: 'clientSecret',
    form: { as: 'text' },
    required: true,
    secret: true,
    example: 'the API secret',
  },
  TECHNICAL_USERNAME: {
    member: 'technicalUsername',
    form: { as: 'text' },
    required: true,
    example: 'the name of the technical user',
  },
  TECHNICAL_PASSWORD: {
    member: 'technicalPassword',
    form: { as: 'text' },
    required: true,
    secret: true,
    example: 'the password of the technical user',
  },
  CLIENT_AUTH: { member: 'clientAuth', form: { as: 'choice', of: ['basic', 'body'] }, default: 'basic' },
  API_KEY_HEADER: {
    member: 'apiKeyHeader',
    form: { as: 'text', pattern: HEADER_NAME, what: 'the name of a header', example: 'API-Key' },
  },
  VALUES_PATH: { member: 'valuesPath', form: { as: 'values-path' }, default: '/v1/assets/{asset_id}/values' },
  POST_INTERVAL: { member: 'postIntervalMs', form: { as: 'duration', minMs: 1, maxMs: DAY_MS }, default: '10s' },
  POST_MAX_VALUES: { member: 'postMaxValues', form: { as: 'count', min: 1, max: 1_000_000 }, default: '5000' },
  POST_MAX_BYTES: { member: 'postMaxBytes', form: { as: 'size', min: 1000, max: MAX }, default: '480kB' },
  POST_SUCCESS: { member: 'postSuccess', form: { as: 'success-statuses' }, default: '204' },
  POST_GZIP: { member: 'postGzip', form: { as: 'switch' }, default: 'false' },
  POST_CONCURRENCY: { member: 'postConcurrency', form: { as: 'count', min: 1, max: 64 }, default: '4' },
  REQUESTS_PER_MINUTE: {
    member: 'requestsPerMinute',
    form: { as: 'count', min: 0, max: 1_000_000 },
    default: '400',
  },
  REQUESTS_PER_DAY: { member: 'requestsPerDay', form: { as: 'count', min: 0, max: 1_000_000_000 }, default: '0' },
  DRAIN_ORDER: {
    member: 'drainOrder',
    form: { as: 'choice', of: ['live-first', 'oldest-first'], meant: { fifo: 'oldest-first' } },
    default: 'live-first',
  },
  BACKFILL_VALUES_PER_SECOND: {
    member: 'backfillValuesPerSecond',
    form: { as: 'count', min: 0, max: 1_000_000_000 },
    default: '0',
  },
  // A program that pushes waits this long for its answer: a minute is more than any of them waits.
  COMMIT_INTERVAL: { member: 'commitIntervalMs', form: { as: 'duration', minMs: 0, maxMs: 60_000 }, default: '1s' },
  COMMIT_VALUES: { member: 'commitValues', form: { as: 'count', min: 1, max: 1_000_000 }, default: '1000' },
  BUFFER_MAX_BYTES: { member: 'bufferMaxBytes', form: { as: 'size', min: 0, max: MAX }, default: '2GiB' },
  BUFFER_MAX_AGE: {
    member: 'bufferMaxAgeMs',
    form: { as: 'duration', minMs: 0, maxMs: 10 * YEAR_MS },
    default: '0',
  },
  BUFFER_MIN_FREE: { member: 'bufferMinFree', form: { as: 'size-or-share' }, default: '5%' },
  BUFFER_FULL: {
    member: 'bufferFull',
    form: { as: 'choice', of: ['drop-oldest', 'refuse-new'] },
    default: 'drop-oldest',
  },
  CLOCK_UNTRUSTED: { member: 'clockUntrusted', form: { as: 'choice', of: ['correct', 'send'] }, default: 'correct' },
  INGEST_LISTEN: { member: 'ingestListen', form: { as: 'listen' }, default: '127.0.0.1:8470' },
  WEBHOOK_LISTEN: { member: 'webhookListen', form: { as: 'listen' }, default: ':8471' },
  OPS_LISTEN: { member: 'opsListen', form: { as: 'listen' }, default: ':8472' },
  WEBHOOK_URL: { member: 'webhookUrl', form: { as: 'address', schemes: ['https', 'http'] } },
  WEBHOOK_SECRET: { member: 'webhookSecret', form: { as: 'text' }, secret: true },
  WEBHOOK_EVENTS: {
    member: 'webhookEvents',
    form: { as: 'event-types' },
    default: ['threshold_reached', ...ACCESS_EVENT_TYPES].join(','),
  },
  WEBHOOK_TLS_CERT: { member: 'webhookTlsCert', form: { as: 'path' } },
  WEBHOOK_TLS_KEY: { member: 'webhookTlsKey', form: { as: 'path' } },
  WEBHOOK_ACCEPT_SHA1: { member: 'webhookAcceptSha1', form: { as: 'switch' }, default: 'false' },
  WEBHOOK_POLL: { member: 'webhookPollMs', form: { as: 'duration', minMs: 0, maxMs: YEAR_MS }, default: '5m' },
  PLATFORM_CA: { member: 'platformCa', form: { as: 'path' } },
  // A proxy's address may carry a password.
  HTTPS_PROXY: { member: 'httpsProxy', form: { as: 'address', schemes: ['http', 'https'], bare: true }, secret: true },
  NO_PROXY: { member: 'noProxy', form: { as: 'text' } },
  INGEST_TOKEN: {
    member: 'ingestToken',
    form: { as: 'text', pattern: TOKEN, what: 'a bearer token', example: 'letters and digits without spaces' },
    secret: true,
  },
  INGEST_HOSTS: { member: 'ingestHosts', form: { as: 'hosts' } },
  INGEST_PARTIAL: { member: 'ingestPartial', form: { as: 'switch' }, default: 'false' },
  INGEST_TAG_FROM: { member: 'ingestTagFrom', form: { as: 'text' }, default: 'measurement' },
  INGEST_TLS_CERT: { member: 'ingestTlsCert', form: { as: 'path' } },
  INGEST_TLS_KEY: { member: 'ingestTlsKey', form: { as: 'path' } },
  OPS_TOKEN: {
    member: 'opsToken',
    form: { as: 'text', pattern: TOKEN, what: 'a bearer token', example: 'letters and digits without spaces' },
    secret: true,
  },
  OPS_HOSTS: { member: 'opsHosts', form: { as: 'hosts' } },
  OPS_TLS_CERT: { member: 'opsTlsCert', form: { as: 'path' } },
  OPS_TLS_KEY: { member: 'opsTlsKey', form: { as: 'path' } },
  MAX_SERIES: { member: 'maxSeries', form: { as: 'count', min: 1, max: 10_000_000 } },
  CLIENT_APPLICATION: { member: 'clientApplication', form: { as: 'text' } },
  STATE_DIR: { member: 'stateDir', form: { as: 'text' } },
  LOG_LEVEL: {
    member: 'logLevel',
    form: {
      as: 'choice',
      of: ['trace', 'debug', 'info', 'warn', 'error', 'fatal'],
      meant: { verbose: 'debug', all: 'trace', notice: 'info', critical: 'fatal', quiet: 'error' },
    },
    default: 'info',
  },
  LOG_FORMAT: {
    member: 'logFormat',
    form: { as: 'choice', of: ['auto', 'pretty', 'json', 'journal'], meant: { text: 'pretty', plain: 'pretty' } },
    default: 'auto',
  },
} as const satisfies Record<string, SettingKey>;

export type KeyName = keyof typeof SETTING_KEYS;

export const KEY_NAMES = Object.keys(SETTING_KEYS) as KeyName[];

/** What agent.env may hold: every key, and every key with `_FILE`. */
export const AGENT_ENV_KEYS: readonly string[] = KEY_NAMES.flatMap((key) => [key, `${key}_FILE`]);

export function settingKey(key: KeyName): SettingKey {
  return SETTING_KEYS[key];
}
