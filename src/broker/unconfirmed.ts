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
  /** Settles with its handler; at once for what an earlier process took. */
  taken: Promise<void>;
}

export class UnconfirmedMessages {
  readonly #byId = new Map<number, Unconfirmed>();
  #forgotten = new Set<number>();

  /** What an earlier process left. */
  restore(records: Iterable<readonly [messageId: number, hash: string]>): void {
    for (const [messageId, hash] of records) this.#byId.set(messageId, { hash, taken: Promise.resolve() });
  }

  /** How the one that is sent again is faring; `undefined` where it is none that is known. */
  find({ messageId, hash }: { messageId: number; hash: string }): Promise<void> | undefined {
    const known = this.#byId.get(messageId);
    return known?.hash === hash ? known.taken : undefined;
  }

  begin(messageId: number, hash: string, taken: Promise<void>): void {
    const entry = { hash, taken };
    this.#byId.set(messageId, entry);
    taken.catch(() => {
      if (this.#byId.get(messageId) === entry) this.#byId.delete(messageId);
    });
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
  takeForgotten(): number[] {
    const forgotten = [...this.#forgotten];
    this.#forgotten = new Set();
    return forgotten;
  }
}

/** Of what a message says, and where. */
export function hashOf({ topic, payload }: Pick<Message, 'topic' | 'payload'>): string {
  return hash('sha256', Buffer.concat([Buffer.from(`${topic}\0`), payload]), 'base64url').slice(0, 22);
}
