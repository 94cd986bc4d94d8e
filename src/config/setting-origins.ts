import type { Stats } from 'node:fs';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { readConfigurationFile, warnIfReadableByOthers } from './configuration-file.ts';
import { directoryPath } from './drop-in-files.ts';
import type { EnvFile } from './env-file.ts';
import { type Place, type Problems, placeName } from './problem.ts';
import { KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';

/**
 * Where the text of each setting comes from. A key has at most one of three origins: a value (the process environment
 * overrides agent.env), a file named by `KEY_FILE`, or the systemd credential of its name in lower case.
 */
interface GivenSetting {
  text: string;
  place: Place;
  /** Relative file names resolve against it: the configuration folder for what stands in agent.env. */
  folder: string;
}

export interface GivenSettings {
  given: ReadonlyMap<KeyName, GivenSetting>;
  /** Keys whose text could not be had; that has been reported. */
  broken: ReadonlySet<KeyName>;
  /** Where a key stands, else where it would be written. */
  placeOf(key: KeyName): Place;
  /** There is no agent.env. */
  missing: boolean;
  /** agent.env is there but cannot be read: what is missing from it is not known. */
  unreadable: boolean;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** Longer than any secret or certificate chain that a key could stand for. */
const MAX_VALUE_BYTES = 64_000;

/**
 * Puts the lines of agent.env, the files that `KEY_FILE` names and the credentials together; reports every conflict and unreadable
 * file.
 */
export function gatherSettings(
  directory: string,
  file: EnvFile,
  environment: Environment,
  problems: Problems,
): GivenSettings {
  const given = new Map<KeyName, GivenSetting>();
  const broken = new Set<KeyName>();
  for (const key of KEY_NAMES) {
    const value = fromLineOrEnvironment(key, directory, file, environment);
    const pointer = fromLineOrEnvironment(`${key}_FILE`, directory, file, environment);
    const credential = credentialOf(key, environment);
    if (file.lines.get(key)?.broken && value === undefined) broken.add(key);
    const origins: { name: string; place: Place }[] = [];
    if (value !== undefined) origins.push({ name: `${key} (${placeName(value.place)})`, place: value.place });
    if (pointer !== undefined)
      origins.push({ name: `${key}_FILE (${placeName(pointer.place)})`, place: pointer.place });
    if (credential !== undefined) {
      origins.push({ name: `the systemd credential ${key.toLowerCase()}`, place: credential.place });
    }
    if (origins.length > 1) {
      broken.add(key);
      const names = origins.map((origin) => origin.name).join(' and ');
      const written = origins.find(({ place }) => place.line !== null) ?? origins[0]!;
      const restart = credential === undefined ? '' : ' (a removed credential requires a restart of the service)';
      problems.error(written.place, `${key} comes from ${names}`, `keep one of them${restart}`, key);
    } else if (value !== undefined) given.set(key, value);
    else if (pointer !== undefined) takeFile(key, pointer, given, broken, problems);
    else if (credential?.text !== undefined) given.set(key, credential as GivenSetting);
    else if (credential !== undefined) {
      broken.add(key);
      problems.error(credential.place, `${key}: ${credential.reason}`, credential.instead ?? 'mend it', key);
    }
  }
  return {
    given,
    broken,
    placeOf: (key) => given.get(key)?.place ?? file.placeFor(key),
    missing: file.missing === true,
    unreadable: file.unreadable === true,
  };
}

/** The effective text of a key or of its `_FILE`; an empty one counts only where empty means something (off). */
function fromLineOrEnvironment(
  name: string,
  directory: string,
  file: EnvFile,
  environment: Environment,
): GivenSetting | undefined {
  // Programs agree on the lower-case names of the proxy variables as well.
  const lower = name === 'HTTPS_PROXY' || name === 'NO_PROXY' ? environment[name.toLowerCase()] : undefined;
  const fromEnvironment = environment[name] ?? (file.lines.has(name) ? undefined : lower);
  const line = file.lines.get(name);
  let setting: GivenSetting | undefined;
  if (fromEnvironment !== undefined) {
    setting = { text: fromEnvironment, place: { file: 'environment', line: null, column: null }, folder: '.' };
  } else if (line !== undefined && !line.broken)
    setting = { text: line.value, place: line.valuePlace, folder: directory };
  if (setting === undefined || setting.text !== '' || emptyMeansSomething(name)) return setting;
  return undefined;
}

/** Empty is "off" for listeners; where a default would silently replace it, empty is a mistake that is reported. */
function emptyMeansSomething(name: string): boolean {
  return KEY_NAMES.includes(name as KeyName) && settingKey(name as KeyName).default !== undefined;
}

function takeFile(
  key: KeyName,
  pointer: GivenSetting,
  given: Map<KeyName, GivenSetting>,
  broken: Set<KeyName>,
  problems: Problems,
): void {
  const path = isAbsolute(pointer.text) ? pointer.text : resolve(pointer.folder, pointer.text);
  const content = readOneValue(path, key);
  if ('reason' in content) {
    broken.add(key);
    const reason = `${key}_FILE: ${pointer.text} ${content.reason}`;
    if (content.accessDenied) problems.unreadable(pointer.place, reason, content.instead, pointer.text);
    else problems.error(pointer.place, reason, content.instead, pointer.text);
    return;
  }
  // As one would name it from where the folder was named, so that the line leads to the file.
  const file = isAbsolute(pointer.text) ? pointer.text : directoryPath(pointer.folder, pointer.text);
  const place = { file, line: 1, column: 1 };
  if (settingKey(key).secret) warnIfReadableByOthers(problems, place, content.stats);
  given.set(key, { text: content.text, place, folder: dirname(path) });
}

interface Credential {
  place: Place;
  folder: string;
  text?: string;
  reason?: string;
  instead?: string;
}

function credentialOf(key: KeyName, environment: Environment): Credential | undefined {
  const folder = environment.CREDENTIALS_DIRECTORY;
  if (folder === undefined || folder === '') return undefined;
  const name = key.toLowerCase();
  const found = readOneValue(join(folder, name), key);
  const place = { file: `credential ${name}`, line: null, column: null };
  if (!('reason' in found)) return { place, folder, text: found.text };
  // The unit gives an empty one where its file is missing: systemd would not start a service without.
  return found.reason === MISSING || found.reason === EMPTY
    ? undefined
    : { place, folder, reason: `the credential ${found.reason}`, instead: found.instead };
}

const MISSING = 'does not exist';
const EMPTY = 'is empty';

/**
 * The one line of a file that holds a value; the line feed that editors and `echo` leave at the end is not part of it.
 * For a key that names a PEM file, a credential that is the PEM file itself stands for its own name.
 */
function readOneValue(
  path: string,
  key: KeyName,
): { text: string; stats: Stats } | { reason: string; instead: string; accessDenied?: true } {
  const found = readConfigurationFile(path, MAX_VALUE_BYTES);
  if ('missing' in found) return { reason: MISSING, instead: 'create it, or name the file that holds the value' };
  if ('reason' in found) return found;
  const text = found.text.replace(/[\r\n]+$/, '');
  if (settingKey(key).form.as === 'path' && text.includes('-----BEGIN ')) return { text: path, stats: found.stats };
  if (text === '') return { reason: EMPTY, instead: 'write the value into it' };
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a value with one cannot be meant
  if (/[\u0000-\u001f\u007f]/.test(text)) {
    return { reason: 'holds more than one line of text', instead: 'leave only the value in it' };
  }
  return { text, stats: found.stats };
}
