import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { KEY_NAMES, type KeyName, settingKey } from '../../config/setting-keys.ts';
import { isServiceFolder } from '../service-folder.ts';
import { readText, writeWhole } from './configuration-files.ts';

/** Secrets by the names that systemd and `KEY_FILE` know them by: a key of agent.env in lower case. */
export type Secrets = Readonly<Record<string, string | Buffer>>;

/** What the unit loads without being told. */
const OF_THE_UNIT: readonly string[] = ['client_secret', 'technical_password'];
const DROP_IN = '/etc/systemd/system/tagferry.service.d/credentials.conf';

export interface KeptSecrets {
  isEncrypted: boolean;
  /** For people: where they are now. */
  where: string;
  /** Lines that agent.env needs to find them. */
  env: ReadonlyMap<string, string>;
  /** Comments that name the file of a secret, beside its empty key. */
  notes: ReadonlyMap<string, string>;
}

/**
 * Hands the secrets to `systemd-creds` (TPM or host key) where this is the service's folder and that works, else keeps them in
 * files of 0600. The service's unit loads those itself, or by a drop-in; elsewhere agent.env names them. Secrets that were kept
 * before and are not among these stay where they are.
 */
export async function keepSecrets(
  directory: string,
  secrets: Secrets,
  how: 'auto' | 'systemd' | 'files',
): Promise<KeptSecrets> {
  const folder = join(resolve(directory), 'credentials');
  const isService = isServiceFolder(directory);
  // A line of the old kind beside the new one would be two origins of one key.
  const env = new Map<string, string>();
  for (const key of Object.keys(secrets).map((name) => name.toUpperCase())) {
    if (!isSecretKey(key)) continue;
    env.set(key, '');
    env.set(`${key}_FILE`, '');
  }
  // The service may pass through its own and see that a file in it was changed; it may neither list nor read it.
  mkdirSync(folder, { recursive: true, mode: isService ? 0o711 : 0o700 });
  if ((how === 'systemd' || (how === 'auto' && isService)) && (await encryptAll(folder, secrets))) {
    for (const name of Object.keys(secrets)) rmSync(join(folder, name), { force: true });
    await writeDropIn(folder);
    return {
      isEncrypted: true,
      where: `encrypted to this machine in ${folder}, for the service alone`,
      env,
      notes: notesOf((name) => `encrypted in ${join(folder, name)}.cred`),
    };
  }
  for (const [name, secret] of Object.entries(secrets)) {
    const path = join(folder, name);
    writeWhole(path, typeof secret === 'string' ? `${secret}\n` : secret, 0o600);
    chmodSync(path, 0o600);
    rmSync(`${path}.cred`, { force: true });
    if (!isService && env.has(name.toUpperCase())) env.set(`${name.toUpperCase()}_FILE`, `credentials/${name}`);
  }
  if (isService) await writeDropIn(folder);
  return {
    isEncrypted: false,
    where: `in ${folder}, readable by their owner alone (0600)`,
    env,
    notes: notesOf((name) => `in ${join(folder, name)}`),
  };

  function notesOf(words: (name: string) => string): Map<string, string> {
    const names = Object.keys(secrets).filter((name) => env.has(name.toUpperCase()));
    return new Map(names.map((name) => [name.toUpperCase(), words(name)]));
  }
}

function isSecretKey(key: string): boolean {
  return KEY_NAMES.includes(key as KeyName) && settingKey(key as KeyName).secret === true;
}

/** What the unit has to be told of the folder as it is now: a unit that is told to decrypt a file that is gone does not start. */
async function writeDropIn(folder: string): Promise<void> {
  const names = readdirSync(folder).sort();
  const lines = names.flatMap((name) => {
    const path = join(folder, name);
    if (name.endsWith('.cred')) return [`LoadCredentialEncrypted=${name.slice(0, -'.cred'.length)}:${path}`];
    const isOther = isSecretKey(name.toUpperCase()) && name === name.toLowerCase() && !OF_THE_UNIT.includes(name);
    // The second is what the unit gets where the file is gone: without it such a unit does not start.
    return isOther ? [`LoadCredential=${name}:${path}`, `SetCredential=${name}:\\n`] : [];
  });
  const text = `# Written by tagferry setup.\n[Service]\n${lines.join('\n')}\n`;
  if (readText(DROP_IN) === (lines.length === 0 ? undefined : text)) return;
  if (lines.length === 0) rmSync(DROP_IN, { force: true });
  else writeWhole(DROP_IN, text, 0o644);
  await run('systemctl', ['daemon-reload'], '');
}

/** Nothing is written where one of them cannot be encrypted. */
async function encryptAll(folder: string, secrets: Secrets): Promise<boolean> {
  const encrypted = new Map<string, Buffer>();
  for (const [name, secret] of Object.entries(secrets)) {
    const bytes = await encrypt(name, secret);
    if (!bytes) return false;
    encrypted.set(join(folder, `${name}.cred`), bytes);
  }
  for (const [path, bytes] of encrypted) writeWhole(path, bytes, 0o600);
  return true;
}

/** The encrypted credential; `undefined` where there is no systemd-creds, or no key to encrypt with. */
async function encrypt(name: string, secret: string | Buffer): Promise<Buffer | undefined> {
  return run('systemd-creds', ['encrypt', `--name=${name}`, '-', '-'], secret);
}

/** The secret goes by standard input: arguments can be seen by everyone. */
function run(program: string, args: readonly string[], input: string | Buffer): Promise<Buffer | undefined> {
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
