import type { StatusCode } from 'node-opcua-client';
import type { Status } from './protocol.ts';

/** Severity by the two highest bits of a status code. The fourth value is reserved and treated as bad. */
const SEVERITIES: readonly Status[] = [0, 1, 2, 2];

export function severityOf({ value }: StatusCode): Status {
  return SEVERITIES[value >>> 30]!;
}

/** Includes codes such as GoodNoData, which the library's `isGood` excludes. */
export function isGood(code: StatusCode): boolean {
  return severityOf(code) === 0;
}

/** Messages for the status codes of a node. */
const TEXTS: Readonly<Record<string, string>> = {
  BadNodeIdUnknown: 'the server does not have this node',
  BadNodeIdInvalid: 'the server does not accept this node id',
  BadAttributeIdInvalid: 'the node is not a variable',
  BadNotReadable: 'the node is not readable',
  BadUserAccessDenied: 'the user is not allowed to read the node',
  BadIndexRangeNoData: 'the array does not have this element',
  BadIndexRangeInvalid: 'the value is not an array',
  BadTooManyMonitoredItems: 'the server does not accept more monitored values',
  BadNotConnected: 'the server is not connected to the device',
  BadNoCommunication: 'the server cannot communicate with the device',
  BadWaitingForInitialData: 'the server does not have a value yet',
  BadHistoryOperationUnsupported: 'the server does not have a history of this node',
  BadHistoryOperationInvalid: 'the server does not have a history of this node',
  BadServiceUnsupported: 'the server does not support this request',
};

/** Describes the status code of a node or of its value. */
export function statusText({ name }: StatusCode): string {
  const text = TEXTS[name];
  return text === undefined ? `status ${name}` : `${text} (${name})`;
}
