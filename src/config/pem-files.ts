import { codeOf, messageOf } from '../base/errors.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import { readAdvice } from './configuration-file.ts';
import type { Place, Problems } from './problem.ts';

/** First line of a PEM file by kind (RFC 7468). */
const BEGINNINGS = {
  certificate: { mark: /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----/, convert: 'x509' },
  key: { mark: /-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----/, convert: 'pkey' },
} as const;

/** ASN.1 sequence with a two-byte length, the start of DER certificates and keys. */
const DER = [0x30, 0x82] as const;

/**
 * Warns about an existing file that does not contain PEM of the expected kind. This is only a warning, because another
 * program may be rewriting the file during startup. A folder, device or oversized file is an error. Reports a file that
 * this user cannot read. `written` is the text of the setting.
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
    if (code === 'EISDIR') problems.error(place, `${name}: ${path} is a folder`, 'specify the PEM file', text);
    else if (code === 'ENOTREG' || code === 'EFBIG') {
      problems.error(place, `${name}: ${messageOf(error)}`, 'specify the PEM file', text);
    } else if (code === 'EACCES' || code === 'EPERM') {
      problems.unreadable(place, `${name}: permission denied for this user: ${path}`, placeToRead(path), text);
    }
    return;
  }
  const { mark, convert } = BEGINNINGS[kind];
  if (mark.test(bytes.toString('latin1'))) return;
  const isDer = bytes[0] === DER[0] && bytes[1] === DER[1];
  const instead = isDer
    ? `convert it from DER: run openssl ${convert} -in ${path} -out ${path}.pem, and use that file`
    : `use a file with a line "-----BEGIN ${kind === 'key' ? 'PRIVATE KEY' : 'CERTIFICATE'}-----"`;
  problems.warning(place, `${name}: ${path} contains no ${kind} in PEM format`, instead, text);
}

/** Returns advice for a path in a home folder, which the service cannot access regardless of file modes. */
function placeToRead(path: string): string {
  const isHidden = /^\/(root|home|run\/user)\//.test(path);
  return isHidden
    ? `move it to /etc/tagferry, root:tagferry and 0640: the service cannot access files in ${path.split('/').slice(0, 2).join('/')}`
    : readAdvice(path);
}
