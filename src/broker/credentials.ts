import { type checkServerIdentity, rootCertificates } from 'node:tls';
import { earlierMs, pemEndsMs } from '../base/certificates.ts';
import { codeOf } from '../base/errors.ts';
import type { Redactor } from '../base/redactor.ts';
import { readRegularFile } from '../base/regular-file.ts';
import { BrokerError } from './broker-error.ts';

/** Files configured at a broker's source, and the broker addresses, which may contain a password. */
export interface CredentialFiles {
  /** MQTT address. */
  url?: string;
  /** NATS addresses. */
  servers?: readonly string[];
  username?: string;
  passwordFile?: string;
  caFile?: string;
  certFile?: string;
  keyFile?: string;
  credsFile?: string;
}

/**
 * Data that a connection requires in addition to the address. Read for each connection, so that a renewed certificate
 * or password applies to the next connection.
 */
export interface Credentials {
  username?: string | undefined;
  password?: string | undefined;
  /** PEM. */
  ca?: string | string[] | undefined;
  cert?: string | undefined;
  key?: string | undefined;
  /** NATS user JWT and its key. */
  creds?: string | undefined;
  /** Earliest expiry of the client certificates, as wall-clock time. */
  endsMs?: number | undefined;
  checkServerIdentity?: typeof checkServerIdentity;
}

/**
 * `platformCaFile` is PLATFORM_CA, which is used with the public CAs if the source does not configure `ca`. Throws
 * `broker.file`. Registers the secrets sent to the broker with `redactor`, which removes them from text sent by the
 * broker.
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
  // Editors often append a line feed to the file.
  const credentials = { password: password?.replace(/\r?\n$/, ''), creds };
  redactor.configure(sentSecrets(spec, credentials));
  const shared = own === undefined ? await read(platformCaFile) : undefined;
  return {
    ...credentials,
    username: spec.username,
    ca: own ?? (shared === undefined ? undefined : [...rootCertificates, shared]),
    cert,
    key,
    endsMs: [own, shared, cert].map((pem) => (pem === undefined ? undefined : pemEndsMs(pem))).reduce(earlierMs),
  };
}

function sentSecrets({ url, servers }: CredentialFiles, { password, creds }: Credentials): (string | undefined)[] {
  const ofAddresses = [url, ...(servers ?? [])].flatMap((address) => {
    const parsed = address === undefined ? null : URL.parse(address);
    // A user name without a password is a NATS token.
    const secret = parsed?.password || (servers && parsed?.username) || undefined;
    return secret === undefined ? [] : [secret, decodeURIComponent(secret)];
  });
  // A creds file contains a user JWT, which is sent to the server, and a key, which is not.
  const ofCreds = creds?.split(/\s+/).filter((word) => word.length > 20 && !word.startsWith('-')) ?? [];
  return [password, ...ofAddresses, ...ofCreds];
}

async function readText(name: string, file: string): Promise<string> {
  try {
    return (await readRegularFile(file)).toString();
  } catch (error) {
    const code = codeOf(error);
    const reason = code === 'ENOTREG' ? 'not a regular file' : code;
    throw new BrokerError(`cannot read ${file} of the broker ${name} (${reason})`, {
      code: 'broker.file',
      retryable: true,
      hint: `Allow the service user to read ${file}, or set another file in tags.yaml.`,
      cause: error,
    });
  }
}
