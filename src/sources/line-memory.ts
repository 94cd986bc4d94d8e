import type { Slot } from './slot.ts';

/** The beginning of a line of line protocol up to its fields, as a program wrote it, and the tag that it means. */
export interface LineHead {
  bytes: Uint8Array;
  tag: string;
  byKey: Map<string, LineField>;
}

/** `key=` and the slot that it means behind its head. */
export interface LineField {
  head: LineHead;
  bytes: Uint8Array;
  /** Head and key together: how a line begins whose first field this is. */
  start: Uint8Array;
  slot: Slot;
  /** The field that stood behind this one last time, on its line. */
  next: LineField | undefined;
  /** The first field of the line that came behind the line which this one began. */
  nextLine: LineField | undefined;
}

const MAX_HEADS = 20_000;

/** What lines began with, from request to request: who sends the same series every second writes them in the same way. */
export class LineMemory {
  readonly #heads = new Map<string, LineHead>();
  #tagFrom: string | undefined;

  /** The head that was written so; `tagFrom`: which Influx tag names the tag. */
  find(written: string, tagFrom: string | undefined): LineHead | undefined {
    if (tagFrom !== this.#tagFrom) {
      this.#heads.clear();
      this.#tagFrom = tagFrom;
    }
    return this.#heads.get(written);
  }

  remember(written: string, bytes: Uint8Array, tag: string): LineHead {
    if (this.#heads.size >= MAX_HEADS) this.#heads.clear();
    const head = { bytes, tag, byKey: new Map() };
    this.#heads.set(written, head);
    return head;
  }
}
