import { TagferryError } from '../base/errors.ts';

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
