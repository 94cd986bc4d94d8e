/**
 * Proof that root has confirmed a write: a file in a folder to which only root can write. `tagferry write` creates the
 * file from its own arguments and uses no name or content from the control socket, because another process of the
 * service's user could have opened the socket. A proof is valid for one write, for a minute.
 */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, lstat, mkdir, open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { codeOf, TagferryError } from '../base/errors.ts';

export interface ProvenWrite {
  tag: string;
  key: string;
  group?: string | undefined;
  value: number;
  /** Operator's user name. */
  user: string;
}

export interface Proof extends ProvenWrite {
  /** End of validity, by the monotonic system clock, which is the same in all processes. */
  untilMs: number;
}

export const PROOF_FOLDER = '/run/tagferry-writes';
const VALID_MS = 60_000;
const MAX_BYTES = 4_096;
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Creates a proof. Requires root. Returns its ID, and a function that removes it. */
export async function prove(
  write: ProvenWrite,
  validMs: number = VALID_MS,
): Promise<{ id: string; remove: () => Promise<void> }> {
  await mkdir(PROOF_FOLDER, { mode: 0o755 }).then(
    () => chmod(PROOF_FOLDER, 0o755),
    (error: unknown) => (codeOf(error) === 'EEXIST' ? undefined : Promise.reject(error)),
  );
  const folder = await lstat(PROOF_FOLDER);
  if (!folder.isDirectory() || folder.uid !== 0 || (folder.mode & 0o022) !== 0) {
    const hint = `Run \`rm -r ${PROOF_FOLDER}\` as root.`;
    throw new TagferryError(`${PROOF_FOLDER} is not a folder to which only root can write`, {
      code: 'write.folder',
      retryable: false,
      hint,
    });
  }
  await removeLeftovers();
  const id = randomUUID();
  const path = join(PROOF_FOLDER, id);
  const remove = () => rm(path, { force: true });
  const proof: Proof = { ...write, untilMs: systemClock.monotonicMs() + validMs };
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(JSON.stringify(proof));
    await file.chmod(0o444);
  } catch (error) {
    await remove();
    throw error;
  } finally {
    await file.close();
  }
  return { id, remove };
}

/** Removes expired proofs of commands that were killed. */
async function removeLeftovers(): Promise<void> {
  for (const name of await readdir(PROOF_FOLDER)) {
    const path = join(PROOF_FOLDER, name);
    // An empty file is being written by another command.
    const isEmpty = await lstat(path).then(
      ({ size }) => size === 0,
      () => true,
    );
    if (!isEmpty && (await proofOf(name)) === undefined) await rm(path, { force: true });
  }
}

/** Returns the write that root has confirmed with this ID; `undefined` if there is none, or if it is too old. */
export async function proofOf(id: string): Promise<Proof | undefined> {
  if (!ID.test(id)) return undefined;
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(join(PROOF_FOLDER, id), flags).catch(() => undefined);
  if (file === undefined) return undefined;
  try {
    const stats = await file.stat();
    if (!stats.isFile() || stats.uid !== 0 || stats.size === 0 || stats.size > MAX_BYTES) return undefined;
    const proof = JSON.parse(await file.readFile('utf8')) as Proof;
    return proof.untilMs > systemClock.monotonicMs() ? proof : undefined;
  } finally {
    await file.close();
  }
}
