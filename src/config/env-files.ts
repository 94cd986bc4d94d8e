import { relative } from 'node:path';
import { envFileIdentity, type FileIdentity, unreadFileIdentity } from './configuration-digest.ts';
import {
  readConfigurationFile,
  reportUnread,
  warnIfReadableByOthers,
  warnIfWritableByAll,
} from './configuration-file.ts';
import { type NamedFile, withDropIns } from './drop-in-files.ts';
import { type EnvFile, type EnvLine, parseEnvFile } from './env-file.ts';
import { fillPlaceholders, hasPlaceholder, type PlaceholderValues } from './placeholders.ts';
import { Problems } from './problem.ts';
import { AGENT_ENV_KEYS, KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';

const MAX_ENV_BYTES = 1_000_000;

/** Contents of files that are about to be written, by path relative to the configuration folder. */
export type ComingFiles = ReadonlyMap<string, string>;

/**
 * Reads agent.env and agent.env.d as one file. Keys in later files override earlier ones. Placeholders are replaced,
 * except in secrets. Contents in `coming` replace the file on disk.
 */
export function readEnvFiles(
  directory: string,
  values: PlaceholderValues,
  problems: Problems,
  coming: ComingFiles = new Map(),
): EnvFile {
  const named = withDropIns(directory, 'agent.env', 'agent.env.d', problems, coming.keys());
  const identities: FileIdentity[] = [];
  const [main, ...dropIns] = named.map((file) => {
    const text = coming.get(relative(directory, file.path));
    return text === undefined
      ? readEnvFile(file, relative(directory, file.path), identities, problems)
      : parseEnvFile(text, file.name, AGENT_ENV_KEYS, problems);
  }) as [EnvFile, ...EnvFile[]];
  const lines = new Map(main.lines);
  let unreadable = main.unreadable === true;
  for (const file of dropIns) {
    unreadable ||= file.unreadable === true;
    for (const [key, line] of file.lines) lines.set(key, line);
  }
  for (const [key, line] of lines) lines.set(key, isSecret(key) ? line : filled(key, line, values, problems));
  return {
    lines,
    placeFor: (key) => lines.get(key)?.place ?? main.placeFor(key),
    files: identities,
    ...(main.missing && dropIns.length === 0 ? { missing: true as const } : {}),
    ...(unreadable ? { unreadable: true as const } : {}),
  };
}

/** Returns the lines without secrets by key. Only lines without secrets may be stored elsewhere. */
export function linesWithoutSecrets(file: EnvFile): Record<string, string> {
  const sound = [...file.lines].filter(([key, line]) => !isSecret(key) && line.broken !== true);
  return Object.fromEntries(sound.map(([key, { value }]) => [key, value]));
}

/** Returns stored lines combined with the secrets of the current files, because secrets are not stored. */
export function keptEnvFile(kept: Readonly<Record<string, string>>, name: string, now: EnvFile): EnvFile {
  const place = { file: name, line: null, column: null };
  const lines = new Map<string, EnvLine>();
  for (const [key, value] of Object.entries(kept)) lines.set(key, { value, place, valuePlace: place });
  for (const [key, line] of now.lines) {
    const secret = key.replace(/_FILE$/, '');
    if (!isSecret(secret) || line.broken || line.value === '') continue;
    // The current files decide whether a key is set directly or through KEY_FILE.
    lines.delete(secret);
    lines.delete(`${secret}_FILE`);
    lines.set(key, line);
  }
  return { lines, placeFor: (key) => lines.get(key)?.place ?? place };
}

function isSecret(key: string): boolean {
  return KEY_NAMES.includes(key as KeyName) && settingKey(key as KeyName).secret === true;
}

function filled(key: string, line: EnvLine, values: PlaceholderValues, problems: Problems): EnvLine {
  if (line.broken || !hasPlaceholder(line.value)) return line;
  const text = fillPlaceholders(line.value, values);
  if ('text' in text) return { ...line, value: text.text };
  problems.error(line.valuePlace, `${key}: ${text.reason}`, text.instead);
  return { ...line, value: '', broken: true };
}

function readEnvFile(
  { path, name }: NamedFile,
  relativeName: string,
  identities: FileIdentity[],
  problems: Problems,
): EnvFile {
  const found = readConfigurationFile(path, MAX_ENV_BYTES);
  const nothing = () => parseEnvFile('', name, AGENT_ENV_KEYS, new Problems());
  if ('missing' in found) return { ...nothing(), missing: true };
  if ('reason' in found) {
    reportUnread(name, found, problems);
    identities.push(unreadFileIdentity(relativeName));
    return { ...nothing(), unreadable: true };
  }
  const file = parseEnvFile(found.text, name, AGENT_ENV_KEYS, problems);
  identities.push(envFileIdentity(relativeName, found.text, file.lines));
  const firstSecret = KEY_NAMES.find((key) => settingKey(key).secret && (file.lines.get(key)?.value ?? '') !== '');
  if (firstSecret !== undefined) warnIfReadableByOthers(problems, file.lines.get(firstSecret)!.place, found.stats);
  warnIfWritableByAll(problems, name, found.stats);
  return file;
}
