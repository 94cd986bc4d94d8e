import { X509Certificate } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { crypto_utils } from 'node-opcua-client';
import type { Endpoint, KeyPairFiles } from './protocol.ts';

const KEY_BITS = 2048;
const TWENTY_YEARS_DAYS = 20 * 365;

export interface OwnCertificate extends KeyPairFiles {
  /** As the certificate names this application: servers compare both. */
  applicationUri: string;
}

/** What this gateway shows to servers; made where nobody gave one and none is there yet. */
export async function ownCertificate(identity: Endpoint['identity']): Promise<OwnCertificate> {
  const files = 'folder' in identity ? await kept(identity.folder) : identity;
  const { subjectAltName = '' } = new X509Certificate(readFileSync(files.certFile));
  const applicationUri = /URI:([^,]+)/.exec(subjectAltName)?.[1];
  if (applicationUri === undefined) {
    throw new Error(`${files.certFile} names no application (a URI among its alternative names)`);
  }
  return { ...files, applicationUri };
}

/** The certificate is put there last: where it is, the key is. */
async function kept(folder: string): Promise<KeyPairFiles> {
  const files = { certFile: join(folder, 'own-certificate.pem'), keyFile: join(folder, 'own-key.pem') };
  if (existsSync(files.certFile)) return files;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const { privateKey } = await crypto_utils.generateKeyPair(KEY_BITS);
  const { privPem } = await crypto_utils.privateKeyToPEM(privateKey);
  const host = hostname();
  const { cert } = await crypto_utils.createSelfSignedCertificate({
    privateKey,
    subject: `CN=tagferry ${host}`,
    dns: [host],
    applicationUri: `urn:${host}:tagferry`,
    validity: TWENTY_YEARS_DAYS,
    purpose: crypto_utils.CertificatePurpose.ForApplication,
  });
  put(files.keyFile, privPem, 0o600);
  put(files.certFile, cert, 0o644);
  return files;
}

function put(file: string, text: string, mode: number): void {
  const beside = `${file}.new`;
  writeFileSync(beside, text, { mode });
  renameSync(beside, file);
}
