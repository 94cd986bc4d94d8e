/** Certificate of this gateway, and the certificates of servers that it trusts. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { mkdirSync, readdirSync, renameSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { crypto_utils, type StatusCode, StatusCodes } from 'node-opcua-client';
import { writeDurably } from '../base/durable-file.ts';
import { codeOf } from '../base/errors.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import type { Endpoint, KeyPairFiles } from './protocol.ts';

const KEY_BITS = 2048;
const TWENTY_YEARS_DAYS = 20 * 365;

export interface OwnCertificate extends KeyPairFiles {
  /** Application URI in the certificate. Servers compare it with the application's URI. */
  applicationUri: string;
}

/**
 * Returns the certificate that this gateway presents to servers. If none is configured, uses a certificate in a folder
 * and creates it if it is missing or unusable. Throws if a configured certificate is unusable.
 */
export async function ownCertificate(identity: Endpoint['identity']): Promise<OwnCertificate> {
  if (!('folder' in identity)) return { ...identity, applicationUri: applicationUriOf(identity) };
  const { folder } = identity;
  const files = { certFile: join(folder, 'own-certificate.pem'), keyFile: join(folder, 'own-key.pem') };
  try {
    return readPair(files);
  } catch (error) {
    if (codeOf(error) === 'EACCES' || codeOf(error) === 'EPERM') throw error;
    setAside(files.certFile);
    setAside(files.keyFile);
    await createPair(folder, files);
    return readPair(files);
  }
}

/** Throws if the files do not contain a certificate with an application URI and the matching key. */
function readPair(files: KeyPairFiles): OwnCertificate {
  const certificate = new X509Certificate(readRegularFileSync(files.certFile).bytes);
  const key = createPrivateKey(readRegularFileSync(files.keyFile).bytes);
  if (!certificate.checkPrivateKey(key))
    throw new Error(`${files.keyFile} does not match the certificate ${files.certFile}`);
  return { ...files, applicationUri: applicationUriOf(files) };
}

function applicationUriOf({ certFile, keyFile }: KeyPairFiles): string {
  // The library opens both files by name, and would block on a FIFO.
  readRegularFileSync(keyFile);
  const { subjectAltName = '' } = new X509Certificate(readRegularFileSync(certFile).bytes);
  const applicationUri = /URI:([^,]+)/.exec(subjectAltName)?.[1];
  if (applicationUri === undefined)
    throw new Error(`${certFile} does not contain an application URI in its subject alternative names`);
  return applicationUri;
}

/** Renames an unusable file. */
function setAside(file: string): void {
  try {
    renameSync(file, `${file}.unusable`);
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
}

async function createPair(folder: string, { certFile, keyFile }: KeyPairFiles): Promise<void> {
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
  const ending = `.${process.pid}.tmp`;
  await writeDurably(keyFile, privPem, { ending });
  await writeDurably(certFile, cert, { ending, mode: 0o644 });
}

/** The server certificate is not in the trust folder. */
export class UntrustedServer extends Error {
  readonly certificate: Buffer;

  constructor(certificate: Buffer) {
    super('server certificate is not trusted');
    this.certificate = certificate;
  }
}

type Certificates = Buffer | Buffer[];

const NAMES = /\.(der|pem|crt|cer)$/i;
const MAX_BYTES = 64 * 1024;

/**
 * Folder with one trusted server certificate per file, read for each connection. A server is trusted only with an
 * identical certificate; CAs and revocation lists are not used.
 */
export class TrustFolder {
  readonly #folder: string;
  /** Latest rejected certificate. */
  rejected: Buffer | undefined;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Returns a certificate store for node-opcua. The store only checks certificates. */
  asStore() {
    const check = async (certificates: Certificates): Promise<StatusCode> => this.#check(certificates);
    return {
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
  }

  #check(certificates: Certificates): StatusCode {
    const [shown] = Array.isArray(certificates) ? certificates : crypto_utils.split_der(certificates);
    if (shown !== undefined && this.#has(shown)) return StatusCodes.Good;
    this.rejected = shown;
    return StatusCodes.BadCertificateUntrusted;
  }

  #has(certificate: Buffer): boolean {
    try {
      const names = readdirSync(this.#folder).filter((name) => NAMES.test(name) && !name.startsWith('.'));
      return names.some((name) => derOf(join(this.#folder, name))?.equals(certificate));
    } catch {
      return false;
    }
  }
}

async function nothing(): Promise<void> {}

function derOf(file: string): Buffer | undefined {
  try {
    const { bytes } = readRegularFileSync(file, MAX_BYTES);
    return bytes.includes('-----BEGIN CERTIFICATE-----')
      ? crypto_utils.convertPEMtoDER(bytes.toString('latin1'))
      : bytes;
  } catch {
    return undefined;
  }
}
