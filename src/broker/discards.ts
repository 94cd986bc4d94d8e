/**
 * Size limits of broker messages. Larger messages are never collected in memory. They are acknowledged, because the
 * broker would send the same bytes again.
 */
import { plain } from '../base/foreign-text.ts';
import type { BrokerLog } from './broker-log.ts';

/** Limit for a whole packet: topic, properties and payload. */
export const MAX_PACKET_BYTES = 4 * 1024 * 1024;
/**
 * Limit for MQTT 5 properties and NATS headers, in bytes. When parsed, short headers occupy many times their length.
 */
const MAX_HEADER_BYTES = 64 * 1024;
/** Limit for a topic, because topics are stored in many places. Also the limit for topics in tags.yaml. */
export const MAX_TOPIC_BYTES = 1024;

/** Limit that a message exceeds. */
export type ExceededBound = 'packet' | 'topic' | 'headers';

const BOUNDS: Readonly<Record<ExceededBound, number>> = {
  packet: MAX_PACKET_BYTES,
  topic: MAX_TOPIC_BYTES,
  headers: MAX_HEADER_BYTES,
};
const SHOWN_TOPIC = 100;

/** Returns the first limit that a message exceeds. Sizes are in bytes. */
export function exceededBound(sizes: Readonly<Record<ExceededBound, number>>): ExceededBound | undefined {
  if (sizes.packet > MAX_PACKET_BYTES) return 'packet';
  if (sizes.topic > MAX_TOPIC_BYTES) return 'topic';
  return sizes.headers > MAX_HEADER_BYTES ? 'headers' : undefined;
}

/** Reports a discarded message. `bytes`: size of the whole packet. */
export function reportDiscarded(
  log: BrokerLog,
  { topic, bytes, bound }: { topic: string; bytes: number; bound: ExceededBound },
): void {
  const fields = { topic: plain(topic.slice(0, SHOWN_TOPIC)), bytes, bound, max_bytes: BOUNDS[bound] };
  log.report({ event: 'broker.discarded', ...fields }, 'message too large, discarded', { key: `discarded ${bound}` });
}
