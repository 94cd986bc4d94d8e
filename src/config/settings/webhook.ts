import { ACCESS_EVENT_TYPES } from '../../contract/events.ts';
import { MAX, type SettingEntries, YEAR_MS } from './entry.ts';

export const WEBHOOK = {
  WEBHOOK_URL: {
    member: 'webhookUrl',
    form: { as: 'address', schemes: ['https', 'http'] },
    appliedBy: 'restart',
    text: 'Public HTTPS URL to register as the webhook. If empty, no webhook is registered.',
  },
  WEBHOOK_SECRET: {
    member: 'webhookSecret',
    form: { as: 'text' },
    secret: true,
    appliedBy: 'restart',
    text: 'Secret of a webhook that was registered manually.',
  },
  WEBHOOK_EVENTS: {
    member: 'webhookEvents',
    form: { as: 'event-types' },
    default: ['threshold_reached', ...ACCESS_EVENT_TYPES].join(','),
    appliedBy: 'restart',
    text: 'Event types for the webhook, comma-separated; * means all.',
  },
  WEBHOOK_PROPERTIES: {
    member: 'webhookProperties',
    form: { as: 'event-properties' },
    appliedBy: 'restart',
    text: 'Webhook filters for each event type, replacing those derived from reactions.yaml: attributes, value keys, specification keys or event type codes. Example: asset_updated=status,product; event_created=* (all).',
  },
  WEBHOOK_REENABLE: {
    member: 'webhookReenable',
    form: { as: 'choice', of: ['failures', 'always', 'never'] },
    default: 'failures',
    appliedBy: 'restart',
    text: 'When to re-enable a webhook that was disabled on the platform: only if two weeks of failed deliveries were the cause (failures), always, or never. A webhook disabled with `webhook disable` stays disabled until you run `webhook enable`.',
  },
  WEBHOOK_TLS_CERT: {
    member: 'webhookTlsCert',
    form: { as: 'path' },
    appliedBy: 'restart',
    text: 'PEM file with a certificate; if set, the listener uses HTTPS.',
  },
  WEBHOOK_TLS_KEY: {
    member: 'webhookTlsKey',
    form: { as: 'path' },
    appliedBy: 'restart',
    text: 'PEM file with the private key of the certificate.',
  },
  WEBHOOK_ACCEPT_SHA1: {
    member: 'webhookAcceptSha1',
    form: { as: 'switch' },
    default: 'false',
    appliedBy: 'restart',
    text: 'Accept the deprecated SHA-1 signature if the SHA-256 signature is missing.',
  },
  WEBHOOK_FROM: {
    member: 'webhookFrom',
    form: { as: 'topic' },
    example: 'broker platform/events',
    appliedBy: 'restart',
    text: 'Broker (from tags.yaml) and topic for events from a relay (WEBHOOK_TO). Requires WEBHOOK_SECRET (two comma-separated secrets during rotation). Cannot be combined with WEBHOOK_URL.',
  },
  WEBHOOK_TO: {
    member: 'webhookTo',
    form: { as: 'topic' },
    example: 'broker platform/events',
    appliedBy: 'restart',
    text: 'Broker (from tags.yaml) and topic to which this gateway relays each event with its signature, for WEBHOOK_FROM.',
  },
  TECHNICAL_USER_ID: {
    member: 'technicalUserId',
    form: { as: 'count', min: 1, max: MAX },
    appliedBy: 'restart',
    text: 'ID of the technical user. Access events (appeared, disappeared) for other users are ignored. Required with WEBHOOK_FROM if the token response does not contain the ID.',
  },
  WEBHOOK_POLL: {
    member: 'webhookPollMs',
    form: { as: 'duration', minMs: 0, maxMs: YEAR_MS },
    default: '5m',
    appliedBy: 'restart',
    text: 'Interval at which the agent checks for missed events; 0 means never.',
  },
} as const satisfies SettingEntries;
