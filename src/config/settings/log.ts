import type { SettingEntries } from './entry.ts';

export const LOG = {
  LOG_LEVEL: {
    member: 'logLevel',
    form: {
      as: 'choice',
      of: ['trace', 'debug', 'info', 'warn', 'error', 'fatal'],
      meant: { verbose: 'debug', all: 'trace', notice: 'info', critical: 'fatal', quiet: 'error' },
    },
    default: 'info',
    takenBy: 'reload',
    text: 'trace, debug, info, warn, error or fatal.',
  },
  LOG_FORMAT: {
    member: 'logFormat',
    form: { as: 'choice', of: ['auto', 'pretty', 'json', 'journal'], meant: { text: 'pretty', plain: 'pretty' } },
    default: 'auto',
    takenBy: 'restart',
    text: 'auto, pretty, json or journal.',
    more: '`auto`: pretty on a terminal, JSON with syslog priorities under systemd, else JSON.',
  },
} as const satisfies SettingEntries;
