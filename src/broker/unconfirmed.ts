/**
 * Delivered messages that are not acknowledged yet, by packet ID. If the broker sends one of them again (DUP, after
 * the session was resumed), it is acknowledged but not stored again. A record is removed when its acknowledgement is
 * sent, because IDs are reused and constant values have equal hashes.
 *
 * Records of stored messages are also written to disk, together with their values.
 */
import { hash } from 'node:crypto';
import type { Message } from './connection.ts';

interface Unconfirmed {
  hash: string;
  /**
   * Settles with the handler; resolved from the start for messages stored by a previous process. Messages of one batch
   * share it.
   */
  stored: Promise<void>;
}

const NOTHING: readonly number[] = [];

export class UnconfirmedMessages {
  readonly #byId = new Map<number, Unconfirmed>();
  #forgotten = new Set<number>();

  /** Restores the records of a previous process. */
  restore(records: Iterable<readonly [messageId: number, hash: string]>): void {
    const stored = Promise.resolve();
    for (const [messageId, hash] of records) this.#byId.set(messageId, { hash, stored });
  }

  /**
   * Returns the promise of the first delivery, which rejects if the message was not stored; `undefined` if the message
   * is unknown.
   */
  find({ messageId, hash }: { messageId: number; hash: string }): Promise<void> | undefined {
    const known = this.#byId.get(messageId);
    return known?.hash === hash ? known.stored : undefined;
  }

  begin(messageId: number, hash: string, stored: Promise<void>): void {
    this.#byId.set(messageId, { hash, stored });
  }

  /** Records that the message was not stored and will not be stored on this connection. */
  failed(messageId: number): void {
    this.#byId.delete(messageId);
  }

  /** Records that the acknowledgement was sent. */
  confirmed(messageId: number): void {
    if (this.#byId.delete(messageId)) this.#forgotten.add(messageId);
  }

  /** The broker lost the session, so IDs refer to new messages. */
  clear(): void {
    for (const messageId of [...this.#byId.keys()]) this.confirmed(messageId);
  }

  /** Returns the messages acknowledged since the previous call, to be removed from disk with the next values. */
  drainAcknowledged(): readonly number[] {
    if (this.#forgotten.size === 0) return NOTHING;
    const forgotten = [...this.#forgotten];
    this.#forgotten = new Set();
    return forgotten;
  }
}

const NUL = Buffer.alloc(1);
/** Memory for the input of the hash function, because most messages are small. */
const SCRATCH = Buffer.alloc(8 * 1024);

/** Returns the hash of topic and payload. */
export function hashOf({ topic, payload }: Pick<Message, 'topic' | 'payload'>): string {
  const bytes = 3 * topic.length + NUL.length + payload.length;
  if (bytes > SCRATCH.length) return digestOf(Buffer.concat([Buffer.from(topic), NUL, payload]));
  const topicEnd = SCRATCH.write(topic);
  SCRATCH[topicEnd] = 0;
  SCRATCH.set(payload, topicEnd + 1);
  return digestOf(SCRATCH.subarray(0, topicEnd + 1 + payload.length));
}

/** Returns the first 128 bits of a SHA-256 hash as text. */
function digestOf(content: string | Uint8Array): string {
  return hash('sha256', content, 'base64url').slice(0, 22);
}
