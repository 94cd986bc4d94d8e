/**
 * Messages of QoS 1 and 2 of one edge node whose aliases cannot be resolved yet. They stay unacknowledged until a birth certificate of
 * the same life of the node names their aliases. If none arrives in time they are discarded, because unacknowledged messages would block
 * the session of the broker; later ones are then not held until the next birth certificate. A crash leaves them with the broker.
 */
import type { Clock } from '../../base/clock.ts';
import type { NodeMessage } from './edge-node.ts';

interface Held {
  message: NodeMessage;
  settle(stored: Promise<void>): void;
}

export interface HeldMessagesOptions {
  clock: Clock;
  /** Called with the number of messages that are discarded. */
  onDiscarded(messages: number): void;
}

/** Time for a birth certificate to arrive. */
const WAIT_MS = 10_000;

export class HeldMessages {
  readonly #options: HeldMessagesOptions;
  #held: Held[] = [];
  #hasGivenUp = false;
  #cancelDeadline: () => void = () => {};

  constructor(options: HeldMessagesOptions) {
    this.#options = options;
  }

  /** Whether a message can wait for a birth certificate. */
  get isOpen(): boolean {
    return !this.#hasGivenUp;
  }

  get size(): number {
    return this.#held.length;
  }

  /** Resolves when the message is stored or discarded. */
  hold(message: NodeMessage): Promise<void> {
    if (this.#held.length === 0) {
      this.#cancelDeadline = this.#options.clock.after(WAIT_MS, () => {
        this.#hasGivenUp = true;
        this.discard();
      });
    }
    return new Promise((resolve) => this.#held.push({ message, settle: resolve }));
  }

  /** A birth certificate arrived: stores messages from the oldest on, up to the first that `store` leaves out. */
  release(store: (message: NodeMessage) => Promise<void> | undefined): void {
    this.#hasGivenUp = false;
    while (this.#held.length > 0) {
      const stored = store(this.#held[0]!.message);
      if (stored === undefined) return;
      this.#held.shift()!.settle(stored);
    }
    this.#cancelDeadline();
  }

  /** The messages can never be resolved. */
  discard(): void {
    const messages = this.#held.length;
    if (messages > 0) this.#options.onDiscarded(messages);
    this.#end(Promise.resolve());
  }

  /** The source stops: the broker keeps the messages. */
  reject(error: unknown): void {
    this.#end(Promise.reject(error));
  }

  #end(outcome: Promise<void>): void {
    this.#cancelDeadline();
    outcome.catch(() => {});
    for (const { settle } of this.#held.splice(0)) settle(outcome);
  }
}
