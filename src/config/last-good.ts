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
 * The configuration that worked last, kept in the state folder (0600): settings by key without secrets, and the texts of the tags as
 * they are, because a masked command or address does not work. A start whose files are refused goes on with it, part by part. Reactions are not kept: what nobody can
 * read now must not move a valve by an older copy. The file is written whole or not at all; without it such a start ends with 78.
 */
const FILE = 'last-good.json';
const FORMAT = 1;

/** Why the files of now are not in force. */
export interface Refusal {
  parts: readonly ConfigurationPart[];
  /** Whole lines. */
  problems: readonly string[];
}

export interface StartConfiguration {
  configuration: LoadedConfiguration;
  refusal?: Refusal;
}

/**
 * What the daemon starts with: the files, or, where they are refused, the last good ones. Throws `ConfigurationError` with the problems
 * of the files where those are to be `strict`, where nothing says which platform it is, and where nothing was kept.
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

/** Puts kept parts in the place of refused ones; what is refused only beside those is replaced as well. */
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

/** Of the environment or the unit; where agent.env is not refused it may name another. */
function foldersOf(now: CheckedConfiguration, environment: Environment): string[] {
  const own = stateFolder(environment);
  return now.refused.includes('settings') || now.stateDir === undefined ? [own] : [now.stateDir, own];
}

/** The state folder as the environment or the unit names it, whatever agent.env says. */
function stateFolder(environment: Environment): string {
  return stateDirectory(environment.STATE_DIR, environment);
}

function readLastGood(folders: readonly string[]): ConfigurationTexts | undefined {
  for (const folder of folders) {
    try {
      const { format, settings, tags } = JSON.parse(readFileSync(join(folder, FILE), 'utf8'));
      if (format === FORMAT) return { settings, tags };
    } catch {
      // None was kept there, or it is not whole: then there is none.
    }
  }
  return undefined;
}

/**
 * Keeps what was read, where it differs from what is kept. `stateDir` is the folder in force; where the environment or the unit
 * names another, that gets it too: there a start looks whose agent.env is refused.
 */
export async function keepLastGood(
  texts: ConfigurationTexts,
  stateDir: string,
  environment: Environment,
): Promise<void> {
  const written = `${JSON.stringify({ format: FORMAT, settings: texts.settings, tags: texts.tags })}\n`;
  const other = stateFolder(environment);
  await keepIn(stateDir, written);
  // It need not exist, nor be writable: a folder of an installation that this is none of.
  if (other !== stateDir) await keepIn(other, written).catch(() => {});
}

async function keepIn(folder: string, written: string): Promise<void> {
  const path = join(folder, FILE);
  try {
    if (readFileSync(path, 'utf8') === written) return;
  } catch {
    // Not there yet.
  }
  await writeDurably(path, written);
}
