/** Credentials that systemd-creds encrypted to this machine: on another nobody can read them, so that they travel as they are. */
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { TagferryError } from '../../base/errors.ts';

/** By name, as they were given to systemd-creds. Throws `backup.credential` where one cannot be decrypted. */
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
        new TagferryError(`the credential ${path} cannot be decrypted here`, {
          code: 'backup.credential',
          hint: 'Use sudo on the machine that encrypted it; or leave all secrets out with --without-secrets, and give them to `tagferry setup` afterwards.',
        }),
      );
    });
  });
}
