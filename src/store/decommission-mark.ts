/**
 * `STATE_DIR/decommissioned.json`: this gateway was taken out of service by `tagferry decommission`, and nothing may start with the
 * folder before `tagferry setup` takes the mark away. It is written last, when everything else is done: a crash before leaves a
 * gateway in service.
 */

import { existsSync, readFileSync } from 'node:fs';
import { chown, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { removeDurably, writeDurably } from '../base/durable-file.ts';
import { ConfigurationError } from '../base/errors.ts';

const FILE = 'decommissioned.json';

/** Resolves when it is on disk. Throws the file system's own error; then there is none. */
export async function markDecommissioned(stateDir: string, atWallMs: number): Promise<void> {
  const path = join(stateDir, FILE);
  await writeDurably(path, `${JSON.stringify({ at: new Date(atWallMs).toISOString() })}\n`);
  if (process.geteuid?.() !== 0) return;
  // What root writes the service must be able to read.
  const { uid, gid } = await stat(stateDir);
  await chown(path, uid, gid);
}

/** When it was (ISO 8601, or no time where the file is not readable); `undefined` where the folder is in service. */
export function decommissioned(stateDir: string): { at?: string } | undefined {
  const path = join(stateDir, FILE);
  if (!existsSync(path)) return undefined;
  try {
    const { at } = JSON.parse(readFileSync(path, 'utf8')) as { at?: unknown };
    return typeof at === 'string' ? { at } : {};
  } catch {
    return {};
  }
}

/** Throws `ConfigurationError` (exit status 78, which systemd does not start again) where the folder is marked. */
export function demandInService(stateDir: string): void {
  const words = decommissionedWords(stateDir);
  if (words !== undefined) throw new ConfigurationError([words]);
}

/** What is said of a marked folder; `undefined` where there is no mark. */
export function decommissionedWords(stateDir: string): string | undefined {
  const mark = decommissioned(stateDir);
  if (!mark) return undefined;
  const when = mark.at === undefined ? '' : ` at ${mark.at}`;
  return `${stateDir}: this gateway was decommissioned${when}, run \`tagferry setup\` to take it into service again`;
}

/** Back in service. Gives whether there was a mark. */
export async function clearDecommissionMark(stateDir: string): Promise<boolean> {
  const path = join(stateDir, FILE);
  if (!existsSync(path)) return false;
  await removeDurably(path);
  return true;
}
