/** Certificate of this gateway, and the certificates of servers that it trusts. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import * as ua from 'node-opcua-client';
import { writeDurably } from '../base/durable-file.ts';
import { messageOf } from '../base/errors.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import type { Endpoint, KeyPairFiles } from './protocol.ts';

const KEY_BITS = 2048;
const TWENTY_YEARS_DAYS = 20 * 365;
const CERTIFICATE_NAMES = /^[^.].*\.(der|pem|crt|cer)$/i;
const MAX_BYTES = 64 * 1024;

/**
 * Returns the certificate that this gateway presents to servers, and the application URI in it. If none is configured,
 * uses the one in a folder and creates it if it is missing. Throws if the files are unusable.
 */
export async function ownCertificate(
  identity: Endpoint['identity'],
): Promise<KeyPairFiles & { applicationUri: string }> {
  const files = 'folder' in identity ? await createdIn(identity.folder) : identity;
  const { certFile, keyFile } = files;
  try {
    const certificate = new X509Certificate(readRegularFileSync(certFile).bytes);
    // The library opens both files by name, and would block on a FIFO.
    const key = createPrivateKey(readRegularFileSync(keyFile).bytes);
    if (!certificate.checkPrivateKey(key)) throw new Error('the key does not match the certificate');
    const applicationUri = /URI:([^,]+)/.exec(certificate.subjectAltName ?? '')?.[1];
    if (applicationUri === undefined) throw new Error('the certificate does not contain an application URI');
    return { certFile, keyFile, applicationUri };
  } catch (error) {
    throw new Error(`cannot use the certificate ${certFile} with the key ${keyFile}: ${messageOf(error)}`);
  }
}

/** The key is written first, so that a crash leaves either both files or no certificate. */
async function createdIn(folder: string): Promise<KeyPairFiles> {
  const files = { certFile: join(folder, 'own-certificate.pem'), keyFile: join(folder, 'own-key.pem') };
  if (existsSync(files.certFile) && existsSync(files.keyFile)) return files;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const { privateKey } = await ua.crypto_utils.generateKeyPair(KEY_BITS);
  const { privPem } = await ua.crypto_utils.privateKeyToPEM(privateKey);
  const host = hostname();
  const { cert } = await ua.crypto_utils.createSelfSignedCertificate({
    privateKey,
    subject: `CN=tagferry ${host}`,
    dns: [host],
    applicationUri: `urn:${host}:tagferry`,
    validity: TWENTY_YEARS_DAYS,
    purpose: ua.crypto_utils.CertificatePurpose.ForApplication,
  });
  const ending = `.${process.pid}.tmp`;
  await writeDurably(files.keyFile, privPem, { ending });
  await writeDurably(files.certFile, cert, { ending, mode: 0o644 });
  return files;
}

async function nothing(): Promise<void> {}

/**
 * Returns a certificate store for node-opcua. The store only checks certificates. `folder` contains one trusted server
 * certificate per file and is read for each connection. A server is trusted only with an identical certificate; CAs and
 * revocation lists are not used.
 */
export function trustStore(folder: string) {
  const store = {
    /** Latest rejected certificate. */
    rejected: undefined as Buffer | undefined,
    referenceCounter: 0,
    initialize: nothing,
    dispose: nothing,
    checkCertificate: check,
    getTrustStatus: check,
    // Called for this gateway's certificate.
    verifyCertificate: async () => 'Good',
    trustCertificate: nothing,
    rejectCertificate: nothing,
    addIssuer: nothing,
    addRevocationList: nothing,
  };
  async function check(certificates: Buffer | Buffer[]): Promise<ua.StatusCode> {
    const [shown] = Array.isArray(certificates) ? certificates : ua.crypto_utils.split_der(certificates);
    if (shown !== undefined && isTrusted(folder, shown)) return ua.StatusCodes.Good;
    store.rejected = shown;
    return ua.StatusCodes.BadCertificateUntrusted;
  }
  return store;
}

function isTrusted(folder: string, certificate: Buffer): boolean {
  if (!existsSync(folder)) return false;
  const names = readdirSync(folder).filter((name) => CERTIFICATE_NAMES.test(name));
  return names.some((name) => derOf(join(folder, name))?.equals(certificate));
}

/** Returns `undefined` for a file that cannot be read. */
function derOf(file: string): Buffer | undefined {
  try {
    const { bytes } = readRegularFileSync(file, MAX_BYTES);
    const isPem = bytes.includes('-----BEGIN CERTIFICATE-----');
    return isPem ? ua.crypto_utils.convertPEMtoDER(bytes.toString('latin1')) : bytes;
  } catch {
    return undefined;
  }
}
