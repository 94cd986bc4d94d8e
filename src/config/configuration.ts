import { existsSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { ConfigurationError, codeOf } from '../base/errors.ts';
import type { ActionKinds } from './action-kinds.ts';
import type { ConfigurationIdentity } from './configuration-digest.ts';
import { warnIfWritableByAll } from './configuration-file.ts';
import { directoryPath } from './drop-in-files.ts';
import { type ComingFiles, keptEnvFile, linesWithoutSecrets, readEnvFiles } from './env-files.ts';
import { namesInstrumentation } from './instrumentations.ts';
import type { PlaceholderValues } from './placeholders.ts';
import { type Place, type Problem, Problems, printable, problemLine, sortProblems } from './problem.ts';
import type { Reaction } from './reactions.ts';
import { readReactions } from './read-reactions.ts';
import { type ReadSettings, readSettings } from './read-settings.ts';
import { NO_TAGS, type ReadTags, readTags, warnOfNoTags } from './read-tags.ts';
import type { KeyName } from './setting-keys.ts';
import { type Environment, type GivenSettings, gatherSettings } from './setting-origins.ts';
import { checkSettings } from './setting-rules.ts';
import type { Settings } from './settings.ts';
import type { SourceKinds } from './source-kinds.ts';
import type { Tags } from './tags.ts';
import { wrongSubject, wrongTopic } from './topics.ts';
import { type FileText, readYamlPart, type YamlPart } from './yaml-part.ts';

export interface ConfigurationOptions {
  /** Configuration folder as specified by the user. Problem messages contain it in this form. */
  directory: string;
  environment: Environment;
  /** Source kinds in tags.yaml, implemented outside this folder. */
  kinds: SourceKinds;
  /** Kinds of actions in reactions.yaml. */
  actions: ActionKinds;
  /** Value of `${HOSTNAME}`. Default: host name of this machine. */
  hostname?: string;
  /** Parts to use instead of those in the folder. */
  instead?: InsteadOfFiles;
  /** Contents that are about to be written, read instead of the existing files. The folder need not exist. */
  coming?: ComingFiles;
}

/** Replacement for rejected files. Secrets are always read from the current files. */
export interface InsteadOfFiles {
  settings?: { lines: Readonly<Record<string, string>>; name: string };
  tags?: readonly FileText[];
  reactions?: 'none';
}

export interface Configuration {
  settings: Settings;
  tags: Tags;
  reactions: readonly Reaction[];
}

/** Configuration text without secrets, stored for use if the files are rejected at startup. */
export interface ConfigurationTexts {
  /** Lines of agent.env and its drop-ins, by key. */
  settings: Readonly<Record<string, string>>;
  tags: readonly FileText[];
}

/** Configuration and, if it was read from files, their contents. */
export type ReadConfiguration = Configuration & Partial<Pick<LoadedConfiguration, 'texts' | 'identity' | 'warnings'>>;

export interface LoadedConfiguration extends Configuration {
  /** Complete lines, ready to print. */
  warnings: readonly string[];
  texts: ConfigurationTexts;
  identity: ConfigurationIdentity;
}

/** Part of the configuration: agent.env, tags.yaml or reactions.yaml, each with its drop-ins. */
export type ConfigurationPart = 'settings' | 'tags' | 'reactions';

export interface CheckedConfiguration {
  /** Errors and warnings, sorted by file and line. */
  problems: readonly Problem[];
  /** Set if there are no errors. */
  configuration: Configuration | undefined;
  /** Parts that contain errors. */
  refused: readonly ConfigurationPart[];
  /** No platform address is set, so the service is not configured. */
  hasNoPlatform: boolean;
  /** Unset if there is no configuration folder. */
  stateDir?: string;
  texts: ConfigurationTexts;
  identity: ConfigurationIdentity;
}

/** Returns the first of `--config DIR`, `$TAGFERRY_CONFIG`, `/etc/tagferry` if it exists, and `./config`. */
export function configurationDirectory(
  option: string | undefined,
  environment: Environment,
  exists: (path: string) => boolean = existsSync,
): string {
  return option || environment.TAGFERRY_CONFIG || (exists('/etc/tagferry') ? '/etc/tagferry' : './config');
}

/**
 * Reads agent.env, tags.yaml and reactions.yaml with their drop-ins, the process environment, the files specified by
 * `KEY_FILE` and the systemd credentials. Results are not cached. Throws `ConfigurationError` with the problems of all
 * files.
 */
export function loadConfiguration(options: ConfigurationOptions): LoadedConfiguration {
  return loaded(checkConfiguration(options));
}

/** Returns the configuration if it contains no errors. Otherwise throws `ConfigurationError`. */
export function loaded({ problems, configuration, texts, identity }: CheckedConfiguration): LoadedConfiguration {
  if (configuration === undefined) {
    throw new ConfigurationError(problems.filter((problem) => problem.severity === 'error').map(problemLine));
  }
  return { ...configuration, warnings: problems.map(problemLine), texts, identity };
}

/** Like `loadConfiguration`, but returns all problems and warnings instead of throwing. */
export function checkConfiguration(options: ConfigurationOptions): CheckedConfiguration {
  const { directory, environment, instead, coming } = options;
  const problems = new Problems();
  const values = placeholderValues(options);
  const refused: ConfigurationPart[] = [];
  const part = <Result>(name: ConfigurationPart, read: () => Result): Result => {
    const before = problems.errors.length;
    const result = read();
    if (problems.errors.length > before) refused.push(name);
    return result;
  };
  const isNew = coming !== undefined && !existsSync(directory);
  const isThere = isNew || part('settings', () => checkFolder(directory, problems));
  if (!isThere) {
    const texts = { settings: {}, tags: [] };
    const identity = { files: [], filled: [] };
    return { problems: problems.list, configuration: undefined, refused, hasNoPlatform: true, texts, identity };
  }
  const file = part('settings', readSettingLines);
  const origins = part('settings', () => gatherSettings(directory, file, environment, problems));
  const settings = part('settings', () => {
    const read = readSettings(origins, environment, problems);
    checkSettings(read, origins, problems);
    return read;
  });
  const { tags, texts, read: readTagFiles } = part('tags', () => loadTags(options, settings, values, problems));
  const { reactions, read: readReactionFiles } = part('reactions', () =>
    instead?.reactions === 'none'
      ? { reactions: [], read: undefined }
      : loadReactions(options, tags, settings, values, problems),
  );
  part('settings', () => checkTopics(settings, origins, tags, problems));
  warnOfIdleSources(tags, brokersOf(reactions, options.actions), problems, settings);
  const configuration = { settings: settings as Settings, tags: { sources: tags.sources, tags: tags.tags }, reactions };
  const wrong = problems.errors.length > 0;
  return {
    problems: sortProblems(problems.list),
    configuration: wrong ? undefined : configuration,
    refused: [...new Set(refused)],
    hasNoPlatform: hasNoPlatform(origins),
    stateDir: settings.stateDir,
    texts: { settings: linesWithoutSecrets(file), tags: texts },
    identity: {
      files: [...(file.files ?? []), ...readTagFiles.identities, ...(readReactionFiles?.identities ?? [])],
      filled: [readTagFiles.digest, readReactionFiles?.digest ?? ''],
    },
  };

  function readSettingLines() {
    if (instead?.settings === undefined) return readEnvFiles(directory, values, problems, coming);
    return keptEnvFile(instead.settings.lines, instead.settings.name, readEnvFiles(directory, values, new Problems()));
  }
}

function hasNoPlatform({ given, broken, unreadable }: GivenSettings): boolean {
  return !given.has('PLATFORM_URL') && !broken.has('PLATFORM_URL') && !unreadable;
}

/** Settings for commands that require only a few settings and ignore problems with the others. */
export interface LenientSettings {
  /** Settings without problems, including defaults. Always contains `stateDir`. */
  settings: ReadSettings;
  problems: readonly Problem[];
  /** The gateway is not configured yet: no platform address is set, and all problems are missing keys. */
  isUntouched: boolean;
  /** Returns the location of a key, for problems detected elsewhere. */
  placeOf(key: KeyName): Place;
  /** Returns whether the key is set but its value cannot be read. */
  isBroken(key: KeyName): boolean;
}

/**
 * Reads only the settings. Used by commands that access the buffer of a stopped agent and do not require credentials.
 * Never throws.
 */
export function readSettingsLeniently(options: Omit<ConfigurationOptions, 'kinds' | 'actions'>): LenientSettings {
  const { directory, environment, coming } = options;
  const problems = new Problems();
  const file = readEnvFiles(directory, placeholderValues(options), problems, coming);
  const origins = gatherSettings(directory, file, environment, problems);
  const settings = readSettings(origins, environment, problems);
  checkSettings(settings, origins, problems);
  return {
    settings,
    problems: sortProblems(problems.list),
    isUntouched: hasNoPlatform(origins) && problems.errors.every(({ reason }) => / is missing/.test(reason)),
    placeOf: (key) => origins.placeOf(key),
    isBroken: (key) => origins.broken.has(key),
  };
}

/** Reads only the tags and ignores problems, which `check` reports. Never throws. */
export function readTagsLeniently(options: Omit<ConfigurationOptions, 'actions'>): ReadTags {
  return loadTags(options, undefined, placeholderValues(options), new Problems()).tags;
}

function placeholderValues({
  environment,
  hostname: name,
}: Omit<ConfigurationOptions, 'kinds' | 'actions'>): PlaceholderValues {
  return { environment, hostname: name ?? hostname() };
}

function checkFolder(directory: string, problems: Problems): boolean {
  const place = { file: directory, line: null, column: null };
  try {
    const stats = statSync(directory);
    if (!stats.isDirectory()) {
      problems.error(place, 'this is not a folder', 'specify the folder that contains agent.env: --config DIR');
      return false;
    }
    warnIfWritableByAll(problems, directory, stats);
    return true;
  } catch (error) {
    const missing = codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR';
    const reason = missing
      ? 'the configuration folder does not exist'
      : `cannot read the configuration folder (${codeOf(error)})`;
    problems.error(place, reason, 'create it, or specify another: --config DIR');
    return false;
  }
}

function loadTags(
  { directory, kinds, instead, coming }: Omit<ConfigurationOptions, 'actions'>,
  settings: ReadSettings | undefined,
  values: PlaceholderValues,
  problems: Problems,
): { tags: ReadTags; texts: readonly FileText[]; read: YamlPart } {
  const read = readYamlPart('tags', directory, values, problems, { kept: instead?.tags, coming });
  const { file, missing, unknown, texts } = read;
  if (file === undefined) {
    if (!missing) return { tags: { ...NO_TAGS, unknown: true }, texts, read };
    const other = existsSync(join(directory, 'tags.yml')) ? ' (rename tags.yml)' : '';
    const place = { file: directoryPath(directory, 'tags.yaml'), line: 1, column: 1 };
    warnOfNoTags(place, `does not exist${other}`, problems);
    return { tags: NO_TAGS, texts, read };
  }
  const byInstrumentation = settings === undefined || namesInstrumentation(settings.valuesPath ?? '');
  const tags = readTags(file, problems, { kinds, directory, byInstrumentation });
  for (const tag of tags.tagNames) warnOfLookAlikes(tag, () => tags.placeOfTag(tag), problems);
  if (byInstrumentation) {
    for (const [tag, { instrumentation, values }] of tags.tags) {
      if (instrumentation !== undefined || values.size === 0) continue;
      problems.error(
        tags.placeOfTag(tag),
        `tag "${tag}" has no instrumentation, which VALUES_PATH requires`,
        'add instrumentation: with its number',
        tag,
      );
    }
  }
  return { tags: unknown ? { ...tags, unknown: true } : tags, texts, read };
}

function loadReactions(
  { actions, directory, coming }: ConfigurationOptions,
  tags: ReadTags,
  settings: ReadSettings,
  values: PlaceholderValues,
  problems: Problems,
): { reactions: Reaction[]; read: YamlPart } {
  const read = readYamlPart('reactions', directory, values, problems, { coming });
  return {
    reactions: read.file === undefined ? [] : readReactions(read.file, actions, tags, settings, problems),
    read,
  };
}

/** Returns the sources used by actions. */
function brokersOf(reactions: readonly Reaction[], kinds: ActionKinds): string[] {
  return reactions.flatMap(({ actions }) =>
    actions.flatMap((action) => kinds.find(({ kind }) => kind === action.kind)?.sourceOf?.(action) ?? []),
  );
}

function warnOfIdleSources(
  tags: ReadTags,
  published: readonly string[],
  problems: Problems,
  settings: ReadSettings,
): void {
  if (problems.errors.length > 0) return;
  const used = new Set(published);
  for (const tag of tags.tags.values()) for (const { from } of tag.values.values()) if (from) used.add(from.source);
  for (const { broker } of [settings.webhookFrom, settings.webhookTo].filter((one) => one !== undefined))
    used.add(broker);
  for (const name of tags.sources.keys()) {
    if (used.has(name)) continue;
    problems.warning(
      tags.placeOfSource(name),
      `no value uses source "${name}"`,
      `add from: ${name} to a value, or remove the source`,
      name,
    );
  }
}

/** Characters easily mistaken for keyboard characters: dashes, spaces and invisible characters. */
const SIGNS = /[\u2010-\u2015\u2212\u00a0\u2000-\u200f\u2028-\u202f\u205f-\u2060\u00ad\ufeff\uff01-\uff5e]/u;
/** Cyrillic and Greek letters that resemble Latin ones. */
const LETTERS = /[аАВеЕЗКМНоОрРсСТуУхХіІјЅѕΑΒΕΖΗΙΚΜΝΟΡΤΥΧο]/u;
const OTHER_SCRIPT = /[\p{Script=Cyrillic}\p{Script=Greek}]/gu;

/**
 * Warns about a tag name with look-alike characters, such as those copied from a document, because pushed values and
 * searches will not match it. Names written entirely in another script are accepted.
 */
function warnOfLookAlikes(name: string, placeOf: () => Place, problems: Problems): void {
  const found = SIGNS.exec(name)?.[0] ?? letterAmongOthers(name);
  if (found === undefined) return;
  const number = found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0');
  const position = [...name].indexOf(found) + 1;
  const reason = `character ${position} of the tag name is U+${number}, which resembles another character`;
  problems.warning(placeOf(), reason, 'retype the name, here and in programs that push values for the tag', name);
}

function letterAmongOthers(name: string): string | undefined {
  const letters = name.match(OTHER_SCRIPT) ?? [];
  const isMixed = /[A-Za-z]/.test(name) || letters.every((letter) => LETTERS.test(letter));
  return isMixed ? LETTERS.exec(name)?.[0] : undefined;
}

/** Checks that tags.yaml contains the brokers of WEBHOOK_FROM and WEBHOOK_TO and that their topics are valid. */
function checkTopics(settings: ReadSettings, origins: GivenSettings, tags: ReadTags, problems: Problems): void {
  for (const [key, target] of [
    ['WEBHOOK_FROM', settings.webhookFrom],
    ['WEBHOOK_TO', settings.webhookTo],
  ] as const) {
    if (target === undefined || tags.unknown) continue;
    const { broker, topic } = target;
    const place = origins.placeOf(key);
    const levels = tags.sourceKinds.get(broker)?.publishes;
    if (levels === undefined) {
      const reason = `${key}: tags.yaml contains no broker "${printable(broker)}"`;
      problems.error(place, reason, 'use the name of an mqtt or nats source', broker);
      continue;
    }
    const wrong = levels === 'subject' ? wrongSubject(topic, 'plain') : wrongTopic(topic);
    if (wrong !== undefined) {
      const example = levels === 'subject' ? 'platform.events' : 'platform/events';
      problems.error(place, `${key}: topic "${printable(topic)}" ${wrong}`, `use a value such as ${example}`, topic);
    }
  }
}
