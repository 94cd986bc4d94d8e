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
    form: {
      as: 'choice',
      of: ['auto', 'pretty', 'logfmt', 'json'],
      meant: { text: 'logfmt', plain: 'logfmt', journal: 'logfmt' },
    },
    default: 'auto',
    takenBy: 'restart',
    text: 'auto, pretty, logfmt or json.',
    more: '`auto`: pretty on a terminal, logfmt in the systemd journal, otherwise JSON. Every line in the journal has a syslog priority.',
  },
} as const satisfies SettingEntries;
