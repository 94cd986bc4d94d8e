/**
 * Messages that were handed on and are not confirmed yet, by packet id: a broker that sends one of them again (DUP, on a session
 * that was resumed) is answered, and it is not taken a second time. A record goes when its confirmation is sent, because ids are
 * used again and constant values hash alike.
 *
 * Records of messages on disk stand on disk too, written with their values: `note` gives what is to be written and forgotten.
 */
import { hash } from 'node:crypto';
import type { Message } from './connection.ts';

interface Unconfirmed {
  hash: string;
  /** Settles with its handler; at once for what an earlier process took. Messages of one batch share it. */
  taken: Promise<void>;
}

const NOTHING: readonly number[] = [];

export class UnconfirmedMessages {
  readonly #byId = new Map<number, Unconfirmed>();
  #forgotten = new Set<number>();

  /** What an earlier process left. */
  restore(records: Iterable<readonly [messageId: number, hash: string]>): void {
    const taken = Promise.resolve();
    for (const [messageId, hash] of records) this.#byId.set(messageId, { hash, taken });
  }

  /** How the one that is sent again is faring, rejected where it was not taken; `undefined` where it is none that is known. */
  find({ messageId, hash }: { messageId: number; hash: string }): Promise<void> | undefined {
    const known = this.#byId.get(messageId);
    return known?.hash === hash ? known.taken : undefined;
  }

  begin(messageId: number, hash: string, taken: Promise<void>): void {
    this.#byId.set(messageId, { hash, taken });
  }

  /** The message was not stored and will not be on this connection. */
  failed(messageId: number): void {
    this.#byId.delete(messageId);
  }

  /** Its confirmation was sent. */
  confirmed(messageId: number): void {
    if (this.#byId.delete(messageId)) this.#forgotten.add(messageId);
  }

  /** The broker has forgotten the session: ids mean other messages from now on. */
  clear(): void {
    for (const messageId of [...this.#byId.keys()]) this.confirmed(messageId);
  }

  /** What was confirmed since, to be forgotten on disk with the next values. */
  takeForgotten(): readonly number[] {
    if (this.#forgotten.size === 0) return NOTHING;
    const forgotten = [...this.#forgotten];
    this.#forgotten = new Set();
    return forgotten;
  }
}

/** Where the bytes of a message are put together: room enough for nearly all. */
const scratch = Buffer.allocUnsafeSlow(16 * 1024);
/** Of a character of UTF-16. */
const MAX_UTF8_BYTES = 3;

/** Of what a message says, and where. */
export function hashOf({ topic, payload }: Pick<Message, 'topic' | 'payload'>): string {
  const isShort = topic.length * MAX_UTF8_BYTES + 1 + payload.length <= scratch.length;
  const bytes = isShort ? scratch : Buffer.allocUnsafe(topic.length * MAX_UTF8_BYTES + 1 + payload.length);
  const topicBytes = bytes.write(topic, 'utf8');
  bytes[topicBytes] = 0;
  bytes.set(payload, topicBytes + 1);
  return hash('sha256', bytes.subarray(0, topicBytes + 1 + payload.length), 'base64url').slice(0, 22);
}
