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
  CONFIG_VERSION: {
    member: 'configVersion',
    form: { as: 'text', pattern: /^.{1,100}$/, what: 'at most 100 characters', example: 'rollout-2026-11' },
    example: 'rollout-2026-11',
    takenBy: 'reload',
    text: 'Name of this configuration for people, for example a git tag.',
    more: 'Shown with its digests by `status`, `fleet-report`, `/metrics` and the page.',
  },
} as const satisfies SettingEntries;
