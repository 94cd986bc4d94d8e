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
    appliedBy: 'reload',
    text: 'Minimum level of log lines: trace, debug, info, warn, error or fatal.',
  },
  LOG_FORMAT: {
    member: 'logFormat',
    form: {
      as: 'choice',
      of: ['auto', 'pretty', 'logfmt', 'json'],
      meant: { text: 'logfmt', plain: 'logfmt', journal: 'logfmt' },
    },
    default: 'auto',
    appliedBy: 'restart',
    text: 'Format of log lines: auto, pretty, logfmt or json.',
    more: '`auto` means pretty on a terminal, logfmt in the systemd journal, and JSON otherwise. Lines in the journal have a syslog priority.',
  },
  CONFIG_VERSION: {
    member: 'configVersion',
    form: { as: 'text', pattern: /^.{1,100}$/, what: 'a text of at most 100 characters', example: 'rollout-2026-11' },
    example: 'rollout-2026-11',
    appliedBy: 'reload',
    text: 'Name of this configuration, for example a git tag.',
    more: '`status`, `fleet-report`, `/metrics` and the page show it with the digests.',
  },
} as const satisfies SettingEntries;
