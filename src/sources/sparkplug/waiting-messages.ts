/**
 * Queue of QoS 1 and 2 messages from one edge node whose aliases cannot be resolved yet. They remain unacknowledged
 * until a birth certificate from the same session contains their aliases. If none arrives in time, they are discarded,
 * because unacknowledged messages would block the broker session. Until the next birth certificate, later messages are
 * then not queued. After a crash, the broker redelivers unacknowledged messages.
 */
import type { Clock } from '../../base/clock.ts';

/**
 * A data message. `payload` is encoded, because a decoded one can use a hundred times as much memory, and the client
 * limits unacknowledged messages by their encoded size.
 */
export interface WaitingMessage {
  type: string;
  device: string | undefined;
  payload: Uint8Array;
}

interface Waiting {
  message: WaitingMessage;
  settle(stored: Promise<void>): void;
}

export interface WaitingMessagesOptions {
  clock: Clock;
  /** Called with the number of discarded messages. */
  onDiscarded(messages: number): void;
}

/** Maximum time for which messages wait for a birth certificate. */
const WAIT_MS = 10_000;

export class WaitingMessages {
  readonly #options: WaitingMessagesOptions;
  #waiting: Waiting[] = [];
  #isDiscarding = false;
  #cancelDeadline: () => void = () => {};

  constructor(options: WaitingMessagesOptions) {
    this.#options = options;
  }

  /** Whether messages may currently wait for a birth certificate. */
  get accepts(): boolean {
    return !this.#isDiscarding;
  }

  get size(): number {
    return this.#waiting.length;
  }

  /** Adds a message. Resolves when the message has been stored or discarded. */
  add(message: WaitingMessage): Promise<void> {
    if (this.#waiting.length === 0) {
      this.#cancelDeadline = this.#options.clock.after(WAIT_MS, () => {
        this.#isDiscarding = true;
        this.discard();
      });
    }
    return new Promise((resolve) => this.#waiting.push({ message, settle: resolve }));
  }

  /** Called after a birth certificate. Stores messages in order until `store` returns `undefined`. */
  release(store: (message: WaitingMessage) => Promise<void> | undefined): void {
    this.#isDiscarding = false;
    while (this.#waiting.length > 0) {
      const stored = store(this.#waiting[0]!.message);
      if (stored === undefined) return;
      this.#waiting.shift()!.settle(stored);
    }
    this.#cancelDeadline();
  }

  /** Discards all messages, because their aliases can no longer be resolved. */
  discard(): void {
    const messages = this.#waiting.length;
    if (messages > 0) this.#options.onDiscarded(messages);
    this.#end(Promise.resolve());
  }

  /** Rejects all messages when the source stops. The broker retains them. */
  reject(error: unknown): void {
    this.#end(Promise.reject(error));
  }

  #end(outcome: Promise<void>): void {
    this.#cancelDeadline();
    outcome.catch(() => {});
    for (const { settle } of this.#waiting.splice(0)) settle(outcome);
  }
}
