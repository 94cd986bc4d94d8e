import { MAX, type SettingEntries, YEAR_MS } from './entry.ts';

export const BUFFER = {
  COMMIT_INTERVAL: {
    member: 'commitIntervalMs',
    // A push waits for the next commit, so the interval is limited to one minute.
    form: { as: 'duration', minMs: 0, maxMs: 60_000 },
    default: '1s',
    appliedBy: 'reload',
    text: 'Minimum interval between disk commits. Longer intervals reduce flash wear. Sources that cannot send more data until a commit, such as a broker whose window is full, trigger up to ten commits per second.',
  },
  COMMIT_VALUES: {
    member: 'commitValues',
    form: { as: 'count', min: 1, max: 1_000_000 },
    default: '1000',
    appliedBy: 'reload',
    text: 'Number of waiting values that triggers a commit before the interval ends.',
  },
  BUFFER_MAX_BYTES: {
    member: 'bufferMaxBytes',
    form: { as: 'size', min: 0, max: MAX },
    default: '2GiB',
    appliedBy: 'reload',
    text: 'Maximum size of the buffer on disk; 0 means no limit.',
    more: 'Includes the WAL and the quarantine, as `tagferry_buffer_bytes` shows. The agent warns at startup if the file system is smaller.',
  },
  BUFFER_MAX_AGE: {
    member: 'bufferMaxAgeMs',
    form: { as: 'duration', minMs: 0, maxMs: 10 * YEAR_MS },
    default: '0',
    appliedBy: 'reload',
    text: 'Maximum age of a buffered value; 0 means no limit. Time before the last boot does not count, so a wrong clock cannot drop a backlog.',
  },
  BUFFER_MIN_FREE: {
    member: 'bufferMinFree',
    form: { as: 'size-or-share' },
    default: '5%',
    appliedBy: 'reload',
    text: 'Space to keep free on the file system, as a size or a percentage; 0 disables the reserve.',
    more: 'Below the limit, new values are rejected with 503 and nothing is dropped.',
  },
  BUFFER_FULL: {
    member: 'bufferFull',
    form: { as: 'choice', of: ['drop-oldest', 'refuse-new'] },
    default: 'drop-oldest',
    appliedBy: 'reload',
    text: 'Action when the buffer is full: drop-oldest drops the oldest values, refuse-new rejects new values.',
  },
  MAX_SERIES: {
    member: 'maxSeries',
    form: { as: 'count', min: 1, max: 10_000_000 },
    otherwise: "one tenth of the unit's memory limit, divided by 400 B",
    appliedBy: 'reload',
    text: 'Maximum number of series that programs can create by asset number; requests for more are rejected with 422. Series in tags.yaml do not count.',
    more: 'Series without stored values count until the next restart, including series removed from tags.yaml. The limit is at most one and a half times the default, because all series are loaded at startup. A larger backlog is drained first, and the listeners respond with 503 in the meantime.',
  },
  CLOCK_UNTRUSTED: {
    member: 'clockUntrusted',
    form: { as: 'choice', of: ['correct', 'send'] },
    default: 'correct',
    appliedBy: 'restart',
    text: 'Handling of values without a timestamp that arrive before the clock is set: correct adjusts their times when the clock is set, send posts them unchanged.',
  },
  STATE_DIR: {
    member: 'stateDir',
    form: { as: 'path' },
    otherwise: '$STATE_DIRECTORY, otherwise /var/lib/tagferry if it exists, otherwise ./state',
    filled: true,
    appliedBy: 'restart',
    text: 'Folder for the databases. A relative path is resolved against the configuration folder.',
    more: 'Its mode is 0700. `control.sock` is in `/run/tagferry`, or in this folder.',
  },
} as const satisfies SettingEntries;
