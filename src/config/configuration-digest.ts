/**
 * Digests that identify a configuration. They cover what `shown-members.ts` shows: a digest of a secret, of a command or of a comment
 * could be compared offline with digests of guesses.
 */
import { createHash } from 'node:crypto';
import { AGENT_ENV_KEYS, KEY_NAMES, settingKey } from './setting-keys.ts';
import type { Settings } from './settings.ts';
import { REACTIONS, shownData, shownSetting, TAGS } from './shown-members.ts';

/** One file of the configuration as it was read. */
export interface FileIdentity {
  /** Relative to the configuration folder. */
  name: string;
  /** Digest of all its bytes, secrets included: for comparison within the agent, never shown. */
  content: string;
  /** What it contributes to a digest that is shown. */
  shown: string;
}

/** What a configuration was read from. */
export interface ConfigurationIdentity {
  files: readonly FileIdentity[];
  /** tags.yaml and reactions.yaml with their drop-ins and with placeholders filled in. */
  filled: readonly string[];
}

export function envFileIdentity(
  name: string,
  text: string,
  lines: ReadonlyMap<string, { value: string }>,
): FileIdentity {
  const known = [...lines].filter(([key]) => AGENT_ENV_KEYS.includes(key));
  const shown = known.map(([key, { value }]) => [key, shownSetting(key, value)]);
  return { name, content: digestOf(text), shown: digestOf(shown) };
}

export function yamlFileIdentity(part: 'tags' | 'reactions', name: string, text: string, data: unknown): FileIdentity {
  return { name, content: digestOf(text), shown: yamlDigest(part, data) };
}

/** A file that is present but cannot be read or parsed. */
export function unreadFileIdentity(name: string): FileIdentity {
  return { name, content: '', shown: 'unread' };
}

export function yamlDigest(part: 'tags' | 'reactions', data: unknown): string {
  return digestOf(shownData(data ?? null, part === 'tags' ? TAGS : REACTIONS));
}

/** The same for the same files, whatever their placeholders stand for. */
export function filesDigest(files: readonly FileIdentity[]): string {
  return digestOf(files.map(({ name, shown }) => [name, shown])).slice(0, 12);
}

/** What the agent uses: settings from every origin, and YAML with placeholders filled in. */
export function inForceDigest(settings: Settings, { filled }: ConfigurationIdentity): string {
  const shown = KEY_NAMES.filter((key) => !settingKey(key).secret).map((key) => {
    const value = settings[settingKey(key).member];
    return [key, typeof value === 'string' ? shownSetting(key, value) : value];
  });
  return digestOf([shown, filled]).slice(0, 12);
}

/** Names of the files that were added, removed or changed. */
export function changedFiles(before: readonly FileIdentity[], now: readonly FileIdentity[]): string[] {
  const contents = (files: readonly FileIdentity[]) => new Map(files.map(({ name, content }) => [name, content]));
  const [old, current] = [contents(before), contents(now)];
  return [...new Set([...old.keys(), ...current.keys()])].filter((name) => old.get(name) !== current.get(name));
}

function digestOf(value: unknown): string {
  return createHash('sha256')
    .update(typeof value === 'string' ? value : JSON.stringify(value))
    .digest('hex');
}
