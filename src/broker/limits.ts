/**
 * Size limits of broker messages. Larger messages are never collected in memory. They are acknowledged, because the
 * broker would send the same bytes again.
 */

/** Limit for a whole packet: topic, properties and payload. */
export const MAX_PACKET_BYTES = 4 * 1024 * 1024;
/** Limit for a topic, because topics are stored in many places. Also the limit for topics in tags.yaml. */
export const MAX_TOPIC_BYTES = 1024;

/** Limits in bytes. Headers are MQTT 5 properties or NATS headers; when parsed, they occupy many times their length. */
export const BOUNDS = { packet: MAX_PACKET_BYTES, topic: MAX_TOPIC_BYTES, headers: 64 * 1024 } as const;

/** Limit that a message exceeds. */
export type ExceededBound = keyof typeof BOUNDS;

/** Returns the first limit that a message exceeds. Sizes are in bytes. */
export function exceededBound(packet: number, topic: number, headers: number): ExceededBound | undefined {
  if (packet > BOUNDS.packet) return 'packet';
  if (topic > BOUNDS.topic) return 'topic';
  return headers > BOUNDS.headers ? 'headers' : undefined;
}
