/**
 * Bounds of a message from a broker, and messages beyond them: they are never collected in memory. The broker gets a confirmation, because
 * it would send the same bytes again.
 */
import type { Clock } from '../base/clock.ts';
import { plain } from '../base/foreign-text.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';

/** Of a whole packet: topic, properties and payload. */
export const MAX_PACKET_BYTES = 4 * 1024 * 1024;
/** Of MQTT 5 properties, NATS headers. Parsed, short ones occupy many times their length. */
export const MAX_HEADER_BYTES = 64 * 1024;
/** Topics are remembered in many places. The longest one that tags.yaml can name has this length too. */
export const MAX_TOPIC_BYTES = 1024;

/** The bound that a message exceeds. */
export type ExceededBound = 'packet' | 'topic' | 'headers';

export interface DiscardedMessage {
  /** May be cut. */
  topic: string;
  /** Of the whole packet. */
  bytes: number;
  bound: ExceededBound;
}

const BOUNDS: Readonly<Record<ExceededBound, number>> = {
  packet: MAX_PACKET_BYTES,
  topic: MAX_TOPIC_BYTES,
  headers: MAX_HEADER_BYTES,
};
const SHOWN_TOPIC = 100;

/** The first bound that a message exceeds. Sizes in bytes. */
export function exceededBound(sizes: Readonly<Record<ExceededBound, number>>): ExceededBound | undefined {
  return (Object.keys(BOUNDS) as ExceededBound[]).find((bound) => sizes[bound] > BOUNDS[bound]);
}

/** Counts discarded messages of one broker and reports them. */
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
