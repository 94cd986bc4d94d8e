/**
 * Size limits of broker messages. Larger messages are never collected in memory. They are acknowledged, because the
 * broker would send the same bytes again.
 */
import type { Clock } from '../base/clock.ts';
import { plain } from '../base/foreign-text.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';

/** Limit for a whole packet: topic, properties and payload. */
export const MAX_PACKET_BYTES = 4 * 1024 * 1024;
/**
 * Limit for MQTT 5 properties and NATS headers, in bytes. When parsed, short headers occupy many times their length.
 */
export const MAX_HEADER_BYTES = 64 * 1024;
/** Limit for a topic, because topics are stored in many places. Also the limit for topics in tags.yaml. */
export const MAX_TOPIC_BYTES = 1024;

/** Limit that a message exceeds. */
export type ExceededBound = 'packet' | 'topic' | 'headers';

export interface DiscardedMessage {
  /** May be truncated. */
  topic: string;
  /** Size of the whole packet. */
  bytes: number;
  bound: ExceededBound;
}

const BOUNDS: Readonly<Record<ExceededBound, number>> = {
  packet: MAX_PACKET_BYTES,
  topic: MAX_TOPIC_BYTES,
  headers: MAX_HEADER_BYTES,
};
const BOUND_NAMES = Object.keys(BOUNDS) as ExceededBound[];
const SHOWN_TOPIC = 100;

/** Returns the first limit that a message exceeds. Sizes are in bytes. */
export function exceededBound(sizes: Readonly<Record<ExceededBound, number>>): ExceededBound | undefined {
  for (const bound of BOUND_NAMES) if (sizes[bound] > BOUNDS[bound]) return bound;
  return undefined;
}

/** Counts and reports the discarded messages of one broker. */
export class Discards {
  readonly #name: string;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #repeats = new Repeats();
  count = 0;

  constructor({ name, clock, logger }: { name: string; clock: Clock; logger: Logger }) {
    this.#name = name;
    this.#clock = clock;
    this.#logger = logger;
  }

  add({ topic, bytes, bound }: DiscardedMessage): void {
    this.count++;
    const count = this.#repeats.note(bound, this.#clock.monotonicMs());
    const fields = {
      broker: this.#name,
      topic: plain(topic.slice(0, SHOWN_TOPIC)),
      bytes,
      bound,
      max_bytes: BOUNDS[bound],
      count,
    };
    this.#logger[count === undefined ? 'debug' : 'warn'](
      { event: 'broker.discarded', ...fields },
      'message too large, discarded',
    );
  }
}
