import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { crypto_utils, type StatusCode, StatusCodes } from 'node-opcua-client';
import { readRegularFileSync } from '../base/regular-file.ts';

type Certificates = Buffer | Buffer[];

const NAMES = /\.(der|pem|crt|cer)$/i;
const MAX_BYTES = 64 * 1024;

/**
 * The certificates of servers that somebody has looked at, one a file, read anew at each connection. A server is trusted when it shows one of
 * them, byte for byte: no authority vouches for another, so that nothing has to be asked whether it was revoked.
 */
export class TrustFolder {
  readonly #folder: string;
  /** What was refused last. */
  refused: Buffer | undefined;

  constructor(folder: string) {
    this.#folder = folder;
  }

  has(certificate: Buffer): boolean {
    return this.#trusted().some((one) => one.equals(certificate));
  }

  /** The same as node-opcua asks it: who trusts whom is decided by people alone, so that it has nothing to keep. */
  asStore() {
    const check = async (certificates: Certificates): Promise<StatusCode> => this.#check(certificates);
    return {
      referenceCounter: 0,
      initialize: nothing,
      dispose: nothing,
      checkCertificate: check,
      getTrustStatus: check,
      // Asked about this gateway's own, which is what it is.
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
    this.refused = shown;
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
