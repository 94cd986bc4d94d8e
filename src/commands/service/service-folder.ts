import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync, lchownSync, lstatSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Problem } from '../../config/problem.ts';

const SERVICE_FOLDER = '/etc/tagferry';
const UNITS = ['/etc', '/usr/lib', '/lib'].map((place) => `${place}/systemd/system/tagferry.service`);

/** Returns whether the systemd service uses this configuration folder and loads its secrets as unit credentials. */
export function isServiceFolder(directory: string): boolean {
  return resolve(directory) === SERVICE_FOLDER && UNITS.some((unit) => existsSync(unit));
}

/** Adds the unit's credentials folder to an environment, if this user can read it. */
export function serviceEnvironment(directory: string, environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const folder = join(resolve(directory), 'credentials');
  if (environment.CREDENTIALS_DIRECTORY || !isServiceFolder(directory) || !isReadable(folder)) return environment;
  return { ...environment, CREDENTIALS_DIRECTORY: folder };
}

/**
 * Returns whether only the service can read a missing secret: it is in a file that this user cannot read, or encrypted
 * for this machine.
 */
export function isSecretElsewhere(problem: Problem, directory: string): boolean {
  if (!isMissingSecret(problem) || !isServiceFolder(directory)) return false;
  try {
    const name = problem.reason.split(' ', 1)[0]!.toLowerCase();
    return readdirSync(join(directory, 'credentials')).includes(`${name}.cred`);
  } catch {
    return true;
  }
}

export function isMissingSecret({ reason }: Problem): boolean {
  return /^(CLIENT_SECRET|TECHNICAL_PASSWORD) is missing/.test(reason);
}

function isReadable(folder: string): boolean {
  try {
    accessSync(folder, constants.R_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Changes the owner of files that root created in the state folder to the service. The service can create links in the
 * folder. Links themselves are changed, never their targets, and files with several hard links are skipped.
 */
export function giveToOwner(stateDir: string): void {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = lstatSync(stateDir, { throwIfNoEntry: false }) ?? { uid: 0, gid: 0 };
  if (uid === 0) return;
  for (const name of readdirSync(stateDir, { recursive: true, encoding: 'utf8' })) {
    const path = join(stateDir, name);
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found?.uid === 0 && (found.isDirectory() || found.nlink === 1)) lchownSync(path, uid, gid);
  }
}

/** Runs a program without a shell and returns its standard output; `undefined` if it is missing, fails or times out. */
export function outputOf(program: string, args: readonly string[]): Promise<string | undefined> {
  return new Promise((resolve) => {
    const options = { timeout: 10_000, maxBuffer: 8 * 1024 * 1024, env: { ...process.env, LC_ALL: 'C' } };
    execFile(program, args, options, (error, stdout) => resolve(error ? undefined : stdout));
  });
}
