import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SETTING_CHAPTERS } from '../src/config/setting-keys.ts';
import type { SettingEntry } from '../src/config/settings/entry.ts';
import { ENV_HEAD, formWords } from './setting-words.ts';

/**
 * Writes `config/agent.env` and `docs/settings.md` from the entries of `src/config/settings/`: `node scripts/write-settings.ts`,
 * or both into one FOLDER.
 */
const ROOT = join(import.meta.dirname, '..');
const COLUMNS = 120;

const PAGE_HEAD = `\
# Settings

The keys of \`agent.env\`, as [src/config/settings/](../src/config/settings) has them; \`node scripts/write-settings.ts\` writes this page
and [config/agent.env](../config/agent.env), and a test compares. Any key may come from a file instead (\`KEY_FILE\`) or from the systemd
credential of its name in lower case; [what deployments rely on](interface.md#files-in-the-configuration-folder) tells the rest.
A change is taken by \`tagferry reload\` where the table says so; of the others the reload says that they wait for a restart.
`;

function agentEnv(): string {
  const chapters = SETTING_CHAPTERS.map(({ title, about, entries }) => {
    const lines = Object.entries(entries).flatMap(([key, entry]) => {
      const otherwise = entry.otherwise === undefined ? '' : ` Unless it is set: ${entry.otherwise}.`;
      const required = entry.required ? ' Required.' : '';
      const line = entry.required ? `${key}=` : `#${key}=${entry.default ?? ''}`;
      return [...comment(`${entry.text}${required}${otherwise}`), line];
    });
    return [`# --- ${title} ---`, ...(about === undefined ? [] : comment(about)), ...lines].join('\n');
  });
  return `${[ENV_HEAD.map((line) => `# ${line}`).join('\n'), ...chapters].join('\n\n')}\n`;
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
  const chapters = SETTING_CHAPTERS.map(({ title, about, entries }) => {
    const rows = Object.entries(entries).map(([key, entry]) => {
      const text = [entry.text, entry.more].filter((part) => part !== undefined).join(' ');
      return `| ${[`\`${key}\``, fallback(entry), formWords(entry.form), entry.takenBy, text].join(' | ')} |`;
    });
    return [
      `## ${title}`,
      ...(about === undefined ? [] : [about, '']),
      '| key | default | form | taken by | meaning |',
      '|---|---|---|---|---|',
      ...rows,
    ].join('\n');
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

const folder = process.argv[2];
writeFileSync(join(folder ?? join(ROOT, 'config'), 'agent.env'), agentEnv());
writeFileSync(join(folder ?? join(ROOT, 'docs'), 'settings.md'), page());
