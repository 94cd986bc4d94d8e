import { systemClock } from '../base/clock.ts';

/**
 * Hash table from strings to their position in a list, four bytes per slot. A `Map` would require 40 bytes more per
 * series in both threads (measured: 423 bytes instead of 380).
 */
export class AddressIndex {
  readonly #texts: readonly (string | undefined)[];
  /** String numbers, or 0 for an empty slot. The table is at most half full; the length is a power of two. */
  #places = new Int32Array(64);
  #count = 0;

  /** `texts` contains the strings by number, starting at 1. */
  constructor(texts: readonly (string | undefined)[]) {
    this.#texts = texts;
  }

  get size(): number {
    return this.#count;
  }

  find(text: string): number | undefined {
    const found = this.#places[this.#placeOf(text)]!;
    return found === 0 ? undefined : found;
  }

  /** Adds a string that is not in the table. */
  add(text: string, id: number): void {
    if ((this.#count + 1) * 2 > this.#places.length) this.#grow();
    const place = this.#placeOf(text);
    // `#grow` may have added the string.
    if (this.#places[place] !== 0) return;
    this.#places[place] = id;
    this.#count++;
  }

  #grow(): void {
    this.#places = new Int32Array(this.#places.length * 2);
    this.#count = 0;
    for (let id = 1; id < this.#texts.length; id++) {
      const text = this.#texts[id];
      if (text === undefined) continue;
      this.#places[this.#placeOf(text)] = id;
      this.#count++;
    }
  }

  /** Returns the slot of a string, or the slot where it would be added. */
  #placeOf(text: string): number {
    const mask = this.#places.length - 1;
    let place = hashOf(text) & mask;
    for (let id = this.#places[place]!; id !== 0 && this.#texts[id] !== text; id = this.#places[place]!) {
      place = (place + 1) & mask;
    }
    return place;
  }
}

/** Randomized per process, so that clients cannot construct colliding keys. */
const SEED = (systemClock.random() * 2 ** 32) | 0;

/** MurmurHash2-style mixing. */
function hashOf(text: string): number {
  let hash = SEED;
  for (let i = 0; i < text.length; i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x5bd1e995);
    hash ^= hash >>> 15;
  }
  return hash >>> 0;
}
