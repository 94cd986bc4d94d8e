import { existsSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { ConfigurationError, codeOf } from '../base/errors.ts';
import type { ConfigurationIdentity } from './configuration-digest.ts';
import { warnIfWritableByAll } from './configuration-file.ts';
import { directoryPath } from './drop-in-files.ts';
import { type ComingFiles, keptEnvFile, linesWithoutSecrets, readEnvFiles } from './env-files.ts';
import { namesInstrumentation } from './instrumentations.ts';
import { warnOfLookAlikes } from './look-alikes.ts';
import type { PlaceholderValues } from './placeholders.ts';
import { type Place, type Problem, Problems, problemLine, sortProblems } from './problem.ts';
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
import { checkTopics } from './webhook-topics.ts';
import { type FileText, readYamlPart, type YamlPart } from './yaml-part.ts';

export interface ConfigurationOptions {
  /** The configuration folder as the user named it: problems name files so. */
  directory: string;
  environment: Environment;
  /** Of tags.yaml: the rooms above know them. */
  kinds: SourceKinds;
  /** Of this machine, for `${HOSTNAME}`; its own unless told. */
  hostname?: string;
  /** Parts that are not read from the folder. */
  instead?: InsteadOfFiles;
  /** Files that are about to be written, read in place of those of the folder. The folder may not exist yet. */
  coming?: ComingFiles;
}

/** What stands in for files that are refused. Secrets always come from the files of now. */
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

/** What the configuration was read from, without secrets: kept for a start with files that are refused. */
export interface ConfigurationTexts {
  /** agent.env and its drop-ins, by key. */
  settings: Readonly<Record<string, string>>;
  tags: readonly FileText[];
}

/** A configuration with what it was read from, where it was read from files. */
export type ReadConfiguration = Configuration & { texts?: ConfigurationTexts; identity?: ConfigurationIdentity };

export interface LoadedConfiguration extends Configuration {
  /** Whole lines, ready to print. */
  warnings: readonly string[];
  texts: ConfigurationTexts;
  identity: ConfigurationIdentity;
}

/** agent.env, tags.yaml, reactions.yaml, each with its drop-ins. */
export type ConfigurationPart = 'settings' | 'tags' | 'reactions';

export interface CheckedConfiguration {
  /** Errors and warnings, by file and line. */
  problems: readonly Problem[];
  /** There unless one of the problems is an error. */
  configuration: Configuration | undefined;
  /** Parts with an error of their own. */
  refused: readonly ConfigurationPart[];
  /** Nothing names the platform: the service is not configured. */
  hasNoPlatform: boolean;
  /** Absent where there is no configuration folder. */
  stateDir?: string;
  texts: ConfigurationTexts;
  identity: ConfigurationIdentity;
}

/** `--config DIR`, else `$TAGFERRY_CONFIG`, else `/etc/tagferry` if it exists, else `./config`. */
export function configurationDirectory(
  option: string | undefined,
  environment: Environment,
  exists: (path: string) => boolean = existsSync,
): string {
  return option || environment.TAGFERRY_CONFIG || (exists('/etc/tagferry') ? '/etc/tagferry' : './config');
}

/**
 * Reads agent.env, tags.yaml and reactions.yaml with their drop-ins, the process environment, the files of `KEY_FILE` and the
 * systemd credentials. Reads the whole of it again at each call and keeps nothing.
 * Throws `ConfigurationError` with every problem of every file.
 */
export function loadConfiguration(options: ConfigurationOptions): LoadedConfiguration {
  return loaded(checkConfiguration(options));
}

/** What was checked, where nothing in it is an error; throws `ConfigurationError`. */
export function loaded({ problems, configuration, texts, identity }: CheckedConfiguration): LoadedConfiguration {
  if (configuration === undefined) {
    throw new ConfigurationError(problems.filter((problem) => problem.severity === 'error').map(problemLine));
  }
  return { ...configuration, warnings: problems.map(problemLine), texts, identity };
}

/** The same without throwing: every problem and warning in its parts. */
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
  warnOfIdleSources(tags, reactions, problems, settings);
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

/** What verbs get that need one or two settings, whatever is wrong with or missing from the rest. */
export interface LenientSettings {
  /** Members without a problem, defaults filled in; `stateDir` always. */
  settings: ReadSettings;
  problems: readonly Problem[];
  /** No platform is named, and nothing but missing keys is wrong: nobody has configured anything yet. */
  isUntouched: boolean;
  /** Where a key is written, for a problem that shows elsewhere. */
  placeOf(key: KeyName): Place;
  /** The key is written, but its value cannot be read. */
  isBroken(key: KeyName): boolean;
}

/**
 * Reads the settings alone and never throws: for verbs on the buffer of a stopped agent, which need no credentials.
 */
export function readSettingsLeniently(options: Omit<ConfigurationOptions, 'kinds'>): LenientSettings {
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

/** Reads the tags alone and never throws: what is wrong with them is for `check` to say. */
export function readTagsLeniently(options: ConfigurationOptions): ReadTags {
  return loadTags(options, undefined, placeholderValues(options), new Problems()).tags;
}

function placeholderValues({ environment, hostname: name }: Omit<ConfigurationOptions, 'kinds'>): PlaceholderValues {
  return { environment, hostname: name ?? hostname() };
}

function checkFolder(directory: string, problems: Problems): boolean {
  const place = { file: directory, line: null, column: null };
  try {
    const stats = statSync(directory);
    if (!stats.isDirectory()) {
      problems.error(place, 'this is no folder', 'name the folder that holds agent.env: --config DIR');
      return false;
    }
    warnIfWritableByAll(problems, directory, stats);
    return true;
  } catch (error) {
    const missing = codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR';
    const reason = missing
      ? 'there is no such configuration folder'
      : `the configuration folder cannot be read (${codeOf(error)})`;
    problems.error(place, reason, 'create it, or name another: --config DIR');
    return false;
  }
}

function loadTags(
  { directory, kinds, instead, coming }: ConfigurationOptions,
  settings: ReadSettings | undefined,
  values: PlaceholderValues,
  problems: Problems,
): { tags: ReadTags; texts: readonly FileText[]; read: YamlPart } {
  const read = readYamlPart('tags', directory, values, problems, { kept: instead?.tags, coming });
  const { file, missing, unknown, texts } = read;
  if (file === undefined) {
    if (!missing) return { tags: { ...NO_TAGS, unknown: true }, texts, read };
    const other = existsSync(join(directory, 'tags.yml')) ? ' (tags.yml is there: rename it)' : '';
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
        `tag "${tag}" has no instrumentation, which VALUES_PATH needs`,
        'add instrumentation: with its number',
        tag,
      );
    }
  }
  return { tags: unknown ? { ...tags, unknown: true } : tags, texts, read };
}

function loadReactions(
  { directory, coming }: ConfigurationOptions,
  tags: ReadTags,
  settings: ReadSettings,
  values: PlaceholderValues,
  problems: Problems,
): { reactions: Reaction[]; read: YamlPart } {
  const read = readYamlPart('reactions', directory, values, problems, { coming });
  return { reactions: read.file === undefined ? [] : readReactions(read.file, tags, settings, problems), read };
}

function warnOfIdleSources(
  tags: ReadTags,
  reactions: readonly Reaction[],
  problems: Problems,
  settings: ReadSettings,
): void {
  if (problems.errors.length > 0) return;
  const used = new Set<string>();
  for (const tag of tags.tags.values()) for (const { from } of tag.values.values()) if (from) used.add(from.source);
  for (const { broker } of [settings.webhookFrom, settings.webhookTo].filter((one) => one !== undefined))
    used.add(broker);
  for (const { actions } of reactions)
    for (const action of actions) if (action.kind === 'publish') used.add(action.broker);
  for (const name of tags.sources.keys()) {
    if (used.has(name)) continue;
    problems.warning(
      tags.placeOfSource(name),
      `no value comes from source "${name}"`,
      `write from: ${name} at a value, or remove it`,
      name,
    );
  }
}
