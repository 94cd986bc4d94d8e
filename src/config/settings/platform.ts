import type { SettingEntries } from './entry.ts';

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

export const PLATFORM = {
  PLATFORM_URL: {
    member: 'platformUrl',
    form: { as: 'address', schemes: ['https', 'http'], base: true },
    required: true,
    example: 'https://api.example.com',
    takenBy: 'restart',
    text: 'Address of the API, for example https://api.example.com.',
  },
  CLIENT_ID: {
    member: 'clientId',
    form: { as: 'text' },
    required: true,
    example: 'the API key of the subscription',
    takenBy: 'reload',
    text: 'The API key, from the subscription.',
  },
  CLIENT_SECRET: {
    member: 'clientSecret',
    form: { as: 'text' },
    required: true,
    secret: true,
    example: 'the API secret',
    takenBy: 'reload',
    text: 'Its secret.',
  },
  TECHNICAL_USERNAME: {
    member: 'technicalUsername',
    form: { as: 'text' },
    required: true,
    example: 'the name of the technical user',
    takenBy: 'reload',
    text: 'The technical user that came with the subscription.',
  },
  TECHNICAL_PASSWORD: {
    member: 'technicalPassword',
    form: { as: 'text' },
    required: true,
    secret: true,
    example: 'the password of the technical user',
    takenBy: 'reload',
    text: 'The password of the technical user.',
  },
  IDENTITY_URL: {
    member: 'identityUrl',
    form: { as: 'address', schemes: ['https', 'http'], base: true },
    otherwise: 'PLATFORM_URL',
    filled: true,
    takenBy: 'restart',
    text: 'Address of the identity application.',
  },
  CLIENT_AUTH: {
    member: 'clientAuth',
    form: { as: 'choice', of: ['basic', 'basic-encoded', 'body'] },
    default: 'basic',
    takenBy: 'reload',
    text:
      'How key and secret are sent: basic (a header, both as they are), basic-encoded (both percent-encoded first, ' +
      'RFC 6749 2.3.1) or body (form fields).',
  },
  PKCE_CHALLENGE: {
    member: 'pkceChallenge',
    form: { as: 'choice', of: ['base64url', 'base64'] },
    default: 'base64url',
    takenBy: 'reload',
    text: 'Encoding of code_challenge for tagferry login: base64url (RFC 7636) or base64 with padding.',
  },
  API_KEY_HEADER: {
    member: 'apiKeyHeader',
    form: { as: 'text', pattern: HEADER_NAME, what: 'the name of a header', example: 'API-Key' },
    takenBy: 'restart',
    text:
      'Name of a header that carries the API key on each call, for deployments that want one: API-Key. Empty sends ' +
      'none.',
  },
  VALUES_PATH: {
    member: 'valuesPath',
    form: { as: 'values-path' },
    default: '/v1/assets/{asset_id}/values',
    takenBy: 'reload',
    text: 'Where values are posted; {asset_id} and {instrumentation_id} are filled in.',
  },
  CLIENT_APPLICATION: {
    member: 'clientApplication',
    form: { as: 'text' },
    otherwise: 'the current one',
    takenBy: 'restart',
    text: 'Name of the client application that events are registered for. Required if the platform has several and does not offer /v1/client_applications/current.',
  },
  PLATFORM_CA: {
    member: 'platformCa',
    form: { as: 'path' },
    takenBy: 'restart',
    text: 'PEM file of a private certificate authority for calls of the platform.',
  },
  // A proxy's address may carry a password.
  HTTPS_PROXY: {
    member: 'httpsProxy',
    form: { as: 'address', schemes: ['http', 'https'], bare: true },
    secret: true,
    takenBy: 'restart',
    text: 'Proxy for outgoing calls.',
  },
  NO_PROXY: {
    member: 'noProxy',
    form: { as: 'text' },
    takenBy: 'restart',
    text: 'Hosts that are called without the proxy, with commas between.',
  },
} as const satisfies SettingEntries;
