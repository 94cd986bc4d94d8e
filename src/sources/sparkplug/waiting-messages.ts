/**
 * Messages of one edge node whose aliases are not known yet. They are not acknowledged until a birth certificate defines
 * their aliases. If none arrives in time, they are discarded, because unacknowledged messages would block the broker
 * session; until the next birth certificate, later messages then do not wait.
 */
import type { Clock } from '../../base/clock.ts';

/** `payload` is encoded, because a decoded one can use a hundred times as much memory. */
export interface WaitingMessage {
  type: string;
  device: string | undefined;
  payload: Uint8Array;
}

interface Waiting {
  message: WaitingMessage;
  settle(stored: Promise<void>): void;
}

const WAIT_MS = 30_000;
const MAX_WAITING = 1_000;

export class WaitingMessages {
  readonly #clock: Clock;
  /** Called with the messages that no birth certificate made readable. Resolves when they can be acknowledged. */
  readonly #discarded: (messages: readonly WaitingMessage[]) => Promise<void>;
  #waiting: Waiting[] = [];
  #isLate = false;
  #cancelDeadline: () => void = () => {};

  constructor(clock: Clock, discarded: (messages: readonly WaitingMessage[]) => Promise<void>) {
    this.#clock = clock;
    this.#discarded = discarded;
  }

  /** Whether a further message may wait for a birth certificate. */
  get accepts(): boolean {
    return !this.#isLate && this.#waiting.length < MAX_WAITING;
  }

  /** Adds a message. Resolves when the message has been stored or discarded. */
  add(message: WaitingMessage): Promise<void> {
    if (this.#waiting.length === 0) {
      this.#cancelDeadline = this.#clock.after(WAIT_MS, () => {
        this.discard();
        this.#isLate = true;
      });
    }
    return new Promise((resolve) => this.#waiting.push({ message, settle: resolve }));
  }

  /** Called after a birth certificate. Stores messages in order until `store` returns `undefined`. */
  release(store: (message: WaitingMessage) => Promise<void> | undefined): void {
    this.#isLate = false;
    while (this.#waiting.length > 0) {
      const stored = store(this.#waiting[0]!.message);
      if (stored === undefined) return;
      this.#waiting.shift()!.settle(stored);
    }
    this.#cancelDeadline();
  }

  /** Discards all messages, because their aliases can no longer be resolved. */
  discard(): void {
    this.#isLate = false;
    const messages = this.#waiting.map(({ message }) => message);
    this.#end(messages.length > 0 ? this.#discarded(messages) : Promise.resolve());
  }

  /** Rejects all messages when the source stops. The broker redelivers them. */
  reject(error: unknown): void {
    this.#end(Promise.reject(error));
  }

  #end(outcome: Promise<void>): void {
    this.#cancelDeadline();
    outcome.catch(() => {});
    for (const { settle } of this.#waiting.splice(0)) settle(outcome);
  }
}
