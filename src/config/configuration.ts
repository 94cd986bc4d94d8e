import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigurationError, codeOf } from '../errors.ts';
import { warnIfWritableByAll } from './configuration-file.ts';
import { type Problem, Problems, problemLine, sortProblems } from './problem.ts';
import type { Reaction } from './reactions.ts';
import { readReactions } from './read-reactions.ts';
import { type ReadSettings, readSettings } from './read-settings.ts';
import { NO_TAGS, type ReadTags, readTags, warnOfNoTags } from './read-tags.ts';
import { directoryPath, type Environment, gatherSettings } from './setting-origins.ts';
import { checkSettings } from './setting-rules.ts';
import type { Settings } from './settings.ts';
import type { Tags } from './tags.ts';
import { readYamlFile } from './yaml-file.ts';

export interface ConfigurationOptions {
  /** The configuration folder as the user named it: problems name files so. */
  directory: string;
  environment: Environment;
}

export interface Configuration {
  settings: Settings;
  tags: Tags;
  reactions: readonly Reaction[];
}

export interface LoadedConfiguration extends Configuration {
  /** Whole lines, ready to print. */
  warnings: readonly string[];
}

export interface CheckedConfiguration {
  /** Errors and warnings, by file and line. */
  problems: readonly Problem[];
  /** There unless one of the problems is an error. */
  configuration: Configuration | undefined;
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
 * Reads agent.env, tags.yaml and reactions.yaml, with the process environment, the files of `KEY_FILE` and the systemd
 * credentials. Reads the whole of it again at each call and keeps nothing.
 * Throws `ConfigurationError` with every problem of every file.
 */
export function loadConfiguration(options: ConfigurationOptions): LoadedConfiguration {
  const { problems, configuration } = checkConfiguration(options);
  if (configuration === undefined) {
    throw new ConfigurationError(problems.filter((problem) => problem.severity === 'error').map(problemLine));
  }
  return { ...configuration, warnings: problems.map(problemLine) };
}

/** The same without throwing: every problem and warning in its parts. */
export function checkConfiguration(options: ConfigurationOptions): CheckedConfiguration {
  const { directory, environment } = options;
  const problems = new Problems();
  if (!checkFolder(directory, problems)) return { problems: problems.list, configuration: undefined };
  const origins = gatherSettings(directory, environment, problems);
  const settings = readSettings(origins, environment, problems);
  checkSettings(settings, origins, problems);
  const tags = loadTags(directory, settings, problems);
  const reactions = loadReactions(directory, tags, settings, problems);
  const configuration = { settings: settings as Settings, tags: { sources: tags.sources, tags: tags.tags }, reactions };
  const wrong = problems.errors.length > 0;
  return { problems: sortProblems(problems.list), configuration: wrong ? undefined : configuration };
}

/** What verbs get that need one or two settings, whatever is wrong with or missing from the rest. */
export interface LenientSettings {
  /** Members without a problem, defaults filled in; `stateDir` always. */
  settings: ReadSettings;
  problems: readonly Problem[];
}

/** Reads the settings alone and never throws: for verbs on the buffer of a stopped daemon, which need no credentials. */
export function readSettingsLeniently(options: ConfigurationOptions): LenientSettings {
  const problems = new Problems();
  const origins = gatherSettings(options.directory, options.environment, problems);
  const settings = readSettings(origins, options.environment, problems);
  checkSettings(settings, origins, problems);
  return { settings, problems: sortProblems(problems.list) };
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

function loadTags(directory: string, settings: ReadSettings, problems: Problems): ReadTags {
  const name = directoryPath(directory, 'tags.yaml');
  const file = readYamlFile(join(directory, 'tags.yaml'), name, problems);
  if (file === undefined) return { ...NO_TAGS, unknown: true };
  if (file === 'missing') {
    const other = existsSync(join(directory, 'tags.yml')) ? ' (tags.yml is there: rename it)' : '';
    warnOfNoTags({ file: name, line: 1, column: 1 }, `does not exist${other}`, problems);
    return NO_TAGS;
  }
  const tags = readTags(file, problems);
  if (settings.valuesPath?.includes('{instrumentation_id}')) {
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
  return tags;
}

function loadReactions(directory: string, tags: ReadTags, settings: ReadSettings, problems: Problems): Reaction[] {
  const name = directoryPath(directory, 'reactions.yaml');
  const file = readYamlFile(join(directory, 'reactions.yaml'), name, problems);
  const reactions = file === undefined || file === 'missing' ? [] : readReactions(file, tags, settings, problems);
  warnOfIdleSources(tags, reactions, problems);
  return reactions;
}

function warnOfIdleSources(tags: ReadTags, reactions: readonly Reaction[], problems: Problems): void {
  if (problems.errors.length > 0) return;
  const used = new Set<string>();
  for (const tag of tags.tags.values()) for (const { from } of tag.values.values()) if (from) used.add(from.source);
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
