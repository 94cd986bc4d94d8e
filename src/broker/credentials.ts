import { type checkServerIdentity, rootCertificates } from 'node:tls';
import { earlierMs, pemEndsMs } from '../base/certificates.ts';
import { codeOf } from '../base/errors.ts';
import type { Redactor } from '../base/redactor.ts';
import { readRegularFile } from '../base/regular-file.ts';
import { retryable } from './broker-error.ts';
import type { BrokerSpec, NatsSpec } from './broker-spec.ts';

/** Data that a connection requires in addition to the address. Certificates and keys are PEM. */
export interface Credentials {
  username?: string | undefined;
  password?: string | undefined;
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
 * Reads the credentials of a source, for each connection, so that a renewed certificate or password applies to the next
 * one. `platformCaFile` is PLATFORM_CA, which is used with the public CAs if the source does not configure `ca`. Throws
 * `broker.file`. Registers the secrets with `redactor`, which removes them from text sent by the broker.
 */
export async function readCredentials(
  name: string,
  spec: Partial<BrokerSpec & NatsSpec>,
  platformCaFile: string | undefined,
  redactor: Redactor,
): Promise<Credentials> {
  const read = (file: string | undefined) => (file === undefined ? undefined : readText(name, file));
  const { passwordFile, caFile, certFile, keyFile, credsFile } = spec;
  const [password, ca, cert, key, creds] = await Promise.all(
    [passwordFile, caFile, certFile, keyFile, credsFile].map(read),
  );
  const addresses = [spec.url ?? '', ...(spec.servers ?? [])].map((address) => URL.parse(address));
  const login = addresses.find((address) => address?.username || address?.password);
  const decoded = (text: string | undefined) => (text ? decodeURIComponent(text) : undefined);
  // Editors often append a line feed to the file.
  const secret = password?.replace(/\r?\n$/, '');
  // In NATS addresses, a user name without a password is a token.
  const inAddresses = addresses.map((address) => address?.password || (spec.servers && address?.username));
  // A creds file contains a user JWT, which is sent to the server, and a key, which is not.
  const inCreds = creds?.split(/\s+/).filter((word) => word.length > 20 && !word.startsWith('-')) ?? [];
  redactor.configure([secret, ...inAddresses, ...inAddresses.map(decoded), ...inCreds]);
  const platformCa = ca === undefined ? await read(platformCaFile) : undefined;
  return {
    username: spec.username ?? decoded(login?.username),
    password: secret ?? decoded(login?.password),
    ca: ca ?? (platformCa === undefined ? undefined : [...rootCertificates, platformCa]),
    cert,
    key,
    creds,
    endsMs: [ca, platformCa, cert].map((pem) => (pem === undefined ? undefined : pemEndsMs(pem))).reduce(earlierMs),
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
