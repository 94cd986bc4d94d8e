import { codeOf, messageOf } from '../base/errors.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import { readAdvice } from './configuration-file.ts';
import type { Place, Problems } from './problem.ts';

/** What a PEM file shall hold, by how it begins (RFC 7468). */
const BEGINNINGS = {
  certificate: { mark: /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----/, convert: 'x509' },
  key: { mark: /-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----/, convert: 'pkey' },
} as const;

/** ASN.1: a sequence whose length follows in two bytes, as certificates and keys are written in DER. */
const DER = [0x30, 0x82] as const;

/**
 * Warns of a file that is there and holds no PEM of the kind: no more than that, since others write these files, and a start in the
 * middle of it must not be the last. One that this user may not read is an error to who runs as this user. `written` is the setting.
 */
export function checkPemFile(
  name: string,
  path: string,
  kind: keyof typeof BEGINNINGS,
  written: { text: string; place: Place },
  problems: Problems,
): void {
  const { text, place } = written;
  let bytes: Buffer;
  try {
    ({ bytes } = readRegularFileSync(path));
  } catch (error) {
    const code = codeOf(error);
    if (code === 'EISDIR') problems.error(place, `${name}: ${path} is a folder`, 'name the PEM file', text);
    else if (code === 'ENOTREG' || code === 'EFBIG') {
      problems.error(place, `${name}: ${messageOf(error)}`, 'name the PEM file', text);
    } else if (code === 'EACCES' || code === 'EPERM') {
      problems.unreadable(place, `${name}: this user may not read ${path}`, placeToRead(path), text);
    }
    return;
  }
  const { mark, convert } = BEGINNINGS[kind];
  if (mark.test(bytes.toString('latin1'))) return;
  const isDer = bytes[0] === DER[0] && bytes[1] === DER[1];
  const instead = isDer
    ? `it is DER: run openssl ${convert} -in ${path} -out ${path}.pem, and name that file`
    : `name a file with a line "-----BEGIN ${kind === 'key' ? 'PRIVATE KEY' : 'CERTIFICATE'}-----"`;
  problems.warning(place, `${name}: ${path} holds no ${kind} in PEM form`, instead, text);
}

/** The service sees nothing below the folders of people, whatever the modes there are. */
function placeToRead(path: string): string {
  const isHidden = /^\/(root|home|run\/user)\//.test(path);
  return isHidden
    ? `move it to /etc/tagferry, root:tagferry and 0640: the service sees nothing below ${path.split('/').slice(0, 2).join('/')}`
    : readAdvice(path);
}
