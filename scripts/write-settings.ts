import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { formatDuration, formatSize } from '../src/config/setting-forms.ts';
import { SETTING_CHAPTERS } from '../src/config/setting-keys.ts';
import type { Form, SettingEntry } from '../src/config/settings/entry.ts';

/**
 * Writes `config/agent.env` and `docs/settings.md` from the entries of `src/config/settings/`: `node scripts/write-settings.ts`,
 * or both into one FOLDER.
 */
const ROOT = join(import.meta.dirname, '..');
const COLUMNS = 120;

const ENV_HEAD = `\
# tagferry: the agent's settings. KEY=value, one a line; the process environment overrides this file.
# Any key may come from a file instead (CLIENT_SECRET_FILE=/etc/tagferry/client_secret) or from the systemd credential of
# its name in lower case. A value with " #" in it needs quotes. Relative paths here start from this folder.
# Durations: 500ms 10s 5m 24h 7d. Sizes: 480kB (1,000 bytes a kB), 2GiB (1,024), a bare number is bytes.
# A line that begins with # shows the default. \`tagferry check\` reads everything and says what is wrong.
# Keep this file from others once it holds a secret. The service must still read it: root:tagferry and 0640 in /etc/tagferry.
`;

const PAGE_HEAD = `\
# Settings

The keys of \`agent.env\`, as [src/config/settings/](../src/config/settings) has them; \`node scripts/write-settings.ts\` writes this page
and [config/agent.env](../config/agent.env), and a test compares. Any key may come from a file instead (\`KEY_FILE\`) or from the systemd
credential of its name in lower case; [what deployments rely on](interface.md#files-in-the-configuration-folder) tells the rest.
A change is taken by \`tagferry reload\` where the table says so; of the others the reload says that they wait for a restart.
`;

const entriesOf = (entries: object) => Object.entries(entries) as [string, SettingEntry][];

function agentEnv(): string {
  const chapters = SETTING_CHAPTERS.map(({ title, entries }) => {
    const lines = entriesOf(entries).flatMap(([key, entry]) => {
      const otherwise = entry.otherwise === undefined ? '' : ` Unless it is set: ${entry.otherwise}.`;
      const required = entry.required ? ' Required.' : '';
      const line = entry.required ? `${key}=` : `#${key}=${entry.default ?? ''}`;
      return [...comment(`${entry.text}${required}${otherwise}`), line];
    });
    return [`# --- ${title} ---`, ...lines].join('\n');
  });
  return `${[ENV_HEAD.trimEnd(), ...chapters].join('\n\n')}\n`;
}

/** Lines of at most 120 columns. */
function comment(text: string): string[] {
  const lines = ['#'];
  for (const word of text.split(' ')) {
    if (`${lines.at(-1)} ${word}`.length > COLUMNS) lines.push('#');
    lines[lines.length - 1] += ` ${word}`;
  }
  return lines;
}

function page(): string {
  const chapters = SETTING_CHAPTERS.map(({ title, entries }) => {
    const rows = entriesOf(entries).map(([key, entry]) => {
      const text = [entry.text, entry.more].filter((part) => part !== undefined).join(' ');
      return `| ${[`\`${key}\``, fallback(entry), formWords(entry.form), entry.takenBy, text].join(' | ')} |`;
    });
    return [`## ${title}`, '| key | default | form | taken by | meaning |', '|---|---|---|---|---|', ...rows].join(
      '\n',
    );
  });
  return `${[PAGE_HEAD.trimEnd(), ...chapters].join('\n\n')}\n`;
}

function fallback(entry: SettingEntry): string {
  if (entry.required) return 'required';
  if (entry.default !== undefined)
    return entry.default
      .split(',')
      .map((word) => `\`${word}\``)
      .join(', ');
  return entry.otherwise ?? 'empty';
}

function formWords(form: Form): string {
  switch (form.as) {
    case 'text':
      return form.what ?? 'text';
    case 'address':
      return `address: ${form.schemes.map((scheme) => `${scheme}://`).join(' or ')}`;
    case 'path':
      return 'file';
    case 'values-path':
      return 'path';
    case 'choice':
      return form.of.map((choice) => `\`${choice}\``).join(', ');
    case 'switch':
      return '`true`, `false`';
    case 'count':
      return range(form.min, form.max, (count) => count.toLocaleString('en'));
    case 'duration':
      return range(form.minMs, form.maxMs, (ms) => (ms === 0 ? '0' : formatDuration(ms)));
    case 'size':
      return range(form.min, form.max, formatSize);
    case 'size-or-share':
      return 'size or share';
    case 'listen':
      return 'address';
    case 'hosts':
      return 'hosts';
    case 'event-types':
      return 'event types';
    case 'success-statuses':
      return '200 to 299, with commas between';
  }
}

function range(min: number, max: number, format: (amount: number) => string): string {
  return max === Number.MAX_SAFE_INTEGER ? `${format(min)} or more` : `${format(min)} to ${format(max)}`;
}

const folder = process.argv[2];
writeFileSync(join(folder ?? join(ROOT, 'config'), 'agent.env'), agentEnv());
writeFileSync(join(folder ?? join(ROOT, 'docs'), 'settings.md'), page());
