import type { Slot } from './slot.ts';

/** The beginning of a line up to its fields, as a program wrote it, and the tag it stands for. */
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
  /** Another head has set this slot before: their lines may overwrite each other. */
  isShared: boolean;
  /** The field that stood behind this one last time, on its line. */
  next: LineField | undefined;
  /** The first field of the line that came behind the line which this one began. */
  nextLine: LineField | undefined;
}

/** Estimated memory of all heads and fields: some 10,000 series as Telegraf writes them. */
const MAX_BYTES = 8 * 1024 * 1024;
/** A head, or a field, in addition to its text. */
const BYTES_OF_ENTRY = 400;
/** Of a head, and of a field's key. Longer ones are not for this memory: each field copies its head. */
export const MAX_REMEMBERED_BYTES = 1_024;

/** How lines begin, from request to request: a collector writes the same series in the same way each time. */
export class LineMemory {
  readonly #heads = new Map<string, LineHead>();
  /** By slot, the head that set it first. */
  readonly #setters = new Map<Slot, LineHead>();
  #bytes = 0;
  #rules = '';
  /** How often all entries were forgotten. */
  forgettings = 0;

  /** Forgets all entries unless they were remembered under the same rules for tags and keys. */
  begin(rules: string): void {
    if (rules === this.#rules) return;
    this.#clear();
    this.#rules = rules;
  }

  find(written: string): LineHead | undefined {
    return this.#heads.get(written);
  }

  rememberHead(written: string, bytes: Uint8Array, tag: string): LineHead {
    this.#makeRoom(bytes.length * 2);
    const head: LineHead = { bytes, tag, byKey: new Map() };
    this.#heads.set(written, head);
    return head;
  }

  rememberField(head: LineHead, key: string, bytes: Uint8Array, slot: Slot): LineField {
    const start = Uint8Array.from([...head.bytes, ...bytes]);
    this.#makeRoom(start.length + bytes.length * 2);
    const setter = this.#setters.get(slot);
    if (!setter) this.#setters.set(slot, head);
    const isShared = setter !== undefined && setter !== head && Buffer.compare(setter.bytes, head.bytes) !== 0;
    const field: LineField = { head, bytes, start, slot, isShared, next: undefined, nextLine: undefined };
    head.byKey.set(key, field);
    return field;
  }

  /** Counts a new entry. If there is no memory for it, all entries are forgotten. */
  #makeRoom(textBytes: number): void {
    if (this.#bytes + textBytes + BYTES_OF_ENTRY > MAX_BYTES) this.#clear();
    this.#bytes += textBytes + BYTES_OF_ENTRY;
  }

  #clear(): void {
    this.#heads.clear();
    this.#setters.clear();
    this.forgettings++;
    this.#bytes = 0;
  }
}
