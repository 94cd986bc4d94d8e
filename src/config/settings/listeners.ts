import { type SettingEntries, TOKEN } from './entry.ts';

const CERTIFICATE =
  'PEM file of a certificate: the listener then speaks https. A renewed certificate is taken without a restart.';

export const LISTENERS = {
  INGEST_LISTEN: {
    member: 'ingestListen',
    form: { as: 'listen' },
    default: '127.0.0.1:8470',
    takenBy: 'restart',
    text: 'Where programs push values.',
  },
  INGEST_TOKEN: {
    member: 'ingestToken',
    form: TOKEN,
    secret: true,
    takenBy: 'reload',
    text: 'Bearer token that they must send; required where INGEST_LISTEN is open to the network.',
  },
  INGEST_HOSTS: {
    member: 'ingestHosts',
    form: { as: 'hosts' },
    takenBy: 'reload',
    text: 'Names beside localhost by which programs may call it while it has no token (a web page must not write here).',
  },
  INGEST_PARTIAL: {
    member: 'ingestPartial',
    form: { as: 'switch' },
    default: 'false',
    takenBy: 'reload',
    text: 'Of line protocol: take what is right of a request, instead of all or nothing.',
  },
  INGEST_TAG_FROM: {
    member: 'ingestTagFrom',
    form: { as: 'text' },
    default: 'measurement',
    takenBy: 'reload',
    text: 'Of line protocol: where the tag stands, measurement or the name of an Influx tag.',
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
    takenBy: 'reload',
    text:
      'Key of a value in line protocol, from {field} and Influx tags: {field}_{cpu}. A missing Influx tag is left out with the ' +
      'text before it; characters that a key cannot contain become _.',
  },
  INGEST_TLS_CERT: { member: 'ingestTlsCert', form: { as: 'path' }, takenBy: 'restart', text: CERTIFICATE },
  INGEST_TLS_KEY: { member: 'ingestTlsKey', form: { as: 'path' }, takenBy: 'restart', text: 'PEM file of its key.' },
  WEBHOOK_LISTEN: {
    member: 'webhookListen',
    form: { as: 'listen' },
    default: ':8471',
    takenBy: 'restart',
    text: 'Where webhook events arrive.',
  },
  OPS_LISTEN: {
    member: 'opsListen',
    form: { as: 'listen' },
    default: ':8472',
    takenBy: 'restart',
    text: 'Health, status and metrics.',
  },
  OPS_TOKEN: {
    member: 'opsToken',
    form: TOKEN,
    secret: true,
    takenBy: 'reload',
    text:
      'Bearer token (or password, with any name) for the page and /status; health and metrics do not ask for it. ' +
      'Without one they are shown on loopback alone.',
  },
  OPS_HOSTS: {
    member: 'opsHosts',
    form: { as: 'hosts' },
    takenBy: 'reload',
    text:
      'Names beside localhost by which a loopback address may be called, as a proxy passes them on; needs ' +
      'OPS_TOKEN.',
  },
  OPS_TLS_CERT: { member: 'opsTlsCert', form: { as: 'path' }, takenBy: 'restart', text: CERTIFICATE },
  OPS_TLS_KEY: { member: 'opsTlsKey', form: { as: 'path' }, takenBy: 'restart', text: 'PEM file of its key.' },
} as const satisfies SettingEntries;
