import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeDurably } from '../base/durable-file.ts';
import {
  type CheckedConfiguration,
  type ConfigurationOptions,
  type ConfigurationPart,
  type ConfigurationTexts,
  checkConfiguration,
  type InsteadOfFiles,
  type LoadedConfiguration,
  loaded,
} from './configuration.ts';
import { problemLine } from './problem.ts';
import { stateDirectory } from './read-settings.ts';
import type { Environment } from './setting-origins.ts';

/**
 * Latest valid configuration, stored in the state folder with mode 0600. Contains settings by key without secrets, and
 * the unmasked text of the tags, because masked commands and addresses do not work. If the current files are rejected
 * at startup, the agent replaces only the rejected parts. Reactions are not stored, because an outdated reaction could
 * operate a valve. The file is written atomically. If the file is missing, an agent with rejected files exits with code
 * 78.
 */
const FILE = 'last-good.json';
const FORMAT = 1;

/** Reason why the current files are not used. */
export interface Refusal {
  parts: readonly ConfigurationPart[];
  /** Complete lines, ready to print. */
  problems: readonly string[];
}

export interface StartConfiguration {
  configuration: LoadedConfiguration;
  refusal?: Refusal;
}

/**
 * Returns the configuration for startup: the current files or, if they are rejected, the latest valid ones. Throws
 * `ConfigurationError` with the problems of the current files if `strict` is set, the platform is unknown or no
 * configuration is stored.
 */
export function startConfiguration(options: ConfigurationOptions, strict = false): StartConfiguration {
  const now = checkConfiguration(options);
  if (now.configuration !== undefined || strict || now.hasNoPlatform) return { configuration: loaded(now) };
  const kept = readLastGood(foldersOf(now, options.environment));
  const configuration = kept && withKept(now, kept, options);
  if (configuration === undefined) return { configuration: loaded(now) };
  const problems = now.problems.filter(({ severity }) => severity === 'error').map(problemLine);
  return { configuration, refusal: { parts: now.refused, problems } };
}

/** Replaces rejected parts with stored ones, and then the parts that are rejected only in combination with them. */
function withKept(
  now: CheckedConfiguration,
  kept: ConfigurationTexts,
  options: ConfigurationOptions,
): LoadedConfiguration | undefined {
  const refused = new Set<ConfigurationPart>(now.refused);
  for (;;) {
    const instead: InsteadOfFiles = {
      ...(refused.has('settings') ? { settings: { lines: kept.settings, name: 'the last good agent.env' } } : {}),
      ...(refused.has('tags') ? { tags: kept.tags } : {}),
      ...(refused.has('reactions') ? { reactions: 'none' } : {}),
    };
    const checked = checkConfiguration({ ...options, instead });
    if (checked.configuration !== undefined) return loaded(checked);
    const before = refused.size;
    for (const part of checked.refused) refused.add(part);
    if (refused.size === before) return undefined;
  }
}

/** Returns the state folders set by the environment, by the unit and, if it is valid, by agent.env. */
function foldersOf(now: CheckedConfiguration, environment: Environment): string[] {
  const own = stateFolder(environment);
  return now.refused.includes('settings') || now.stateDir === undefined ? [own] : [now.stateDir, own];
}

/** Returns the state folder set by the environment or the unit, ignoring agent.env. */
function stateFolder(environment: Environment): string {
  return stateDirectory(environment.STATE_DIR, environment);
}

function readLastGood(folders: readonly string[]): ConfigurationTexts | undefined {
  for (const folder of folders) {
    try {
      const { format, settings, tags } = JSON.parse(readFileSync(join(folder, FILE), 'utf8'));
      if (format === FORMAT) return { settings, tags };
    } catch {
      // The file is missing or incomplete.
    }
  }
  return undefined;
}

/**
 * Stores the configuration if it changed. `stateDir` is the folder in use. If the environment or unit sets another
 * folder, that folder gets a copy, because the agent reads it there if agent.env is rejected at startup.
 */
export async function keepLastGood(
  texts: ConfigurationTexts,
  stateDir: string,
  environment: Environment,
): Promise<void> {
  const written = `${JSON.stringify({ format: FORMAT, settings: texts.settings, tags: texts.tags })}\n`;
  const other = stateFolder(environment);
  await keepIn(stateDir, written);
  // The other folder may be missing or read-only, for example if it belongs to another installation.
  if (other !== stateDir) await keepIn(other, written).catch(() => {});
}

async function keepIn(folder: string, written: string): Promise<void> {
  const path = join(folder, FILE);
  try {
    if (readFileSync(path, 'utf8') === written) return;
  } catch {
    // The file does not exist yet.
  }
  await writeDurably(path, written);
}
