import { ACCESS_EVENT_TYPES } from '../../contract/events.ts';
import { type SettingEntries, YEAR_MS } from './entry.ts';

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
  WEBHOOK_POLL: {
    member: 'webhookPollMs',
    form: { as: 'duration', minMs: 0, maxMs: YEAR_MS },
    default: '5m',
    takenBy: 'restart',
    text: 'How often the platform is asked for events that did not arrive; 0 is never.',
  },
} as const satisfies SettingEntries;
