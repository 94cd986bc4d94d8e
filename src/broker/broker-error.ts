import { codeOf, messageOf, TagferryError } from '../base/errors.ts';
import type { Redactor } from '../base/redactor.ts';

/** Reason codes for an unsupported protocol version, in MQTT 5 and 3.1.1. */
const WRONG_VERSION = [0x84, 0x01];
/** Reason codes for invalid credentials or a client that is not authorized, in MQTT 3.1.1 and 5. */
const WRONG_LOGIN = [0x04, 0x05, 0x86, 0x87, 0x8a];
/** MQTT 5 reason code for a connection that was closed because another client connected with the same client ID. */
const SESSION_TAKEN_OVER = 0x8e;

/** Error from an MQTT broker or its connection. */
export class BrokerError extends TagferryError {}

export const retryable = (code: string, message: string, hint?: string, cause?: unknown) =>
  new BrokerError(message, { code, retryable: true, hint, cause });

/** Returns the error for a broker that does not respond although the agent reads from the connection. */
export const brokerSilent = () => retryable('broker.silent', 'the broker does not respond');

/** Returns the error for bytes that violate the protocol. */
export const malformed = (what: string) => retryable('broker.malformed', `the broker sent a malformed packet: ${what}`);

/** Returns the error for a message that is too large. Not retryable. */
export const brokerTooLarge = (name: string, cause?: unknown) =>
  new BrokerError(`the message exceeds the size limit of the broker ${name}`, { code: 'broker.too_large', cause });

/** Hint for a rejected subscription. */
export const READ_ACCESS = 'Grant this client read access to the topic on the broker.';

export const notAcknowledged = (name: string, cause: unknown) =>
  retryable('broker.publish', `the broker ${name} did not acknowledge a message`, undefined, cause);

const STREAM_HINT = 'Create a stream with nats stream add, or set stream:.';

export const noStream = (subject: string, cause: unknown) =>
  retryable('broker.stream', `no stream stores ${subject}`, STREAM_HINT, cause);

export const streamNotFound = (name: string, cause: unknown) =>
  retryable('broker.stream', `the stream ${name} does not exist`, STREAM_HINT, cause);

/** Returns the error for a connection closed without a reason. */
export const brokerHungUp = (hint?: string) => retryable('broker.hung_up', 'the broker closed the connection', hint);

/** Returns the error for a connection that an MQTT broker closed. */
export function connectionEnded(reason: number): BrokerError {
  const ended = retryable('broker.ended', `the broker closed the connection (reason ${reason})`);
  if (reason !== SESSION_TAKEN_OVER) return ended;
  return retryable(
    'broker.name_taken',
    "another client connected to the broker with this gateway's client ID and took over its session, reconnecting in 60 s",
    'Run `tagferry identity new` on the copied machine, or change the client_id of its source.',
  );
}

/** Returns the error for a CONNECT that an MQTT broker rejected. */
export function clientRejected(code: number, version: 5 | 3): BrokerError {
  if (version === 5 && WRONG_VERSION.includes(code)) {
    return retryable('broker.version', 'the broker does not support MQTT 5');
  }
  const isLogin = WRONG_LOGIN.includes(code);
  return retryable(
    isLogin ? 'broker.login' : 'broker.refused',
    `the broker rejected this client (reason ${code})`,
    isLogin
      ? "Check username and password_file of the source, and this client's access rights on the broker."
      : 'Check the broker log.',
  );
}

const MESSAGE_SIZE = 'Limit the message size in the broker (message_size_limit in Mosquitto), or set version: 5.';
const CLOCK = "Check this machine's clock (`date`). If it is correct, renew the broker certificate.";
const OWN = 'Renew the cert and key files of the source.';
const AUTHORITY = "Set ca in the source to the PEM file of the broker's CA.";
const REJECTED = ["the broker rejects this gateway's certificate", OWN] as const;
const UNTRUSTED = ["the broker's CA is not trusted", AUTHORITY] as const;
/** Certificate errors by Node.js and OpenSSL code. */
const CERTIFICATE_FAULTS: Readonly<Record<string, readonly [what: string, hint: string]>> = {
  CERT_HAS_EXPIRED: ['the broker certificate has expired', CLOCK],
  CERT_NOT_YET_VALID: ['the broker certificate is not valid yet', CLOCK],
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED: ["the broker rejects this gateway's certificate: it has expired", OWN],
  ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE: REJECTED,
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN: REJECTED,
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA: ["the broker does not trust this gateway's certificate", OWN],
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: [
    'the broker requires a client certificate',
    'Add cert and key to the source.',
  ],
  ERR_TLS_CERT_ALTNAME_INVALID: [
    'the broker certificate was issued for a different host name',
    'Use a host name from the certificate in the address.',
  ],
  DEPTH_ZERO_SELF_SIGNED_CERT: ['the broker certificate is self-signed', AUTHORITY],
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
};

/** Translates errors of TLS and WebSockets to errors with a hint; returns other errors unchanged. */
export function translated(error: unknown): unknown {
  if (codeOf(error) === 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH') {
    return retryable('broker.message_too_large', 'the broker sent a message that is too large', MESSAGE_SIZE, error);
  }
  const fault = CERTIFICATE_FAULTS[codeOf(error) ?? ''];
  return fault ? retryable('broker.certificate', fault[0], fault[1], error) : error;
}

/** Returns an error message without the connection's secrets. */
export function redactedMessage(error: unknown, redactor: Redactor): string {
  return messageOf(redactor.redact(error instanceof Error ? error.message || error.name : String(error)));
}
