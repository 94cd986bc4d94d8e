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
  { title: 'Log', entries: LOG },
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
