import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SETTING_CHAPTERS } from '../src/config/setting-keys.ts';
import type { SettingEntry } from '../src/config/settings/entry.ts';
import { ENV_HEAD, formWords } from './setting-words.ts';

/**
 * `node scripts/write-settings.ts [FOLDER]` writes `config/agent.env` and `docs/reference/settings.md` from the entries
 * of `src/config/settings/`, or both into FOLDER.
 */
const ROOT = join(import.meta.dirname, '..');
const COLUMNS = 120;

const PAGE_HEAD = `\
# Settings

This page is for people who edit \`agent.env\`. \`node scripts/write-settings.ts\` generates the page and
[config/agent.env](../../config/agent.env) from [src/config/settings/](../../src/config/settings).

The value of each key can also be read from a file (\`KEY_FILE\`) or from the systemd credential with the key's name in
lower case ([configuration folder](../interface.md#configuration-folder)). The column "applied by" shows whether a
change requires \`tagferry reload\` or a restart. \`tagferry reload\` lists the changes that require a restart.
`;

function agentEnv(): string {
  const chapters = SETTING_CHAPTERS.map(({ title, about, entries }) => {
    const lines = Object.entries(entries).flatMap(([key, entry]) => {
      const otherwise = entry.otherwise === undefined ? '' : ` Default: ${entry.otherwise}.`;
      const required = entry.required ? ' Required.' : '';
      const line = entry.required ? `${key}=` : `#${key}=${entry.default ?? ''}`;
      return [...comment(`${entry.text}${required}${otherwise}`), line];
    });
    return [`# --- ${title} ---`, ...(about === undefined ? [] : comment(about)), ...lines].join('\n');
  });
  return `${[ENV_HEAD.map((line) => `# ${line}`).join('\n'), ...chapters].join('\n\n')}\n`;
}

/** Wraps text at 120 columns. */
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
      return `| ${[`\`${key}\``, fallback(entry), formWords(entry.form), entry.appliedBy, text].join(' | ')} |`;
    });
    return [
      `## ${title}`,
      ...(about === undefined ? [] : [about, '']),
      '| key | default | format | applied by | meaning |',
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
writeFileSync(join(folder ?? join(ROOT, 'docs/reference'), 'settings.md'), page());
