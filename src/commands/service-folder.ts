import { accessSync, constants, existsSync } from 'node:fs';
import { join, resolve } from 'node:path';

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

function isReadable(folder: string): boolean {
  try {
    accessSync(folder, constants.R_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
