import { type checkServerIdentity, rootCertificates } from 'node:tls';
import { earlierMs, pemEndsMs } from '../base/certificates.ts';
import { codeOf } from '../base/errors.ts';
import type { Redactor } from '../base/redactor.ts';
import { readRegularFile } from '../base/regular-file.ts';
import { BrokerError } from './broker-error.ts';

/** The files of a broker's source that are read for it, and its addresses, which may contain a password. */
export interface CredentialFiles {
  /** Of MQTT. */
  url?: string;
  /** Of NATS. */
  servers?: readonly string[];
  username?: string;
  passwordFile?: string;
  caFile?: string;
  certFile?: string;
  keyFile?: string;
  credsFile?: string;
}

/** What a connection needs beside the address, read anew for each: a renewed certificate or password counts at once. */
export interface Credentials {
  username?: string;
  password?: string;
  /** PEM. */
  ca?: string | string[];
  cert?: string;
  key?: string;
  /** Of NATS: a signed user and its key. */
  creds?: string;
  /** When the first of our certificates ends, by the wall clock. */
  endsMs?: number;
  checkServerIdentity?: typeof checkServerIdentity;
}

/**
 * `platformCaFile`: PLATFORM_CA, beside the public authorities, where the source names no `ca` of its own. Throws `broker.file`.
 * Registers the secrets that are sent to the broker with `redactor`, which removes them from the broker's texts.
 */
export async function readCredentials(
  name: string,
  spec: CredentialFiles,
  platformCaFile: string | undefined,
  redactor: Redactor,
): Promise<Credentials> {
  const read = (file: string | undefined) => (file === undefined ? undefined : readText(name, file));
  const [password, own, cert, key, creds] = await Promise.all([
    read(spec.passwordFile),
    read(spec.caFile),
    read(spec.certFile),
    read(spec.keyFile),
    read(spec.credsFile),
  ]);
  const credentials = {
    // An editor ends the file with a line.
    ...(password === undefined ? {} : { password: password.replace(/\r?\n$/, '') }),
    ...(creds === undefined ? {} : { creds }),
  };
  redactor.configure(sentSecrets(spec, credentials));
  const shared = own === undefined ? await read(platformCaFile) : undefined;
  const ca = own ?? (shared === undefined ? undefined : [...rootCertificates, shared]);
  const endsMs = [own, shared, cert].map((pem) => (pem === undefined ? undefined : pemEndsMs(pem))).reduce(earlierMs);
  return {
    ...(spec.username === undefined ? {} : { username: spec.username }),
    ...credentials,
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(endsMs === undefined ? {} : { endsMs }),
  };
}

function sentSecrets({ url, servers }: CredentialFiles, { password, creds }: Credentials): (string | undefined)[] {
  const ofAddresses = [url, ...(servers ?? [])].flatMap((address) => {
    const parsed = address === undefined ? null : URL.parse(address);
    // A user name without a password is a token of NATS.
    const secret = parsed?.password || (servers && parsed?.username) || undefined;
    return secret === undefined ? [] : [secret, decodeURIComponent(secret)];
  });
  // The lines of a creds file are a signed user, which is sent, and a key.
  const ofCreds = creds?.split(/\s+/).filter((word) => word.length > 20 && !word.startsWith('-')) ?? [];
  return [password, ...ofAddresses, ...ofCreds];
}

async function readText(name: string, file: string): Promise<string> {
  try {
    return (await readRegularFile(file)).toString();
  } catch (error) {
    throw new BrokerError(`${file} of the broker ${name} cannot be read (${codeOf(error)})`, {
      code: 'broker.file',
      retryable: true,
      hint: `Give the user of the service leave to read ${file}, or name another file in tags.yaml.`,
      cause: error,
    });
  }
}
