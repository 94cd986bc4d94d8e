import { BUFFER } from './settings/buffer.ts';
import type { SettingEntries, SettingEntry } from './settings/entry.ts';
import { LISTENERS } from './settings/listeners.ts';
import { LOG } from './settings/log.ts';
import { PLATFORM } from './settings/platform.ts';
import { POSTING } from './settings/posting.ts';
import { WEBHOOK } from './settings/webhook.ts';
import { WRITES } from './settings/writes.ts';

interface SettingChapter {
  title: string;
  about?: string;
  entries: SettingEntries;
}

/** @public Chapters of agent.env and docs/reference/settings.md in order. Scripts generate both files from them. */
export const SETTING_CHAPTERS: readonly SettingChapter[] = [
  { title: 'Platform', entries: PLATFORM },
  { title: 'Posting values', entries: POSTING },
  { title: 'Buffer', entries: BUFFER },
  {
    title: 'Listeners',
    about: 'Addresses: host:port, :port for loopback, unix:/path; empty means off.',
    entries: LISTENERS,
  },
  { title: 'Webhook', entries: WEBHOOK },
  { title: 'Writing values', entries: WRITES },
  { title: 'Log and configuration', entries: LOG },
];

/** docs/internals/architecture.md explains the defaults. */
const ENTRIES = { ...PLATFORM, ...POSTING, ...BUFFER, ...LISTENERS, ...WEBHOOK, ...WRITES, ...LOG };

export type Entries = typeof ENTRIES;

export type KeyName = keyof Entries;

export const KEY_NAMES = Object.keys(ENTRIES) as KeyName[];

/** Keys allowed in agent.env: every key, and every key with `_FILE`. */
export const AGENT_ENV_KEYS: readonly string[] = KEY_NAMES.flatMap((key) => [key, `${key}_FILE`]);

export function settingKey(key: KeyName): SettingEntry & { member: Entries[KeyName]['member'] } {
  return ENTRIES[key];
}

/** Returns all secrets in the settings, including items of lists and passwords in addresses. */
export function secretsIn(settings: Readonly<Record<string, unknown>>): string[] {
  const values = KEY_NAMES.filter((key) => settingKey(key).secret).map((key) => settings[settingKey(key).member]);
  return values.filter((value) => typeof value === 'string').flatMap((value) => [value, ...partsOf(value)]);
}

function partsOf(value: string): string[] {
  const parts = value.split(',').map((part) => part.trim());
  if (!URL.canParse(value)) return parts;
  const { password } = new URL(value);
  return [...parts, password, ...(/%(?![0-9a-f]{2})/i.test(password) ? [] : [decodeURIComponent(password)])];
}
