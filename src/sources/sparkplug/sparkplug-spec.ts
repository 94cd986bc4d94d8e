import type { BrokerSpec } from '../../broker/broker-spec.ts';
import { isValidTime } from '../intake/text-parsers.ts';

export interface SparkplugSpec extends BrokerSpec {
  /** If omitted, messages from all groups are read. */
  group?: string;
  /** Whether to request a node's birth certificate if its metrics cannot be identified. */
  rebirth: boolean;
}

export interface SparkplugValue {
  /** `edge-node/device/metric name`, or `edge-node/metric name`. */
  metric: string;
}

/** Sparkplug B topics (Eclipse Sparkplug 3.0, chapter 4): `spBv1.0/group/type/node[/device]`. */
const NAMESPACE = 'spBv1.0';
const MAX_STATE_BYTES = 1_024;

export interface NodeTopic {
  group: string;
  /** Message type, for example `DBIRTH`. */
  type: string;
  node: string;
  device: string | undefined;
}

/**
 * Parses the topic of an edge node. Returns `undefined` for host topics, for commands that hosts send to a node, and for
 * topics that do not comply with the specification.
 */
export function readTopic(topic: string): NodeTopic | undefined {
  const [space, group, type, node, device, ...more] = topic.split('/');
  if (space !== NAMESPACE || group === undefined || type === undefined || node === undefined) return undefined;
  return more.length > 0 || type.endsWith('CMD') ? undefined : { group, type, node, device };
}

/** Returns the topic filter for all messages of a node. An omitted group or node matches any group or node. */
export function filterOf(group = '+', node = '+'): string {
  return `${NAMESPACE}/${group}/+/${node}/#`;
}

/** Returns the command topic of a node or of its device. */
export function commandTopic(group: string, node: string, device?: string): string {
  return `${NAMESPACE}/${group}/${device === undefined ? `NCMD/${node}` : `DCMD/${node}/${device}`}`;
}

/** Reads a STATE message (chapter 6.4.28). A message in another form announces no host. */
export function readState(payload: Uint8Array): { isOnline: boolean; timeMs: number } {
  let state: { online?: unknown; timestamp?: unknown } | null = null;
  try {
    if (payload.length <= MAX_STATE_BYTES) state = JSON.parse(Buffer.from(payload).toString('utf8'));
  } catch {
    // Not JSON.
  }
  const timeMs = Number(state?.timestamp);
  return { isOnline: state?.online === true, timeMs: isValidTime(timeMs) ? timeMs : 0 };
}
