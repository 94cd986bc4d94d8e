import { formatDuration, formatSize } from '../src/config/setting-forms.ts';
import type { Form } from '../src/config/settings/entry.ts';

/** What holds for all of agent.env. */
export const ENV_HEAD = [
  "tagferry: the agent's settings. KEY=value, one a line; the process environment overrides this file.",
  'Any key may come from a file instead (CLIENT_SECRET_FILE=/etc/tagferry/client_secret) or from the systemd credential of',
  'its name in lower case. A value with " #" in it needs quotes. Relative paths here start from this folder.',
  'Durations: 500ms 10s 5m 24h 7d. Sizes: 480kB (1,000 bytes a kB), 2GiB (1,024), a bare number is bytes.',
  'A line that begins with # shows the default. `tagferry check` reads everything and says what is wrong.',
  'Keep this file from others once it holds a secret. The service must still read it: root:tagferry and 0640 in /etc/tagferry.',
] as const;

/** What may be written for a setting, for whoever reads its page. */
export function formWords(form: Form): string {
  switch (form.as) {
    case 'text':
      return form.what ?? 'text';
    case 'address':
      return `${form.schemes.map((scheme) => `${scheme}://`).join(' or ')}…`;
    case 'path':
      return 'a file';
    case 'values-path':
      return 'a path';
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
    case 'size-or-share':
      return 'a size or a share';
    case 'listen':
      return 'an address';
    case 'topic':
      return 'a broker of tags.yaml and a topic';
    case 'hosts':
      return 'names of hosts';
    case 'event-types':
      return 'event types';
    case 'event-properties':
      return 'event types with names';
    case 'success-statuses':
      return '200 to 299, with commas between';
  }
}

function range(min: number, max: number, format: (amount: number) => string): string {
  return max === Number.MAX_SAFE_INTEGER ? `${format(min)} or more` : `${format(min)} to ${format(max)}`;
}
