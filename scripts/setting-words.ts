import { formatDuration, formatSize } from '../src/config/setting-forms.ts';
import type { Form } from '../src/config/settings/entry.ts';

/** Header of agent.env. */
export const ENV_HEAD = [
  'tagferry settings, one KEY=value per line. The process environment overrides this file.',
  'A key can also be read from a file (CLIENT_SECRET_FILE=/etc/tagferry/client_secret) or from the systemd credential with the',
  'key\'s name in lower case. Quote a value that contains " #". Relative paths are resolved against this folder.',
  'Durations: 500ms 10s 5m 24h 7d. Sizes: 480kB (1 kB is 1,000 bytes), 2GiB (1 GiB is 1,024 MiB); a number without a unit is in bytes.',
  'Lines that start with # show the defaults. `tagferry check` reports errors in all configuration files.',
  'If this file contains secrets, restrict access: in /etc/tagferry, use owner root, group tagferry and mode 0640.',
] as const;

/** Returns the format column of docs/reference/settings.md. */
export function formWords(form: Form): string {
  switch (form.as) {
    case 'text':
      return form.what ?? 'text';
    case 'address':
      return `${form.schemes.map((scheme) => `${scheme}://`).join(' or ')}…`;
    case 'path':
      return 'file';
    case 'values-path':
      return 'path';
    case 'choice':
      return form.of.join(', ');
    case 'switch':
      return 'true, false';
    case 'count':
      return range(form.min, form.max, String);
    case 'duration':
      return range(form.minMs, form.maxMs, (ms) => (ms === 0 ? '0' : formatDuration(ms)));
    case 'size':
      return range(form.min, form.max, formatSize);
    case 'time':
      return 'date or UTC time';
    case 'size-or-share':
      return 'size or percentage';
    case 'listen':
      return 'address';
    case 'topic':
      return 'broker of tags.yaml, topic';
    case 'hosts':
      return 'host names';
    case 'event-types':
      return 'event types';
    case 'event-properties':
      return 'event types with filters';
    case 'success-statuses':
      return '200 to 299, comma-separated';
  }
}

function range(min: number, max: number, format: (amount: number) => string): string {
  return max === Number.MAX_SAFE_INTEGER ? `${format(min)} or more` : `${format(min)} to ${format(max)}`;
}
