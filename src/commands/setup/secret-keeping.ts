import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isServiceFolder } from '../service-folder.ts';
import { writeWhole } from './configuration-files.ts';

/** The secrets, by the names that systemd and `KEY_FILE` know them by. */
export type Secrets = Readonly<Record<'client_secret' | 'technical_password', string>>;

const DROP_IN = '/etc/systemd/system/tagferry.service.d/credentials.conf';

export interface KeptSecrets {
  /** For people: where they are now. */
  where: string;
  /** Lines that agent.env needs to find them. */
  env: ReadonlyMap<string, string>;
}

/**
 * Hands the secrets to `systemd-creds` (TPM or host key) where this is the service's folder and that works, else keeps them in
 * files of 0600. The service's unit loads those itself; elsewhere agent.env names them.
 */
export async function keepSecrets(
  directory: string,
  secrets: Secrets,
  how: 'auto' | 'systemd' | 'files',
): Promise<KeptSecrets> {
  const folder = join(directory, 'credentials');
  const isService = isServiceFolder(directory);
  // A line of the old kind beside the new one would be two origins of one key.
  const env = new Map<string, string>();
  for (const name of Object.keys(secrets)) {
    env.set(name.toUpperCase(), '');
    env.set(`${name.toUpperCase()}_FILE`, '');
  }
  // The service may pass through its own and see that a file in it was changed; it may neither list nor read it.
  mkdirSync(folder, { recursive: true, mode: isService ? 0o711 : 0o700 });
  if (how === 'systemd' || (how === 'auto' && isService)) {
    const encrypted = await encryptAll(folder, secrets);
    if (encrypted) {
      for (const name of Object.keys(secrets)) rmSync(join(folder, name), { force: true });
      return { where: `encrypted to this machine in ${folder}, for the service alone`, env };
    }
  }
  // A unit that is told to decrypt a file that is gone does not start.
  if (isService && existsSync(DROP_IN)) {
    rmSync(DROP_IN);
    await run('systemctl', ['daemon-reload'], '');
  }
  for (const [name, secret] of Object.entries(secrets)) {
    const path = join(folder, name);
    writeWhole(path, `${secret}\n`, 0o600);
    chmodSync(path, 0o600);
    rmSync(`${path}.cred`, { force: true });
    if (!isService) env.set(`${name.toUpperCase()}_FILE`, `credentials/${name}`);
  }
  return { where: `in ${folder}, readable by their owner alone (0600)`, env };
}

async function encryptAll(folder: string, secrets: Secrets): Promise<boolean> {
  const written: string[] = [];
  for (const [name, secret] of Object.entries(secrets)) {
    const bytes = await encrypt(name, secret);
    if (!bytes) {
      for (const path of written) rmSync(path, { force: true });
      return false;
    }
    const path = join(folder, `${name}.cred`);
    writeWhole(path, bytes, 0o600);
    written.push(path);
  }
  const lines = Object.keys(secrets).map((name) => `LoadCredentialEncrypted=${name}:${join(folder, `${name}.cred`)}`);
  writeWhole(DROP_IN, `# Written by tagferry setup.\n[Service]\n${lines.join('\n')}\n`, 0o644);
  await run('systemctl', ['daemon-reload'], '');
  return true;
}

/** The encrypted credential; `undefined` where there is no systemd-creds, or no key to encrypt with. */
async function encrypt(name: string, secret: string): Promise<Buffer | undefined> {
  return run('systemd-creds', ['encrypt', `--name=${name}`, '-', '-'], secret);
}

/** The secret goes by standard input: arguments can be seen by everyone. */
function run(program: string, args: readonly string[], input: string): Promise<Buffer | undefined> {
  return new Promise((resolve) => {
    const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'ignore'], timeout: 30_000 });
    const chunks: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
    child.on('error', () => resolve(undefined));
    child.on('close', (code) => resolve(code === 0 ? Buffer.concat(chunks) : undefined));
    child.stdin.on('error', () => {});
    child.stdin.end(input);
  });
}
