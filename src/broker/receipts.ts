/**
 * Confirms messages in the order in which they came (MQTT 5 section 4.6), each only once its handler is done. Handlers work side
 * by side, so that many values share one commit. Belongs to one connection: what is not confirmed when it ends comes again.
 */
export interface Receipt {
  messageId: number;
  qos: 1 | 2;
}

/** A message that waits to be confirmed. */
export interface Expected extends Receipt {
  isReady: boolean;
}

export class Receipts {
  readonly #confirm: (receipts: readonly Receipt[]) => void;
  readonly #waiting: Expected[] = [];
  #isScheduled = false;

  /** `confirm` gets those that became ready together. */
  constructor(confirm: (receipts: readonly Receipt[]) => void) {
    this.#confirm = confirm;
  }

  /** Messages that are not confirmed yet. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** A message has come. `ready` says that it is safe. */
  expect(messageId: number, qos: 1 | 2): Expected {
    const expected = { messageId, qos, isReady: false };
    this.#waiting.push(expected);
    return expected;
  }

  ready(expected: Expected): void {
    expected.isReady = true;
    if (this.#isScheduled || this.#waiting[0] !== expected) return;
    // Those of one commit become ready one after the other, within the same turn: one write for all.
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      const first = this.#waiting.findIndex((one) => !one.isReady);
      this.#confirm(this.#waiting.splice(0, first < 0 ? this.#waiting.length : first));
    });
  }
}

/** PUBACK (QoS 1) and PUBREC (QoS 2) of all of them, one after the other; both versions of MQTT read it as success. */
export function confirmationsOf(receipts: readonly Receipt[]): Buffer {
  const bytes = Buffer.allocUnsafe(receipts.length * 4);
  for (const [at, { messageId, qos }] of receipts.entries()) {
    bytes.writeUInt16BE(qos === 1 ? 0x4002 : 0x5002, at * 4);
    bytes.writeUInt16BE(messageId, at * 4 + 2);
  }
  return bytes;
}
