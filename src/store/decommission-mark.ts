/**
 * `STATE_DIR/decommissioned.json`: this gateway was taken out of service by `tagferry decommission`, and nothing may start with the
 * folder before `tagferry setup` takes the mark away. It is written last, when everything else is done: a crash before leaves a
 * gateway in service. The same mark, with a word more, stands while `tagferry restore` fills the folder: there a crash leaves one that
 * nothing starts with before the restore is done again.
 */

import { existsSync, readFileSync } from 'node:fs';
import { chown, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { removeDurably, writeDurably } from '../base/durable-file.ts';
import { ConfigurationError } from '../base/errors.ts';

const FILE = 'decommissioned.json';

/** Resolves when it is on disk. Throws the file system's own error; then there is none. */
export function markDecommissioned(stateDir: string, atWallMs: number): Promise<void> {
  return mark(stateDir, { at: new Date(atWallMs).toISOString() });
}

/** A restore has begun to put files in place. */
export function markRestoring(stateDir: string, atWallMs: number): Promise<void> {
  return mark(stateDir, { at: new Date(atWallMs).toISOString(), restoring: true });
}

interface Mark {
  at?: string;
  restoring?: true;
}

async function mark(stateDir: string, text: Mark): Promise<void> {
  const path = join(stateDir, FILE);
  await writeDurably(path, `${JSON.stringify(text)}\n`);
  if (process.geteuid?.() !== 0) return;
  // What root writes the service must be able to read.
  const { uid, gid } = await stat(stateDir);
  await chown(path, uid, gid);
}

/** When it was (ISO 8601, or no time where the file is not readable); `undefined` where the folder is in service. */
export function decommissioned(stateDir: string): Mark | undefined {
  const path = join(stateDir, FILE);
  if (!existsSync(path)) return undefined;
  try {
    const { at, restoring } = JSON.parse(readFileSync(path, 'utf8')) as { at?: unknown; restoring?: unknown };
    return { ...(typeof at === 'string' ? { at } : {}), ...(restoring === true ? { restoring } : {}) };
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
  const said = markWords(stateDir);
  return said && `${stateDir}: ${said.what}, ${said.next}`;
}

/** The same in two parts: what it is, and what to do. */
export function markWords(stateDir: string): { what: string; next: string } | undefined {
  const mark = decommissioned(stateDir);
  if (!mark) return undefined;
  const when = mark.at === undefined ? '' : ` at ${mark.at}`;
  if (mark.restoring) {
    return { what: `a restore that began${when} did not come to its end`, next: 'run `tagferry restore` again' };
  }
  return {
    what: `this gateway was decommissioned${when}`,
    next: 'run `tagferry setup` to take it into service again',
  };
}

/** Back in service. Gives whether there was a mark. */
export async function clearDecommissionMark(stateDir: string): Promise<boolean> {
  const path = join(stateDir, FILE);
  if (!existsSync(path)) return false;
  await removeDurably(path);
  return true;
}
