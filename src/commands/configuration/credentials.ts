import { execFile, spawn } from 'node:child_process';
import { chmodSync, readdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { TagferryError } from '../../base/errors.ts';
import { readSettingsLeniently } from '../../config/configuration.ts';
import { KEY_NAMES, type KeyName, settingKey } from '../../config/setting-keys.ts';
import { isServiceFolder, serviceEnvironment } from '../service/service-folder.ts';
import { makeFolder, readText, writeWhole } from './files.ts';

/** Secrets by credential name, which is the agent.env key in lower case. */
export type Secrets = Readonly<Record<string, string | Buffer>>;

/** Credentials that the shipped unit loads. */
const OF_THE_UNIT: readonly string[] = ['client_secret', 'technical_password'];
const DROP_IN = '/etc/systemd/system/tagferry.service.d/credentials.conf';

export interface KeptSecrets {
  isEncrypted: boolean;
  /** Location of the secrets, as text for messages. */
  where: string;
  /** Lines for agent.env that refer to the secrets. */
  env: ReadonlyMap<string, string>;
  /** Comments after empty keys that specify the secret's file. */
  notes: ReadonlyMap<string, string>;
}

/**
 * Encrypts the service's secrets with `systemd-creds` (TPM or host key). If encryption fails, stores the secrets in
 * files with mode 0600. The unit loads these files directly or through a drop-in; without the service, agent.env refers
 * to the files. Other stored secrets are left unchanged.
 */
export async function storeSecrets(
  directory: string,
  secrets: Secrets,
  how: 'auto' | 'systemd' | 'files',
): Promise<KeptSecrets> {
  const folder = join(resolve(directory), 'credentials');
  const isService = isServiceFolder(directory);
  // Clear both forms of a key, because setting both would be an error.
  const env = new Map<string, string>();
  for (const key of Object.keys(secrets).map((name) => name.toUpperCase())) {
    if (!isSecretKey(key)) continue;
    env.set(key, '');
    env.set(`${key}_FILE`, '');
  }
  // With this mode, the service can detect changes to known files, but cannot list the folder.
  makeFolder(folder, isService ? 0o711 : 0o700);
  if ((how === 'systemd' || (how === 'auto' && isService)) && (await encryptAll(folder, secrets))) {
    for (const name of Object.keys(secrets)) rmSync(join(folder, name), { force: true });
    await writeDropIn(folder);
    return {
      isEncrypted: true,
      where: `stored in ${folder}, encrypted for the service on this machine`,
      env,
      notes: notesOf((name) => `encrypted in ${join(folder, name)}.cred`),
    };
  }
  for (const [name, secret] of Object.entries(secrets)) {
    const path = join(folder, name);
    await writeWhole(path, typeof secret === 'string' ? `${secret}\n` : secret, 0o600);
    chmodSync(path, 0o600);
    rmSync(`${path}.cred`, { force: true });
    if (!isService && env.has(name.toUpperCase())) env.set(`${name.toUpperCase()}_FILE`, `credentials/${name}`);
  }
  if (isService) await writeDropIn(folder);
  return {
    isEncrypted: false,
    where: `stored in ${folder}, readable only by their owner (0600)`,
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

/**
 * Updates the drop-in that loads the files in the folder. A unit that refers to a missing encrypted file does not
 * start.
 */
async function writeDropIn(folder: string): Promise<void> {
  const names = readdirSync(folder).sort();
  const lines = names.flatMap((name) => {
    const path = join(folder, name);
    if (name.endsWith('.cred')) return [`LoadCredentialEncrypted=${name.slice(0, -'.cred'.length)}:${path}`];
    const isOther = isSecretKey(name.toUpperCase()) && name === name.toLowerCase() && !OF_THE_UNIT.includes(name);
    // Without the SetCredential fallback, a missing file would prevent the unit from starting.
    return isOther ? [`LoadCredential=${name}:${path}`, `SetCredential=${name}:\\n`] : [];
  });
  const text = `# Written by tagferry setup.\n[Service]\n${lines.join('\n')}\n`;
  if (readText(DROP_IN) === (lines.length === 0 ? undefined : text)) return;
  if (lines.length === 0) rmSync(DROP_IN, { force: true });
  else await writeWhole(DROP_IN, text, 0o644);
  await run('systemctl', ['daemon-reload'], '');
}

/** Writes nothing and returns false if one secret cannot be encrypted. */
async function encryptAll(folder: string, secrets: Secrets): Promise<boolean> {
  const encrypted = new Map<string, Buffer>();
  for (const [name, secret] of Object.entries(secrets)) {
    const bytes = await encrypt(name, secret);
    if (!bytes) return false;
    encrypted.set(join(folder, `${name}.cred`), bytes);
  }
  for (const [path, bytes] of encrypted) await writeWhole(path, bytes, 0o600);
  return true;
}

/** Returns `undefined` if systemd-creds or its key is missing. */
async function encrypt(name: string, secret: string | Buffer): Promise<Buffer | undefined> {
  return run('systemd-creds', ['encrypt', `--name=${name}`, '-', '-'], secret);
}

/** Passes the secret on standard input, because arguments are visible to all users. */
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

/**
 * Returns stored secrets that this user can read, by key in lower case. Excludes secrets in this shell's environment
 * and secrets encrypted on another machine.
 */
export async function storedSecrets(directory: string): Promise<Map<string, string>> {
  const { settings } = readSettingsLeniently({ directory, environment: serviceEnvironment(directory, {}) });
  const found = new Map<string, string>();
  for (const key of KEY_NAMES.filter((name) => settingKey(name).secret)) {
    const value = settings[settingKey(key).member];
    if (typeof value === 'string' && value !== '') found.set(key.toLowerCase(), value);
  }
  const encrypted = await decryptCredentials(directory).catch(() => new Map<string, Buffer>());
  for (const [name, bytes] of encrypted) found.set(name, bytes.toString('utf8').replace(/\r?\n$/, ''));
  return found;
}

/**
 * Decrypts the systemd-creds credentials, which only this machine can read. Throws `backup.credential` if decryption
 * fails.
 */
export async function decryptCredentials(directory: string): Promise<Map<string, Buffer>> {
  const folder = join(directory, 'credentials');
  const found = new Map<string, Buffer>();
  for (const file of encryptedNames(folder)) {
    const name = file.slice(0, -'.cred'.length);
    found.set(name, await decrypt(name, join(folder, file)));
  }
  return found;
}

function encryptedNames(folder: string): string[] {
  try {
    return readdirSync(folder).filter((name) => name.endsWith('.cred'));
  } catch {
    return [];
  }
}

function decrypt(name: string, path: string): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const options = { timeout: 30_000, maxBuffer: 1_100_000, encoding: 'buffer' as const };
    execFile('systemd-creds', ['decrypt', `--name=${name}`, path, '-'], options, (error, stdout) => {
      if (error === null) return resolve(stdout);
      reject(
        new TagferryError(`cannot decrypt the credential ${path} on this machine`, {
          code: 'backup.credential',
          hint: 'Use sudo on the machine that encrypted it, or omit secrets with --without-secrets and enter them in `tagferry setup` afterwards.',
        }),
      );
    });
  });
}
