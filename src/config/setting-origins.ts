import type { Stats } from 'node:fs';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { readConfigurationFile, warnIfReadableByOthers } from './configuration-file.ts';
import { directoryPath } from './drop-in-files.ts';
import type { EnvFile } from './env-file.ts';
import { type Place, type Problems, placeName } from './problem.ts';
import { AGENT_ENV_KEYS, KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';

/**
 * Text of a setting and its origin. A key has at most one origin: a value (the process environment overrides
 * agent.env), a file specified by `KEY_FILE`, or the systemd credential with its lower-case name.
 */
interface GivenSetting {
  text: string;
  place: Place;
  /** Folder that relative file names are resolved against; for agent.env, the configuration folder. */
  folder: string;
}

export interface GivenSettings {
  given: ReadonlyMap<KeyName, GivenSetting>;
  /** Keys whose text could not be read. The problems have been reported. */
  broken: ReadonlySet<KeyName>;
  /** Returns the location of a key, or the location where it would be added. */
  placeOf(key: KeyName): Place;
  /** Whether agent.env does not exist. */
  missing: boolean;
  /** agent.env exists but cannot be read, so its keys are unknown. */
  unreadable: boolean;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** Larger than any secret or certificate chain. */
const MAX_VALUE_BYTES = 64_000;

/**
 * Combines agent.env, the files specified by `KEY_FILE` and the credentials. Reports conflicts and unreadable files.
 */
export function gatherSettings(
  directory: string,
  file: EnvFile,
  environment: Environment,
  problems: Problems,
): GivenSettings {
  const given = new Map<KeyName, GivenSetting>();
  const broken = new Set<KeyName>();
  const marked = Object.keys(environment).find((name) => name.startsWith('\ufeff'));
  if (marked !== undefined && AGENT_ENV_KEYS.includes(marked.slice(1))) {
    const reason = `${marked.slice(1)} is ignored, because a byte order mark precedes its name`;
    problems.error(
      { file: 'environment', line: null, column: null },
      reason,
      'save the --env-file without a byte order mark',
    );
  }
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
    const outside = origins.find(({ place }) => place !== value?.place || place.file === 'environment');
    if (outside !== undefined && settingKey(key).onlyInFile) {
      broken.add(key);
      problems.error(outside.place, `${outside.name} is not accepted`, `set ${key} in agent.env`, key);
    } else if (origins.length > 1) {
      broken.add(key);
      const names = origins.map((origin) => origin.name).join(' and ');
      const written = origins.find(({ place }) => place.line !== null) ?? origins[0]!;
      const restart = credential === undefined ? '' : ' (a removed credential requires a restart of the service)';
      problems.error(written.place, `${key} comes from ${names}`, `keep only one${restart}`, key);
    } else if (value !== undefined) {
      given.set(key, value);
      // Quotes in agent.env are syntax. In the environment, they are part of the value.
      if (value.place.file === 'environment') warnIfUnintended(key, value, problems);
    } else if (pointer !== undefined) takeFile(key, pointer, given, broken, problems);
    else if (credential?.text !== undefined) {
      given.set(key, credential as GivenSetting);
      warnIfUnintended(key, credential as GivenSetting, problems);
    } else if (credential !== undefined) {
      broken.add(key);
      problems.error(credential.place, `${key}: ${credential.reason}`, credential.instead ?? 'correct it', key);
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

/** Returns the text of a key or of its `_FILE` key. Empty text is returned only if it means "off". */
function fromLineOrEnvironment(
  name: string,
  directory: string,
  file: EnvFile,
  environment: Environment,
): GivenSetting | undefined {
  // By convention, proxy variables with lower-case names are also accepted.
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

/**
 * Whether empty text means "off", as for listeners. For other keys, empty text is reported, because a default would
 * replace it silently.
 */
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
  // Relative to the folder as specified by the user, so that the path in the message is valid.
  const file = isAbsolute(pointer.text) ? pointer.text : directoryPath(pointer.folder, pointer.text);
  const place = { file, line: 1, column: 1 };
  if (settingKey(key).secret) warnIfReadableByOthers(problems, place, content.stats);
  const setting = { text: content.text, place, folder: dirname(path) };
  given.set(key, setting);
  warnIfUnintended(key, setting, problems);
}

/**
 * Warns about quotes and line endings that are part of a value, because secrets are used verbatim. `docker run
 * --env-file` and `podman run --env-file` do not remove them.
 */
function warnIfUnintended(key: KeyName, { text, place }: GivenSetting, problems: Problems): void {
  const instead = place.file === 'environment' ? 'remove them from the --env-file or the environment' : 'remove them';
  if (/^(["']).*\1$/s.test(text.trim())) problems.warning(place, `${key}: the quotes are part of the value`, instead);
  if (text.endsWith('\r')) {
    problems.warning(place, `${key} ends with a carriage return`, 'save the --env-file with LF line endings');
  }
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
  // The unit passes an empty credential if the file is missing, because systemd would otherwise not start the
  // service.
  return found.reason === MISSING || found.reason === EMPTY
    ? undefined
    : { place, folder, reason: `the credential ${found.reason}`, instead: found.instead };
}

const MISSING = 'does not exist';
const EMPTY = 'is empty';

/**
 * Returns a value from a file with a single line, without the trailing line feed. If a credential for a PEM setting
 * contains the PEM file itself, returns the path of the credential.
 */
function readOneValue(
  path: string,
  key: KeyName,
): { text: string; stats: Stats } | { reason: string; instead: string; accessDenied?: true } {
  const found = readConfigurationFile(path, MAX_VALUE_BYTES);
  if ('missing' in found) return { reason: MISSING, instead: 'create it, or use another file that contains the value' };
  if ('reason' in found) return found;
  const text = found.text.replace(/[\r\n]+$/, '');
  if (settingKey(key).form.as === 'path' && text.includes('-----BEGIN ')) return { text: path, stats: found.stats };
  if (text === '') return { reason: EMPTY, instead: 'write the value into it' };
  // biome-ignore lint/suspicious/noControlCharactersInRegex: values must not contain control characters
  if (/[\u0000-\u001f\u007f]/.test(text)) {
    return { reason: 'contains more than one line of text', instead: 'remove everything except the value' };
  }
  return { text, stats: found.stats };
}
