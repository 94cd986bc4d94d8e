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
const NODE_TYPES = /^[ND](BIRTH|DATA|DEATH)$/;
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
  return more.length > 0 || !NODE_TYPES.test(type) ? undefined : { group, type, node, device };
}

/** Returns the topic filter for all messages of a node. An omitted group or node matches any group or node. */
export function filterOf(group = '+', node = '+'): string {
  return `${NAMESPACE}/${group}/+/${node}/#`;
}

/** Returns the command topic of a node or of its device. */
export function commandTopic(group: string, node: string, device?: string): string {
  return `${NAMESPACE}/${group}/${device === undefined ? `NCMD/${node}` : `DCMD/${node}/${device}`}`;
}

/**
 * Returns the timestamp of a STATE message (chapter 6.4.28) that announces a host as offline. Returns `undefined` for
 * other messages.
 */
export function offlineTimeOf(payload: Uint8Array): number | undefined {
  try {
    const state = payload.length > MAX_STATE_BYTES ? null : JSON.parse(Buffer.from(payload).toString('utf8'));
    if (state?.online === true) return undefined;
    const timeMs = Number(state?.timestamp);
    return isValidTime(timeMs) ? timeMs : 0;
  } catch {
    return 0;
  }
}
