import { type checkServerIdentity, rootCertificates } from 'node:tls';
import { earlierMs, pemEndsMs } from '../base/certificates.ts';
import { codeOf } from '../base/errors.ts';
import type { Redactor } from '../base/redactor.ts';
import { readRegularFile } from '../base/regular-file.ts';
import { retryable } from './broker-error.ts';
import type { BrokerSpec } from './broker-spec.ts';
import type { NatsSpec } from './nats/nats-spec.ts';

/** Settings of an MQTT or NATS source that contain or name secrets and certificates. */
type CredentialSpec = Partial<BrokerSpec & NatsSpec>;

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
  spec: CredentialSpec,
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
  const addresses = [spec.url ?? '', ...(spec.servers ?? [])].map((address) => URL.parse(address));
  const login = addresses.find((address) => address?.username || address?.password);
  const fromAddress = (text: string | undefined) => (text ? decodeURIComponent(text) : undefined);
  // Editors often append a line feed to the file.
  const secret = password?.replace(/\r?\n$/, '');
  // In NATS addresses, a user name without a password is a token.
  const inAddresses = addresses.map((address) => address?.password || (spec.servers && address?.username));
  // A creds file contains a user JWT, which is sent to the server, and a key, which is not.
  const inCreds = creds?.split(/\s+/).filter((word) => word.length > 20 && !word.startsWith('-')) ?? [];
  redactor.configure([secret, ...inAddresses, ...inAddresses.map(fromAddress), ...inCreds]);
  const shared = own === undefined ? await read(platformCaFile) : undefined;
  return {
    username: spec.username ?? fromAddress(login?.username),
    password: secret ?? fromAddress(login?.password),
    ca: own ?? (shared === undefined ? undefined : [...rootCertificates, shared]),
    cert,
    key,
    creds,
    endsMs: [own, shared, cert].map((pem) => (pem === undefined ? undefined : pemEndsMs(pem))).reduce(earlierMs),
  };
}

async function readText(name: string, file: string): Promise<string> {
  try {
    return (await readRegularFile(file)).toString();
  } catch (error) {
    const code = codeOf(error);
    const reason = code === 'ENOTREG' ? 'not a regular file' : code;
    const hint = `Allow the service user to read ${file}, or set another file in tags.yaml.`;
    throw retryable('broker.file', `cannot read ${file} of the broker ${name} (${reason})`, hint, error);
  }
}
