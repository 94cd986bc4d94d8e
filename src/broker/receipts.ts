/**
 * Acknowledges messages in order of arrival (MQTT 5 section 4.6), each after its handler has resolved. Handlers run
 * concurrently, so that many values share one commit. Belongs to one connection: unacknowledged messages are
 * redelivered after it ends.
 */
export interface Receipt {
  messageId: number;
  qos: 1 | 2;
  /** Whether the message is stored. */
  isReady: boolean;
}

export class Receipts {
  readonly #confirm: (receipts: readonly Receipt[]) => void;
  readonly #waiting: Receipt[] = [];
  #isScheduled = false;

  /** `confirm` is called with the messages that became ready together. */
  constructor(confirm: (receipts: readonly Receipt[]) => void) {
    this.#confirm = confirm;
  }

  /** Number of messages that are not acknowledged yet. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Registers a message. Calling `ready` marks it as stored. */
  expect(messageId: number, qos: 1 | 2): Receipt {
    const receipt = { messageId, qos, isReady: false };
    this.#waiting.push(receipt);
    return receipt;
  }

  ready(receipt: Receipt): void {
    receipt.isReady = true;
    if (this.#isScheduled || this.#waiting[0] !== receipt) return;
    // Messages of one commit become ready in the same event loop turn, so all of them are written at once.
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      const first = this.#waiting.findIndex(({ isReady }) => !isReady);
      this.#confirm(this.#waiting.splice(0, first < 0 ? this.#waiting.length : first));
    });
  }
}
