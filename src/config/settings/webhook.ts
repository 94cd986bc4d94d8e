import { ACCESS_EVENT_TYPES } from '../../contract/events.ts';
import { MAX, type SettingEntries, YEAR_MS } from './entry.ts';

export const WEBHOOK = {
  WEBHOOK_URL: {
    member: 'webhookUrl',
    form: { as: 'address', schemes: ['https', 'http'] },
    takenBy: 'restart',
    text: 'The public https address to register; empty registers nothing.',
  },
  WEBHOOK_SECRET: {
    member: 'webhookSecret',
    form: { as: 'text' },
    secret: true,
    takenBy: 'restart',
    text: 'Secret of a webhook that was registered by hand.',
  },
  WEBHOOK_EVENTS: {
    member: 'webhookEvents',
    form: { as: 'event-types' },
    default: ['threshold_reached', ...ACCESS_EVENT_TYPES].join(','),
    takenBy: 'restart',
    text: 'Event types to register for, with commas between; * is all of them.',
  },
  WEBHOOK_PROPERTIES: {
    member: 'webhookProperties',
    form: { as: 'event-properties' },
    takenBy: 'restart',
    text:
      'Filters of the webhook by event type, instead of those derived from reactions.yaml: attributes, value keys, specification keys or ' +
      'event type codes. For example asset_updated=status,product; event_created=* (all).',
  },
  WEBHOOK_REENABLE: {
    member: 'webhookReenable',
    form: { as: 'choice', of: ['failures', 'always', 'never'] },
    default: 'failures',
    takenBy: 'restart',
    text:
      'When to enable a webhook that was disabled on the platform: failures is only after two weeks of failed deliveries, which is ' +
      'when the platform disables it. `webhook disable` always stays until `webhook enable`.',
  },
  WEBHOOK_TLS_CERT: {
    member: 'webhookTlsCert',
    form: { as: 'path' },
    takenBy: 'restart',
    text: 'PEM file of a certificate: the listener then speaks https itself.',
  },
  WEBHOOK_TLS_KEY: { member: 'webhookTlsKey', form: { as: 'path' }, takenBy: 'restart', text: 'PEM file of its key.' },
  WEBHOOK_ACCEPT_SHA1: {
    member: 'webhookAcceptSha1',
    form: { as: 'switch' },
    default: 'false',
    takenBy: 'restart',
    text: 'Accept the deprecated SHA-1 signature where the SHA-256 one is missing.',
  },
  WEBHOOK_FROM: {
    member: 'webhookFrom',
    form: { as: 'topic' },
    example: 'broker platform/events',
    takenBy: 'restart',
    text:
      'Events come over a broker of tags.yaml, from a relay (WEBHOOK_TO): its name and the topic. Needs WEBHOOK_SECRET (two of ' +
      'them with a comma between while it is changed), excludes WEBHOOK_URL.',
  },
  WEBHOOK_TO: {
    member: 'webhookTo',
    form: { as: 'topic' },
    example: 'broker platform/events',
    takenBy: 'restart',
    text: 'Relay: every event that this gateway is sent is published there as well, body and signature, for WEBHOOK_FROM.',
  },
  TECHNICAL_USER_ID: {
    member: 'technicalUserId',
    form: { as: 'count', min: 1, max: MAX },
    takenBy: 'restart',
    text:
      'Id of the technical user. Events of access (appeared, disappeared) for other users are ignored. Required with WEBHOOK_FROM, ' +
      'unless the token response contains the id.',
  },
  WEBHOOK_POLL: {
    member: 'webhookPollMs',
    form: { as: 'duration', minMs: 0, maxMs: YEAR_MS },
    default: '5m',
    takenBy: 'restart',
    text: 'How often the platform is asked for events that did not arrive; 0 is never.',
  },
} as const satisfies SettingEntries;
