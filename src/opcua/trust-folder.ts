import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { crypto_utils, type StatusCode, StatusCodes } from 'node-opcua-client';
import { readRegularFileSync } from '../base/regular-file.ts';

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

  has(certificate: Buffer): boolean {
    return this.#trusted().some((trusted) => trusted.equals(certificate));
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
    if (shown !== undefined && this.has(shown)) return StatusCodes.Good;
    this.rejected = shown;
    return StatusCodes.BadCertificateUntrusted;
  }

  #trusted(): Buffer[] {
    let names: string[];
    try {
      names = readdirSync(this.#folder).filter((name) => NAMES.test(name) && !name.startsWith('.'));
    } catch {
      return [];
    }
    return names.flatMap((name) => derOf(join(this.#folder, name)) ?? []);
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
