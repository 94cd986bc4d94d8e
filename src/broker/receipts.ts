/**
 * Confirms messages in the order in which they came (MQTT 5 section 4.6), each only once its handler is done. Handlers work side
 * by side, so that many values share one commit. Belongs to one connection: what is not confirmed when it ends comes again.
 */
export interface Receipt {
  messageId: number;
  qos: 1 | 2;
}

export class Receipts {
  readonly #confirm: (receipts: readonly Receipt[]) => void;
  readonly #waiting: (Receipt & { isReady: boolean })[] = [];
  #isScheduled = false;

  /** `confirm` gets those that became ready together. */
  constructor(confirm: (receipts: readonly Receipt[]) => void) {
    this.#confirm = confirm;
  }

  /** Messages that are not confirmed yet. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** A message has come. The function it returns says that it is safe. */
  expect(messageId: number, qos: 1 | 2): () => void {
    const entry = { messageId, qos, isReady: false };
    this.#waiting.push(entry);
    return () => {
      entry.isReady = true;
      if (this.#isScheduled || this.#waiting[0] !== entry) return;
      // Those of one commit become ready one after the other, within the same turn: one write for all.
      this.#isScheduled = true;
      setImmediate(() => {
        this.#isScheduled = false;
        const first = this.#waiting.findIndex((one) => !one.isReady);
        this.#confirm(this.#waiting.splice(0, first < 0 ? this.#waiting.length : first));
      });
    };
  }
}
