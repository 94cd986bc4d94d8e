import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { CHECKOUT } from '../host/made-once.ts';

const run = promisify(execFile);

/** Creates an apt repository as scripts/release does, signed with a new key. `gnupg`: a folder for the key. */
export async function makeRepository(paths: {
  deb: string;
  repository: string;
  keyring: string;
  gnupg: string;
}): Promise<void> {
  const { deb, repository, keyring, gnupg } = paths;
  mkdirSync(join(repository, 'pool'), { recursive: true });
  copyFileSync(deb, join(repository, 'pool', basename(deb)));
  const seconds = String(Math.floor(Date.now() / 1_000));
  await run(join(CHECKOUT, 'scripts/release.d/apt-index'), [repository, seconds]);
  mkdirSync(gnupg, { mode: 0o700 });
  const gpg = (...args: string[]) =>
    run('gpg', ['--batch', '--quiet', ...args], { env: { ...process.env, GNUPGHOME: gnupg } });
  await gpg('--passphrase', '', '--quick-generate-key', 'release@tagferry.invalid', 'ed25519', 'sign', 'never');
  await gpg('--export', '--output', keyring);
  const stable = join(repository, 'dists/stable');
  await gpg('--clearsign', '--output', join(stable, 'InRelease'), join(stable, 'Release'));
  await run('gpgconf', ['--kill', 'all'], { env: { ...process.env, GNUPGHOME: gnupg } });
}
