/**
 * `STATE_DIR/decommissioned.json` marks a gateway that `tagferry decommission` took out of service. The agent does not
 * start until `tagferry setup` removes the mark. The mark is written last, so after a crash the gateway is still in
 * service. `tagferry restore` sets the same mark with `restoring` while it fills the folder; after a crash the restore
 * must be repeated.
 */

import { existsSync, readFileSync } from 'node:fs';
import { chown, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { removeDurably, writeDurably } from '../base/durable-file.ts';
import { ConfigurationError } from '../base/errors.ts';

const FILE = 'decommissioned.json';

interface Mark {
  /** ISO 8601. */
  at?: string;
  restoring?: true;
}

/** Resolves when the mark is on disk. If it rejects with a file system error, no mark was written. */
export function markDecommissioned(stateDir: string, atWallMs: number): Promise<void> {
  return writeMark(stateDir, { at: new Date(atWallMs).toISOString() });
}

/** Marks a restore in progress. */
export function markRestoring(stateDir: string, atWallMs: number): Promise<void> {
  return writeMark(stateDir, { at: new Date(atWallMs).toISOString(), restoring: true });
}

async function writeMark(stateDir: string, mark: Mark): Promise<void> {
  const path = join(stateDir, FILE);
  await writeDurably(path, `${JSON.stringify(mark)}\n`);
  if (process.geteuid?.() !== 0) return;
  // The service must be able to read a mark written by root.
  const { uid, gid } = await stat(stateDir);
  await chown(path, uid, gid);
}

/** Returns the mark, with its ISO 8601 time if the file is readable; `undefined` if the folder is in service. */
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

/** Throws `ConfigurationError` if the folder is marked (exit status 78: systemd does not restart the service). */
export function requireInService(stateDir: string): void {
  const words = decommissionMessage(stateDir);
  if (words !== undefined) throw new ConfigurationError([words]);
}

/** Returns the message for a marked folder, or `undefined` if there is no mark. */
export function decommissionMessage(stateDir: string): string | undefined {
  const said = markDescription(stateDir);
  return said && `${stateDir}: ${said.what}, ${said.next}`;
}

/** Returns the message in two parts: the state and the next step. */
export function markDescription(stateDir: string): { what: string; next: string } | undefined {
  const mark = decommissioned(stateDir);
  if (!mark) return undefined;
  const when = mark.at === undefined ? '' : ` at ${mark.at}`;
  if (mark.restoring) {
    return { what: `the restore started${when} is incomplete`, next: 'run `tagferry restore` again' };
  }
  return {
    what: `this gateway was decommissioned${when}`,
    next: 'run `tagferry setup` to put it back into service',
  };
}

/** Removes the mark. Returns whether the mark existed. */
export async function clearDecommissionMark(stateDir: string): Promise<boolean> {
  const path = join(stateDir, FILE);
  if (!existsSync(path)) return false;
  await removeDurably(path);
  return true;
}
