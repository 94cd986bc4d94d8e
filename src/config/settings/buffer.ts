import { MAX, type SettingEntries, YEAR_MS } from './entry.ts';

export const BUFFER = {
  COMMIT_INTERVAL: {
    member: 'commitIntervalMs',
    // A program that pushes waits this long for its answer: a minute is more than any of them waits.
    form: { as: 'duration', minMs: 0, maxMs: 60_000 },
    default: '1s',
    takenBy: 'reload',
    text:
      'At most one disk commit in each interval: flash lives by this. A source that can bring nothing more before a ' +
      'commit (a broker whose window is full) has it earlier, ten times a second at most.',
  },
  COMMIT_VALUES: {
    member: 'commitValues',
    form: { as: 'count', min: 1, max: 1_000_000 },
    default: '1000',
    takenBy: 'reload',
    text: 'A commit comes sooner when so many values wait.',
  },
  BUFFER_MAX_BYTES: {
    member: 'bufferMaxBytes',
    form: { as: 'size', min: 0, max: MAX },
    default: '2GiB',
    takenBy: 'reload',
    text: 'Bound: bytes on disk; 0 is none.',
    more:
      'With WAL and quarantine, as `tagferry_buffer_bytes` shows them. Start warns where it cannot fit the file ' +
      'system.',
  },
  BUFFER_MAX_AGE: {
    member: 'bufferMaxAgeMs',
    form: { as: 'duration', minMs: 0, maxMs: 10 * YEAR_MS },
    default: '0',
    takenBy: 'reload',
    text:
      'Bound: age of a value; 0 is none. It counts since the last start of the machine at most: no wall clock that ' +
      'jumped may drop a backlog. Bytes bound it at any rate.',
  },
  BUFFER_MIN_FREE: {
    member: 'bufferMinFree',
    form: { as: 'size-or-share' },
    default: '5%',
    takenBy: 'reload',
    text: 'Bound: what stays free on the file system, a size or a share; 0 is none.',
    more: 'Below it new values get 503, and nothing is dropped.',
  },
  BUFFER_FULL: {
    member: 'bufferFull',
    form: { as: 'choice', of: ['drop-oldest', 'refuse-new'] },
    default: 'drop-oldest',
    takenBy: 'reload',
    text: 'When it is full: drop-oldest, or refuse-new.',
  },
  MAX_SERIES: {
    member: 'maxSeries',
    form: { as: 'count', min: 1, max: 10_000_000 },
    otherwise: 'a tenth of the memory that the unit allows / 400 B',
    takenBy: 'reload',
    text: 'How many series programs may open by asset (those of tags.yaml do not count); more: 422.',
    more:
      'Never more than one and a half times what is there by itself, as a start loads so many; where the backlog names more it ' +
      'drains first and answers 503 meanwhile.',
  },
  CLOCK_UNTRUSTED: {
    member: 'clockUntrusted',
    form: { as: 'choice', of: ['correct', 'send'] },
    default: 'correct',
    takenBy: 'restart',
    text:
      'Values that came without a time before the clock of the machine was set: correct them once it is, or send ' +
      'them as they are.',
  },
  STATE_DIR: {
    member: 'stateDir',
    form: { as: 'text' },
    otherwise: '$STATE_DIRECTORY, else /var/lib/tagferry if it exists, else ./state',
    filled: true,
    takenBy: 'restart',
    text: 'Folder of the databases. (A relative one starts from where the agent is started.)',
    more: 'Its mode is 0700; `control.sock` is in `/run/tagferry`, or here.',
  },
} as const satisfies SettingEntries;
