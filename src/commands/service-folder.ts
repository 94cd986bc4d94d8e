import { accessSync, constants, existsSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Problem } from '../config/problem.ts';

/** The folder that the package's unit reads, and the places where a unit stands. */
const SERVICE_FOLDER = '/etc/tagferry';
const UNITS = ['/etc', '/usr/lib', '/lib'].map((place) => `${place}/systemd/system/tagferry.service`);

/** Whether the systemd service runs with this configuration folder: then its secrets come as credentials of the unit. */
export function isServiceFolder(directory: string): boolean {
  return resolve(directory) === SERVICE_FOLDER && UNITS.some((unit) => existsSync(unit));
}

/** The environment with the credentials folder that the unit loads from, for a shell that looks at what the service has. */
export function serviceEnvironment(directory: string, environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const folder = join(resolve(directory), 'credentials');
  if (environment.CREDENTIALS_DIRECTORY || !isServiceFolder(directory) || !isReadable(folder)) return environment;
  return { ...environment, CREDENTIALS_DIRECTORY: folder };
}

/** A secret that is missing here but that the service has: it is in a file that this user may not see, or encrypted to this machine. */
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
