/** What of the configuration goes into a backup: the whole folder, or, without secrets, the three files and their drop-ins. */

import { existsSync, readdirSync, type Stats, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { codeOf } from '../../base/errors.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { withDropIns } from '../../config/drop-in-files.ts';
import { type MaskedText, maskedEnv, maskedReactions, maskedTags } from '../../config/masked-configuration.ts';
import { Problems } from '../../config/problem.ts';
import { isServiceFolder } from '../service-folder.ts';
import type { ArchiveFile } from './archive-writer.ts';
import { nameOf } from './machine-names.ts';
import { MAX_SMALL_BYTES } from './manifest.ts';

export interface ConfigurationContents {
  files: ArchiveFile[];
  leftOut: { file: string; why: string }[];
}

const MAX_FILES = 5_000;
const MAX_DEPTH = 8;
export const UNIT_FOLDER = '/etc/systemd/system/tagferry.service.d';
/** Written by `setup` for this machine's own key: a restore writes its own. */
const OWN_DROP_IN = 'credentials.conf';

export function configurationContents(directory: string, withSecrets: boolean): ConfigurationContents {
  const contents: ConfigurationContents = { files: [], leftOut: [] };
  if (withSecrets) addFolder(contents, directory, 'config', 0);
  else addPublic(contents, directory);
  if (isServiceFolder(directory)) addUnit(contents, withSecrets);
  return contents;
}

function addFolder(contents: ConfigurationContents, folder: string, name: string, depth: number): void {
  for (const entry of namesIn(contents, folder)) {
    const path = join(folder, entry);
    const inside = `${name}/${entry}`;
    const found = lookAt(contents, path);
    if (!found) continue;
    // Shipped with every release.
    if (inside === 'config/schema') continue;
    if (found.isDirectory()) {
      if (depth < MAX_DEPTH) addFolder(contents, path, inside, depth + 1);
      else contents.leftOut.push({ file: path, why: 'it lies too deep' });
    } else if (inside.startsWith('config/credentials/') && entry.endsWith('.cred')) {
      // Of use on this machine alone: what stands in it goes another way.
    } else addFile(contents, path, inside, found);
  }
}

/** The configuration files with masked values; files that may contain secrets are left out. */
function addPublic(contents: ConfigurationContents, directory: string): void {
  const kept = new Set<string>();
  for (const [file, folder, mask] of [
    ['agent.env', 'agent.env.d', maskedEnv],
    ['tags.yaml', 'tags.d', maskedTags],
    ['reactions.yaml', 'reactions.d', maskedReactions],
  ] as const) {
    for (const { path } of withDropIns(directory, file, folder, new Problems())) {
      kept.add(path);
      const found = existsSync(path) ? lookAt(contents, path) : undefined;
      if (found) addFile(contents, path, `config/${relative(directory, path)}`, found, mask);
    }
  }
  for (const entry of namesIn(contents, directory)) {
    const path = join(directory, entry);
    if (entry === 'schema' || kept.has(path) || /^(agent\.env|tags|reactions)\.d$/.test(entry)) continue;
    contents.leftOut.push({ file: path, why: 'it may contain a secret' });
  }
}

function addUnit(contents: ConfigurationContents, withSecrets: boolean): void {
  for (const entry of namesIn({ files: [], leftOut: [] }, UNIT_FOLDER)) {
    const path = join(UNIT_FOLDER, entry);
    const found = entry.endsWith('.conf') && entry !== OWN_DROP_IN ? lookAt(contents, path) : undefined;
    if (!found) continue;
    if (withSecrets) addFile(contents, path, `unit/${entry}`, found);
    else contents.leftOut.push({ file: path, why: 'it may contain a secret' });
  }
}

function addFile(
  { files, leftOut }: ConfigurationContents,
  path: string,
  name: string,
  found: Stats,
  mask?: (text: string) => MaskedText,
): void {
  const why = unfit(found) ?? (files.length >= MAX_FILES ? 'the folder holds too many files' : undefined);
  if (why !== undefined) return void leftOut.push({ file: path, why });
  try {
    const whole = readRegularFileSync(path, MAX_SMALL_BYTES).bytes;
    const shown = mask?.(whole.toString());
    const bytes = shown ? Buffer.from(shown.text) : whole;
    const owner = { user: nameOf('user', found.uid), group: nameOf('group', found.gid) };
    if (shown && shown.masked.length > 0)
      leftOut.push({ file: path, why: 'comments and values shown as *** are left out' });
    files.push({ name, size: bytes.length, mode: found.mode & 0o777, ...owner, read: () => [bytes] });
  } catch (error) {
    leftOut.push({ file: path, why: `it cannot be read (${codeOf(error)})` });
  }
}

function unfit(found: Stats): string | undefined {
  if (!found.isFile()) return 'it is no file';
  return found.size > MAX_SMALL_BYTES ? 'it is too large' : undefined;
}

function lookAt(contents: ConfigurationContents, path: string): Stats | undefined {
  try {
    return statSync(path);
  } catch (error) {
    contents.leftOut.push({ file: path, why: `it cannot be read (${codeOf(error)})` });
    return undefined;
  }
}

function namesIn(contents: ConfigurationContents, folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch (error) {
    contents.leftOut.push({ file: folder, why: `it cannot be read (${codeOf(error)})` });
    return [];
  }
}
