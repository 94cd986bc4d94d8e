import { crypto_utils, type UserIdentityInfo, UserTokenType } from 'node-opcua-client';
import { Redactor } from '../base/redactor.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import type { Endpoint } from './protocol.ts';

const MAX_PASSWORD_BYTES = 4096;

/** Returns the user of a session. Throws if its files cannot be read. */
export function userOf({ user }: Endpoint): UserIdentityInfo {
  if (user === undefined) return { type: UserTokenType.Anonymous };
  if ('certFile' in user) {
    return {
      type: UserTokenType.Certificate,
      certificateData: crypto_utils.convertPEMtoDER(readRegularFileSync(user.certFile).bytes.toString('latin1')),
      privateKey: readRegularFileSync(user.keyFile).bytes.toString('latin1'),
    };
  }
  return { type: UserTokenType.UserName, userName: user.name, password: passwordOf(user.passwordFile) };
}

function passwordOf(file: string | undefined): string {
  if (file === undefined) return '';
  return readRegularFileSync(file, MAX_PASSWORD_BYTES)
    .bytes.toString()
    .replace(/\r?\n$/, '');
}

/** Redacts the password that was sent to the server. */
export function redactorOf({ user }: Endpoint): Redactor {
  const redactor = new Redactor();
  try {
    if (user && 'name' in user) redactor.configure([passwordOf(user.passwordFile)]);
  } catch {
    // An unreadable password was not sent.
  }
  return redactor;
}
