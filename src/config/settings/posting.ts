import { DAY_MS, MAX, type SettingEntries } from './entry.ts';

export const POSTING = {
  POST_INTERVAL: {
    member: 'postIntervalMs',
    form: { as: 'duration', minMs: 1, maxMs: DAY_MS },
    default: '10s',
    takenBy: 'reload',
    text: 'How long a fresh value may wait for company before it is posted.',
  },
  POST_MAX_VALUES: {
    member: 'postMaxValues',
    form: { as: 'count', min: 1, max: 1_000_000 },
    default: '5000',
    takenBy: 'reload',
    text: 'The most values of one post.',
  },
  POST_MAX_BYTES: {
    member: 'postMaxBytes',
    form: { as: 'size', min: 1000, max: MAX },
    default: '480kB',
    takenBy: 'reload',
    text: 'The largest post. The platform takes 500 kB at most.',
  },
  POST_SUCCESS: {
    member: 'postSuccess',
    form: { as: 'success-statuses' },
    default: '204',
    takenBy: 'reload',
    text:
      'Statuses with which the platform says that it took a post (with an empty body); any other answer leaves the ' +
      'values here.',
  },
  POST_GZIP: {
    member: 'postGzip',
    form: { as: 'switch' },
    default: 'false',
    takenBy: 'restart',
    text: 'Gzip the bodies of posts, for links that are paid by the byte (not documented by the platform).',
  },
  POST_CONCURRENCY: {
    member: 'postConcurrency',
    form: { as: 'count', min: 1, max: 64 },
    default: '4',
    takenBy: 'reload',
    text: 'Posts under way at once.',
  },
  REQUESTS_PER_MINUTE: {
    member: 'requestsPerMinute',
    form: { as: 'count', min: 0, max: 1_000_000 },
    default: '400',
    takenBy: 'restart',
    text: 'Budget of API calls, which posts share; 0 is none. The platform allows a user 500 a minute.',
  },
  REQUESTS_PER_DAY: {
    member: 'requestsPerDay',
    form: { as: 'count', min: 0, max: 1_000_000_000 },
    default: '0',
    takenBy: 'restart',
    text: 'Budget of API calls in a day; 0 is none.',
    more: '`status` projects the use of the day.',
  },
  DRAIN_ORDER: {
    member: 'drainOrder',
    form: { as: 'choice', of: ['live-first', 'oldest-first'], meant: { fifo: 'oldest-first' } },
    default: 'live-first',
    takenBy: 'reload',
    text: 'After an outage: live-first, or oldest-first.',
  },
  BACKFILL_VALUES_PER_SECOND: {
    member: 'backfillValuesPerSecond',
    form: { as: 'count', min: 0, max: 1_000_000_000 },
    default: '0',
    takenBy: 'reload',
    text: 'Limit for the backlog in values a second; 0 is none.',
  },
} as const satisfies SettingEntries;
