import type { OutgoingBuffer } from '../buffer/client/lanes.ts';
import type { AccessPort } from './ports.ts';
import type { SeriesWaits } from './series-waits.ts';

/** Tells the buffer which series must not be taken: those that access holds, and those that wait because their values are refused. */
export class HeldSeries {
  readonly #buffer: Pick<OutgoingBuffer, 'holdSeries'>;
  readonly #access: Pick<AccessPort, 'heldSeries'>;
  readonly #waits: SeriesWaits;
  #last: Promise<void> = Promise.resolve();

  constructor(buffer: Pick<OutgoingBuffer, 'holdSeries'>, access: Pick<AccessPort, 'heldSeries'>, waits: SeriesWaits) {
    this.#buffer = buffer;
    this.#access = access;
    this.#waits = waits;
  }

  /** The whole set, one call after the other, the newest set last. */
  tell(): Promise<void> {
    const next = this.#last
      .catch(() => {})
      .then(() => this.#buffer.holdSeries([...new Set([...this.#access.heldSeries(), ...this.#waits.ids()])]));
    this.#last = next;
    return next;
  }
}
