import { BUFFER } from './settings/buffer.ts';
import type { SettingEntries, SettingEntry } from './settings/entry.ts';
import { LISTENERS } from './settings/listeners.ts';
import { LOG } from './settings/log.ts';
import { PLATFORM } from './settings/platform.ts';
import { POSTING } from './settings/posting.ts';
import { WEBHOOK } from './settings/webhook.ts';

interface SettingChapter {
  title: string;
  about?: string;
  entries: SettingEntries;
}

/** @public The chapters of agent.env and docs/settings.md, in their order: what scripts write both from. */
export const SETTING_CHAPTERS: readonly SettingChapter[] = [
  { title: 'The platform', entries: PLATFORM },
  { title: 'Posting values', entries: POSTING },
  { title: 'The buffer', entries: BUFFER },
  {
    title: 'Listeners',
    about: 'Addresses: host:port, :port for loopback, unix:/path; empty is off.',
    entries: LISTENERS,
  },
  { title: 'Webhook', entries: WEBHOOK },
  { title: 'Log and configuration', entries: LOG },
];

/** The reasons of the defaults stand in docs/architecture.md. */
const ENTRIES = { ...PLATFORM, ...POSTING, ...BUFFER, ...LISTENERS, ...WEBHOOK, ...LOG };

export type Entries = typeof ENTRIES;

export type KeyName = keyof Entries;

export const KEY_NAMES = Object.keys(ENTRIES) as KeyName[];

/** What agent.env may hold: every key, and every key with `_FILE`. */
export const AGENT_ENV_KEYS: readonly string[] = KEY_NAMES.flatMap((key) => [key, `${key}_FILE`]);

export function settingKey(key: KeyName): SettingEntry & { member: Entries[KeyName]['member'] } {
  return ENTRIES[key];
}

/** Every secret of the settings: each one of a list, and the password of an address. */
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
