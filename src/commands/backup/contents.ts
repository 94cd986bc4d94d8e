/**
 * Contents of a backup. Configuration: the whole folder or, without secrets, the masked files. State: small files, and
 * snapshots of buffer and inbox from the same point in time. Tokens are omitted, because the new gateway signs in
 * itself.
 */
import { existsSync, readdirSync, readFileSync, type Stats, statSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { codeOf } from '../../base/errors.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { withDropIns } from '../../config/drop-in-files.ts';
import { type MaskedText, maskedEnv, maskedReactions, maskedTags } from '../../config/masked-configuration.ts';
import { Problems } from '../../config/problem.ts';
import { gatewayIdentity, IDENTITY_FILE } from '../../store/gateway-identity.ts';
import { bufferPath } from '../../store/store-messages.ts';
import type { DatabaseSnapshot } from '../../store/store-snapshot.ts';
import { WEBHOOK_FILE } from '../../webhook/registration-file.ts';
import { isServiceFolder } from '../service/service-folder.ts';
import { type ArchiveFile, DECOMMISSIONED, LAST_GOOD, MAX_SMALL_BYTES } from './archive.ts';

export const databasesIn = (stateDir: string) => [bufferPath(stateDir), join(stateDir, 'inbox.db')];

export function databaseFiles(snapshots: readonly DatabaseSnapshot[]): ArchiveFile[] {
  return snapshots.flatMap(({ path, files }) =>
    files.map(({ ending, bytes, read }) => ({
      name: `state/${basename(path)}${ending}`,
      size: bytes,
      mode: 0o600,
      read,
    })),
  );
}

export async function smallFiles(stateDir: string, withSecrets: boolean): Promise<ArchiveFile[]> {
  const texts: [name: string, text: string | undefined][] = [
    [WEBHOOK_FILE, await webhookText(stateDir, withSecrets)],
    [IDENTITY_FILE, `${JSON.stringify(gatewayIdentity(stateDir))}\n`],
    [LAST_GOOD, withSecrets ? textOf(join(stateDir, LAST_GOOD)) : undefined],
    [DECOMMISSIONED, textOf(join(stateDir, DECOMMISSIONED))],
  ];
  return texts.flatMap(([name, text]) => {
    if (text === undefined) return [];
    const bytes = Buffer.from(text);
    return [{ name: `state/${name}`, size: bytes.length, mode: 0o600, read: () => [bytes] }];
  });
}

/** Without secrets, the agent requests a new secret for the registered webhook at its next startup. */
async function webhookText(stateDir: string, withSecrets: boolean): Promise<string | undefined> {
  const path = join(stateDir, WEBHOOK_FILE);
  if (withSecrets) return textOf(path);
  const text = textOf(path);
  if (text === undefined) return undefined;
  const { secret: _, previous: __, previousUntilMs: ___, ...rest } = JSON.parse(text) as Record<string, unknown>;
  return `${JSON.stringify(rest)}\n`;
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

export interface ConfigurationContents {
  files: ArchiveFile[];
  leftOut: { file: string; why: string }[];
}

const MAX_FILES = 5_000;
const MAX_DEPTH = 8;
export const UNIT_FOLDER = '/etc/systemd/system/tagferry.service.d';
/** Drop-in that `setup` writes for this machine's encryption key. `restore` writes a new one. */
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
    const found = statOf(contents, path);
    if (!found) continue;
    // Schemas are shipped with every release.
    if (inside === 'config/schema') continue;
    if (found.isDirectory()) {
      if (depth < MAX_DEPTH) addFolder(contents, path, inside, depth + 1);
      else contents.leftOut.push({ file: path, why: 'nested too deeply' });
    } else if (inside.startsWith('config/credentials/') && entry.endsWith('.cred')) {
      // Only this machine can decrypt the file. The backup contains the decrypted secret instead.
    } else addFile(contents, path, inside, found);
  }
}

/** Adds the configuration files with masked values. Omits files that may contain secrets. */
function addPublic(contents: ConfigurationContents, directory: string): void {
  const kept = new Set<string>();
  for (const [file, folder, mask] of [
    ['agent.env', 'agent.env.d', maskedEnv],
    ['tags.yaml', 'tags.d', maskedTags],
    ['reactions.yaml', 'reactions.d', maskedReactions],
  ] as const) {
    for (const { path } of withDropIns(directory, file, folder, new Problems())) {
      kept.add(path);
      const found = existsSync(path) ? statOf(contents, path) : undefined;
      if (found) addFile(contents, path, `config/${relative(directory, path)}`, found, mask);
    }
  }
  for (const entry of namesIn(contents, directory)) {
    const path = join(directory, entry);
    if (entry === 'schema' || kept.has(path) || /^(agent\.env|tags|reactions)\.d$/.test(entry)) continue;
    contents.leftOut.push({ file: path, why: 'can contain a secret' });
  }
}

function addUnit(contents: ConfigurationContents, withSecrets: boolean): void {
  for (const entry of namesIn({ files: [], leftOut: [] }, UNIT_FOLDER)) {
    const path = join(UNIT_FOLDER, entry);
    const found = entry.endsWith('.conf') && entry !== OWN_DROP_IN ? statOf(contents, path) : undefined;
    if (!found) continue;
    if (withSecrets) addFile(contents, path, `unit/${entry}`, found);
    else contents.leftOut.push({ file: path, why: 'can contain a secret' });
  }
}

function addFile(
  { files, leftOut }: ConfigurationContents,
  path: string,
  name: string,
  found: Stats,
  mask?: (text: string) => MaskedText,
): void {
  const why = unfit(found) ?? (files.length >= MAX_FILES ? 'too many files in the folder' : undefined);
  if (why !== undefined) return void leftOut.push({ file: path, why });
  try {
    const original = readRegularFileSync(path, MAX_SMALL_BYTES).bytes;
    const masked = mask?.(original.toString());
    const bytes = masked ? Buffer.from(masked.text) : original;
    const owner = { user: nameOf('user', found.uid), group: nameOf('group', found.gid) };
    if (masked && masked.masked.length > 0)
      leftOut.push({ file: path, why: 'comments and values shown as *** are omitted' });
    files.push({ name, size: bytes.length, mode: found.mode & 0o777, ...owner, read: () => [bytes] });
  } catch (error) {
    leftOut.push({ file: path, why: `cannot be read, ${codeOf(error)}` });
  }
}

function unfit(found: Stats): string | undefined {
  if (!found.isFile()) return 'not a file';
  return found.size > MAX_SMALL_BYTES ? 'too large' : undefined;
}

function statOf(contents: ConfigurationContents, path: string): Stats | undefined {
  try {
    return statSync(path);
  } catch (error) {
    contents.leftOut.push({ file: path, why: `cannot be read, ${codeOf(error)}` });
    return undefined;
  }
}

function namesIn(contents: ConfigurationContents, folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch (error) {
    contents.leftOut.push({ file: folder, why: `cannot be read, ${codeOf(error)}` });
    return [];
  }
}

type Kind = 'user' | 'group';

const FILES: Readonly<Record<Kind, string>> = { user: '/etc/passwd', group: '/etc/group' };

/** Returns `''` for an unknown ID. */
function nameOf(kind: Kind, id: number): string {
  return rowsOf(kind).find((row) => Number(row[2]) === id)?.[0] ?? '';
}

/** Returns `undefined` for an unknown name. */
export function idOf(kind: Kind, name: string): number | undefined {
  const row = name === '' ? undefined : rowsOf(kind).find(([one]) => one === name);
  return row === undefined ? undefined : Number(row[2]);
}

function rowsOf(kind: Kind): string[][] {
  try {
    return readFileSync(FILES[kind], 'utf8')
      .split('\n')
      .map((line) => line.split(':'))
      .filter((row) => row.length > 3);
  } catch {
    return [];
  }
}
