import { codeOf, messageOf, TagferryError } from '../base/errors.ts';
import type { Redactor } from '../base/redactor.ts';

/** Reason codes for an unsupported protocol version, in MQTT 5 and 3.1.1. */
const WRONG_VERSION = new Set([0x84, 0x01]);
/** MQTT 5 reason code for a connection that was closed because another client connected with the same client ID. */
const SESSION_TAKEN_OVER = 0x8e;

/** Error from an MQTT broker or its connection. */
export class BrokerError extends TagferryError {}

export function brokerAway(name: string): BrokerError {
  return new BrokerError(`the broker ${name} is not connected`, {
    code: 'broker.away',
    retryable: true,
    hint: 'Check that the broker is running and that its address in tags.yaml is correct.',
  });
}

export function brokerBusy(name: string): BrokerError {
  return new BrokerError(`too many messages are waiting for the broker ${name}`, {
    code: 'broker.busy',
    retryable: true,
  });
}

export function brokerClosed(name: string): BrokerError {
  return new BrokerError(`the connection to the broker ${name} is closed`, { code: 'broker.closed', retryable: true });
}

/** Returns the error for a broker that does not respond although the agent reads from the connection. */
export function brokerSilent(): BrokerError {
  return new BrokerError('the broker does not respond', { code: 'broker.silent', retryable: true });
}

/** Returns the error for a message that is too large. Not retryable. */
export function brokerTooLarge(name: string, cause?: unknown): BrokerError {
  return new BrokerError(`the message exceeds the size limit of the broker ${name}`, {
    code: 'broker.too_large',
    cause,
  });
}

export function noStream(subject: string, cause: unknown): BrokerError {
  return new BrokerError(`no stream stores ${subject}`, {
    code: 'broker.stream',
    retryable: true,
    cause,
    hint: 'Create a stream with nats stream add, or set stream:.',
  });
}

export function brokerUnknown(name: string): BrokerError {
  return new BrokerError(`unknown broker ${name}`, {
    code: 'broker.unknown',
    hint: 'Set "to" in "publish: { to: … }" to an MQTT or NATS source in tags.yaml.',
  });
}

/**
 * Returns the error for a connection closed without a reason. `isUnanswered`: whether the broker closed it before
 * responding to an MQTT 5 CONNECT.
 */
export function brokerHungUp(isUnanswered: boolean): BrokerError {
  return new BrokerError('the broker closed the connection', {
    code: 'broker.hung_up',
    retryable: true,
    ...(isUnanswered ? { hint: 'If the broker does not support MQTT 5, set version: 3 in the source.' } : {}),
  });
}

const CLOCK = "Check this machine's clock (`date`). If it is correct, renew the broker certificate.";
const OWN = 'Renew the cert and key files of the source.';
const AUTHORITY = "Set ca in the source to the PEM file of the broker's CA.";
/** Certificate errors by Node.js and OpenSSL code. */
const CERTIFICATE_FAULTS: Readonly<Record<string, readonly [what: string, hint: string]>> = {
  CERT_HAS_EXPIRED: ['the broker certificate has expired', CLOCK],
  CERT_NOT_YET_VALID: ['the broker certificate is not valid yet', CLOCK],
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED: ["the broker rejects this gateway's certificate: it has expired", OWN],
  ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE: ["the broker rejects this gateway's certificate", OWN],
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN: ["the broker rejects this gateway's certificate", OWN],
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
  SELF_SIGNED_CERT_IN_CHAIN: ["the broker's CA is not trusted", AUTHORITY],
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: ["the broker's CA is not trusted", AUTHORITY],
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: ["the broker's CA is not trusted", AUTHORITY],
};

/** Returns an error message without the connection's secrets. */
export function redactedMessage(error: unknown, redactor: Redactor): string {
  return messageOf(redactor.redact(error instanceof Error ? error.message || error.name : String(error)));
}

/** Translates a certificate error to one with a hint; returns `undefined` for any other error. */
export function certificateError(error: unknown): BrokerError | undefined {
  const fault = CERTIFICATE_FAULTS[codeOf(error) ?? ''];
  return (
    fault && new BrokerError(fault[0], { code: 'broker.certificate', retryable: true, hint: fault[1], cause: error })
  );
}

/** Returns the error for a connection that an MQTT broker closed. */
export function connectionEnded(reason: number): BrokerError {
  if (reason === SESSION_TAKEN_OVER) {
    return new BrokerError(
      "another client connected to the broker with this gateway's client ID and took over its session, reconnecting in 60 s",
      {
        code: 'broker.name_taken',
        retryable: true,
        hint: 'Run `tagferry identity new` on the copied machine, or change the client_id of its source.',
      },
    );
  }
  return new BrokerError(`the broker closed the connection (reason ${reason})`, {
    code: 'broker.ended',
    retryable: true,
  });
}

/** Returns the error for a CONNECT that an MQTT broker rejected. */
export function clientRejected(code: number, version: 5 | 3): BrokerError {
  if (version === 5 && WRONG_VERSION.has(code)) {
    return new BrokerError('the broker does not support MQTT 5', { code: 'broker.version', retryable: true });
  }
  const isLogin = [0x04, 0x05, 0x86, 0x87, 0x8a].includes(code);
  return new BrokerError(`the broker rejected this client (reason ${code})`, {
    code: isLogin ? 'broker.login' : 'broker.refused',
    retryable: true,
    hint: isLogin
      ? "Check username and password_file of the source, and this client's access rights on the broker."
      : 'Check the broker log.',
  });
}
