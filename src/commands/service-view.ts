import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { outputOf } from './program-output.ts';
import { isServiceFolder } from './service-folder.ts';

/**
 * A verb looked at with the service's eyes: the same program once more, in a transient unit with the user, the credentials, the
 * environment and the confinement of tagferry.service. What it can read, bind and write is what the service can, so that neither the
 * permissions nor the decryption has to be judged from outside, where root may do everything.
 */
export interface ServiceView {
  status: number;
  stdout: string;
}

/** Set in there: nothing looks a second time. */
const MARK = 'TAGFERRY_VIEW';
const PATIENCE_MS = 150_000;

/**
 * What of the unit decides what it sees and may. Not the folders that systemd makes and takes away with a unit: those of the service
 * are in use.
 */
const KEPT =
  /^(User|Group|SupplementaryGroups|Environment|EnvironmentFile|PassEnvironment|UnsetEnvironment|(Load|Set|Import)Credential(Encrypted)?|Protect(System|Home|Proc)|Private(Tmp|Devices|Users|Network)|Device(Allow|Policy)|CapabilityBoundingSet|AmbientCapabilities|NoNewPrivileges|Read(Write|Only)Paths|InaccessiblePaths|Bind(ReadOnly)?Paths|TemporaryFileSystem|RestrictAddressFamilies|IPAddress(Allow|Deny)|SocketBind(Allow|Deny)|UMask)$/;

/** Whether this process is the one that looks with the service's eyes. */
export function isServiceView(environment: NodeJS.ProcessEnv): boolean {
  return environment[MARK] === 'service';
}

/** Whether it has to be looked with the service's eyes, and this user may. */
export function wantsServiceView(directory: string, environment: NodeJS.ProcessEnv): boolean {
  return isServiceFolder(directory) && !isServiceView(environment) && process.getuid?.() === 0;
}

/** Runs a verb there; `undefined` where there is no systemd, or it does not let us. The verb's standard error is dropped. */
export async function runInServiceView(args: readonly string[], directory: string): Promise<ServiceView | undefined> {
  if (!existsSync('/run/systemd/system')) return undefined;
  const unit = await outputOf('systemctl', ['cat', '--no-pager', 'tagferry.service']);
  if (unit === undefined) return undefined;
  const options = ['--quiet', '--wait', '--pipe', '--collect', '--service-type=exec', `--setenv=${MARK}=service`];
  // As the service gets them from systemd; they exist, or the verb says that they do not.
  const folders = ['--setenv=STATE_DIRECTORY=/var/lib/tagferry', '--setenv=RUNTIME_DIRECTORY=/run/tagferry'];
  const writable = [
    '-p',
    'ReadWritePaths=-/var/lib/tagferry -/run/tagferry',
    '-p',
    `RuntimeMaxSec=${PATIENCE_MS / 1000}`,
  ];
  const properties = serviceSettings(unit).flatMap((line) => ['-p', line]);
  const program = [process.execPath, process.argv[1]!, '--config', directory, ...args];
  return new Promise((resolve) => {
    execFile(
      'systemd-run',
      [...options, ...folders, ...properties, ...writable, '--', ...program],
      { timeout: PATIENCE_MS, maxBuffer: 32 * 1024 * 1024 },
      (error, stdout) => {
        const status = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
        // What it printed tells whether it ran at all: systemd-run itself prints nothing there.
        resolve(stdout === '' ? undefined : { status, stdout });
      },
    );
  });
}

/** `Name=value` of a unit and its drop-ins, in their order, as far as it is kept; an empty value takes back what stood before it. */
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
    if (section === 'Service' && name !== undefined && KEPT.test(name)) found.push(line.replace(/\s*=\s*/, '='));
  }
  return found;
}
