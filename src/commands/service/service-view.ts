import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { isServiceFolder, outputOf } from './service-folder.ts';

/**
 * Output of a command that ran as the service, which means in a transient unit with the user, credentials, environment
 * and sandboxing of tagferry.service. Unlike root, the command can read, bind and write only what the service can.
 */
export interface ServiceView {
  status: number;
  stdout: string;
}

/** Set in the transient unit, so that the command does not start another transient unit. */
const MARK = 'TAGFERRY_VIEW';
const TIMEOUT_MS = 150_000;

/**
 * Unit settings that determine the service's access. Folders that systemd creates and removes are excluded, because the
 * running service uses them.
 */
const COPIED =
  /^(User|Group|SupplementaryGroups|Environment|EnvironmentFile|PassEnvironment|UnsetEnvironment|(Load|Set|Import)Credential(Encrypted)?|Protect(System|Home|Proc)|Private(Tmp|Devices|Users|Network)|Device(Allow|Policy)|CapabilityBoundingSet|AmbientCapabilities|NoNewPrivileges|Read(Write|Only)Paths|InaccessiblePaths|Bind(ReadOnly)?Paths|TemporaryFileSystem|RestrictAddressFamilies|IPAddress(Allow|Deny)|SocketBind(Allow|Deny)|UMask)$/;

/** Returns whether this process runs as the service in a transient unit. */
export function isServiceView(environment: NodeJS.ProcessEnv): boolean {
  return environment[MARK] === 'service';
}

/** Returns whether a command should run as the service: it runs as root and uses the service's folder. */
export function needsServiceView(directory: string, environment: NodeJS.ProcessEnv): boolean {
  return isServiceFolder(directory) && !isServiceView(environment) && process.getuid?.() === 0;
}

/**
 * Runs a command as the service, without its standard error. Returns `undefined` if systemd is missing or systemd-run
 * fails.
 */
export async function runAsService(args: readonly string[], directory: string): Promise<ServiceView | undefined> {
  if (!existsSync('/run/systemd/system')) return undefined;
  const unit = await outputOf('systemctl', ['cat', '--no-pager', 'tagferry.service']);
  if (unit === undefined) return undefined;
  const options = ['--quiet', '--wait', '--pipe', '--collect', '--service-type=exec', `--setenv=${MARK}=service`];

  const folders = ['--setenv=STATE_DIRECTORY=/var/lib/tagferry', '--setenv=RUNTIME_DIRECTORY=/run/tagferry'];
  const writable = [
    '-p',
    'ReadWritePaths=-/var/lib/tagferry -/run/tagferry',
    '-p',
    `RuntimeMaxSec=${TIMEOUT_MS / 1000}`,
  ];
  const properties = serviceSettings(unit).flatMap((line) => ['-p', line]);
  const program = [process.execPath, process.argv[1]!, '--config', directory, ...args];
  return new Promise((resolve) => {
    execFile(
      'systemd-run',
      [...options, ...folders, ...properties, ...writable, '--', ...program],
      { timeout: TIMEOUT_MS, maxBuffer: 32 * 1024 * 1024 },
      (error, stdout) => {
        const status = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
        // systemd-run itself prints nothing, so empty output means that the command did not run.
        resolve(stdout === '' ? undefined : { status, stdout });
      },
    );
  });
}

/**
 * Returns the copied settings of a unit and its drop-ins as `Name=value`, in order. An empty value resets the previous
 * ones.
 */
export function serviceSettings(unit: string): string[] {
  const found: string[] = [];
  let section = '';
  for (const line of unit
    .replaceAll(/\\\n/g, ' ')
    .split('\n')
    .map((one) => one.trim())) {
    if (line.startsWith('#') || line.startsWith(';')) continue;
    const header = /^\[(.*)\]$/.exec(line)?.[1];
    if (header !== undefined) section = header;
    const name = /^([A-Za-z]+)\s*=/.exec(line)?.[1];
    if (section === 'Service' && name !== undefined && COPIED.test(name)) found.push(line.replace(/\s*=\s*/, '='));
  }
  return found;
}
