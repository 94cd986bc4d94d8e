import { codeOf, TagferryError } from '../base/errors.ts';

/** Reasons by which a broker says that it does not speak the version: MQTT 5, and 3.1.1's. */
const WRONG_VERSION = new Set([0x84, 0x01]);
/** Reason by which a broker of MQTT 5 ends a connection whose client connected once more, elsewhere. */
const SESSION_TAKEN_OVER = 0x8e;

/** An MQTT broker, or the way to it, said no. */
export class BrokerError extends TagferryError {}

export function brokerAway(name: string): BrokerError {
  return new BrokerError(`the broker ${name} is not connected`, {
    code: 'broker.away',
    retryable: true,
    hint: 'Look whether the broker runs and whether the address in tags.yaml is right.',
  });
}

export function brokerBusy(name: string): BrokerError {
  return new BrokerError(`too many messages wait for the broker ${name}`, { code: 'broker.busy', retryable: true });
}

export function brokerClosed(name: string): BrokerError {
  return new BrokerError(`the connection to the broker ${name} is closed`, { code: 'broker.closed', retryable: true });
}

/** The broker does not respond on a connection that is read. */
export function brokerSilent(): BrokerError {
  return new BrokerError('the broker does not respond', { code: 'broker.silent', retryable: true });
}

/** Waiting makes it no smaller. */
export function brokerTooLarge(name: string, cause?: unknown): BrokerError {
  return new BrokerError(`the broker ${name} takes no message of this size`, { code: 'broker.too_large', cause });
}

export function noStream(subject: string, cause: unknown): BrokerError {
  return new BrokerError(`no stream keeps ${subject}`, {
    code: 'broker.stream',
    retryable: true,
    cause,
    hint: 'Make one with nats stream add, or name it in stream:.',
  });
}

export function brokerUnknown(name: string): BrokerError {
  return new BrokerError(`there is no broker ${name}`, {
    code: 'broker.unknown',
    hint: 'Name an MQTT source of tags.yaml in "publish: { to: … }".',
  });
}

/** The connection ended without a reason. `isUnanswered`: before the broker responded to a CONNECT of MQTT 5. */
export function brokerHungUp(isUnanswered: boolean): BrokerError {
  return new BrokerError('the broker closed the connection', {
    code: 'broker.hung_up',
    retryable: true,
    ...(isUnanswered ? { hint: 'If the broker does not support MQTT 5, set version: 3 at the source.' } : {}),
  });
}

const CLOCK = "Check this machine's clock (`date`); if it is right, renew the certificate of the broker.";
const OWN = 'Renew the files of cert and key at the source.';
const AUTHORITY = 'Name the PEM file of the authority of the broker in ca at the source.';
/** Faults of certificates, by the codes of Node and OpenSSL. */
const CERTIFICATE_FAULTS: Readonly<Record<string, readonly [what: string, hint: string]>> = {
  CERT_HAS_EXPIRED: ['the certificate of the broker has expired', CLOCK],
  CERT_NOT_YET_VALID: ['the certificate of the broker is not valid yet', CLOCK],
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED: ['the broker refuses the certificate of this gateway: it has expired', OWN],
  ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE: ['the broker refuses the certificate of this gateway', OWN],
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN: ['the broker refuses the certificate of this gateway', OWN],
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA: ['the broker does not trust the certificate of this gateway', OWN],
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: [
    'the broker wants a certificate of this gateway',
    'Add cert and key at the source.',
  ],
  ERR_TLS_CERT_ALTNAME_INVALID: [
    'the certificate of the broker is for another name',
    'Write the name of the certificate in the address.',
  ],
  DEPTH_ZERO_SELF_SIGNED_CERT: ['the certificate of the broker is signed by itself', AUTHORITY],
  SELF_SIGNED_CERT_IN_CHAIN: ['the authority of the broker is not trusted here', AUTHORITY],
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: ['the authority of the broker is not trusted here', AUTHORITY],
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: ['the authority of the broker is not trusted here', AUTHORITY],
};

/** A fault of a certificate in words, with what to do; any other error as it is. */
export function certificateWords(error: unknown): unknown {
  const fault = CERTIFICATE_FAULTS[codeOf(error) ?? ''];
  if (fault === undefined) return error;
  return new BrokerError(fault[0], { code: 'broker.certificate', retryable: true, hint: fault[1], cause: error });
}

/** A broker of MQTT ended the connection. */
export function connectionEnded(reason: number): BrokerError {
  if (reason === SESSION_TAKEN_OVER) {
    return new BrokerError(
      'another client connected to the broker with the client id of this one and took over its session',
      {
        code: 'broker.name_taken',
        retryable: true,
        hint: 'Run `tagferry identity new` on the machine that was copied, or change client_id of the source there.',
      },
    );
  }
  return new BrokerError(`the broker ended the connection (reason ${reason})`, {
    code: 'broker.ended',
    retryable: true,
  });
}

/** A broker of MQTT did not take the client in. */
export function clientRefused(code: number, version: 5 | 3): BrokerError {
  if (version === 5 && WRONG_VERSION.has(code)) {
    return new BrokerError('the broker does not speak MQTT 5', { code: 'broker.version', retryable: true });
  }
  const isLogin = [0x04, 0x05, 0x86, 0x87, 0x8a].includes(code);
  return new BrokerError(`the broker refuses this client (reason ${code})`, {
    code: isLogin ? 'broker.login' : 'broker.refused',
    retryable: true,
    hint: isLogin
      ? 'Look at username and password_file of the source, and at the rights of this client in the broker.'
      : 'Look into the log of the broker.',
  });
}
