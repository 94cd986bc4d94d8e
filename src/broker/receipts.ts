/**
 * Confirms messages in the order in which they came (MQTT 3.1.1 section 4.6), each only once its handler is done. Handlers work side
 * by side, so that many values share one commit. Belongs to one connection: what is not confirmed when it ends comes again.
 */
export class Receipts {
  readonly #confirm: (messageId: number) => void;
  readonly #waiting: { messageId: number; ready: boolean }[] = [];

  constructor(confirm: (messageId: number) => void) {
    this.#confirm = confirm;
  }

  /** A message has come. The function it returns says that it is safe. */
  expect(messageId: number): () => void {
    const entry = { messageId, ready: false };
    this.#waiting.push(entry);
    return () => {
      entry.ready = true;
      while (this.#waiting[0]?.ready) this.#confirm(this.#waiting.shift()!.messageId);
    };
  }
}
