/**
 * Digests that identify a configuration. They cover only the members in `shown-members.ts`, because a digest of a
 * secret, command or comment could be brute-forced offline.
 */
import { createHash } from 'node:crypto';
import { AGENT_ENV_KEYS, KEY_NAMES, settingKey } from './setting-keys.ts';
import type { Settings } from './settings.ts';
import { REACTIONS, shownData, shownSetting, TAGS } from './shown-members.ts';

/** Identity of one configuration file. */
export interface FileIdentity {
  /** Path relative to the configuration folder. */
  name: string;
  /** Digest of the whole file, including secrets. Used for comparison within the agent and never displayed. */
  content: string;
  /** Digest without secrets, from which displayed digests are computed. */
  shown: string;
}

/** Identity of a configuration's files. */
export interface ConfigurationIdentity {
  files: readonly FileIdentity[];
  /** Contents of tags.yaml and reactions.yaml with their drop-ins, after placeholder replacement. */
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

/** Returns the identity of a file that exists but cannot be read or parsed. */
export function unreadFileIdentity(name: string): FileIdentity {
  return { name, content: '', shown: 'unread' };
}

export function yamlDigest(part: 'tags' | 'reactions', data: unknown): string {
  return digestOf(shownData(data ?? null, part === 'tags' ? TAGS : REACTIONS));
}

/** Returns a digest of the files before placeholder replacement. */
export function filesDigest(files: readonly FileIdentity[]): string {
  return digestOf(files.map(({ name, shown }) => [name, shown])).slice(0, 12);
}

/** Returns a digest of the configuration in use: settings from all origins, and YAML after placeholder replacement. */
export function inForceDigest(settings: Settings, { filled }: ConfigurationIdentity): string {
  const shown = KEY_NAMES.filter((key) => !settingKey(key).secret).map((key) => {
    const value = settings[settingKey(key).member];
    return [key, typeof value === 'string' ? shownSetting(key, value) : value];
  });
  return digestOf([shown, filled]).slice(0, 12);
}

/** Returns the names of the added, removed and changed files. */
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
