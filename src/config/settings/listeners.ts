import { type SettingEntries, TOKEN } from './entry.ts';

const CERTIFICATE =
  'PEM file with a certificate; if set, the listener uses HTTPS. A renewed certificate is loaded without a restart.';

export const LISTENERS = {
  INGEST_LISTEN: {
    member: 'ingestListen',
    form: { as: 'listen' },
    default: '127.0.0.1:8470',
    appliedBy: 'restart',
    text: 'Listen address for programs that push values.',
  },
  INGEST_TOKEN: {
    member: 'ingestToken',
    form: TOKEN,
    secret: true,
    appliedBy: 'reload',
    text: 'Bearer token that programs must send. Required if INGEST_LISTEN is not a loopback address.',
  },
  INGEST_HOSTS: {
    member: 'ingestHosts',
    form: { as: 'hosts' },
    appliedBy: 'reload',
    text: 'Host names, in addition to localhost, that are allowed in requests without a token. Other names are rejected, so that web pages cannot push values.',
  },
  INGEST_TAG_FROM: {
    member: 'ingestTagFrom',
    form: { as: 'text' },
    default: 'measurement',
    appliedBy: 'reload',
    text: 'Source of the tag name in line protocol: measurement, or the name of an Influx tag.',
  },
  INGEST_KEY_FROM: {
    member: 'ingestKeyFrom',
    form: {
      as: 'text',
      pattern: /^(?=.*\{field\})(?:[A-Za-z0-9._-]|\{[^{}\s]+\})+$/,
      what: 'a key made of {field} and names of Influx tags in braces',
      example: '{field} or {field}_{cpu}',
    },
    default: '{field}',
    appliedBy: 'reload',
    text: 'Value key in line protocol, built from {field} and Influx tags, for example {field}_{cpu}. If an Influx tag is missing, its placeholder and the preceding text are omitted. Characters that a key cannot contain are replaced by _.',
  },
  EARLIEST_TIME: {
    member: 'earliestTimeMs',
    form: { as: 'time', minMs: 0, maxMs: Date.UTC(2026, 0, 1) },
    default: '2000-01-01T00:00:00Z',
    appliedBy: 'reload',
    text: 'Earliest plausible timestamp of a value. Earlier timestamps, and timestamps more than a day ahead, are implausible: they are replaced with the arrival time if the value was read live, and the value is rejected otherwise.',
  },
  INGEST_TLS_CERT: { member: 'ingestTlsCert', form: { as: 'path' }, appliedBy: 'restart', text: CERTIFICATE },
  INGEST_TLS_KEY: {
    member: 'ingestTlsKey',
    form: { as: 'path' },
    appliedBy: 'restart',
    text: 'PEM file with the private key of the certificate.',
  },
  WEBHOOK_LISTEN: {
    member: 'webhookListen',
    form: { as: 'listen' },
    default: ':8471',
    appliedBy: 'restart',
    text: 'Listen address for webhook events.',
  },
  OPS_LISTEN: {
    member: 'opsListen',
    form: { as: 'listen' },
    default: ':8472',
    appliedBy: 'restart',
    text: 'Listen address for the page, health, status and metrics.',
  },
  OPS_TOKEN: {
    member: 'opsToken',
    form: TOKEN,
    secret: true,
    appliedBy: 'reload',
    text: 'Bearer token, or password with any user name, for the page and /status. Health and metrics do not require it. Without a token, the page and /status are available on loopback only.',
  },
  OPS_HOSTS: {
    member: 'opsHosts',
    form: { as: 'hosts' },
    appliedBy: 'reload',
    text: 'Host names, in addition to localhost, that a proxy can use when it forwards requests to a loopback address. Requires OPS_TOKEN.',
  },
  OPS_TLS_CERT: { member: 'opsTlsCert', form: { as: 'path' }, appliedBy: 'restart', text: CERTIFICATE },
  OPS_TLS_KEY: {
    member: 'opsTlsKey',
    form: { as: 'path' },
    appliedBy: 'restart',
    text: 'PEM file with the private key of the certificate.',
  },
} as const satisfies SettingEntries;
